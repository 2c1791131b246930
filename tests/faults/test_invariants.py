"""The observer's judgement: a good history passes, and each rule notices its breach."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.histories import (
    check,
    facts,
    job,
    life,
    queue,
    running,
    told,
    workload,
)
from tests.faults.invariants import RULES, Outage, judge
from tests.faults.observer import JOBS, QUEUES, WORKLOADS, Told
from tests.faults.rest import unrest
from tests.faults.timeline import MANAGER
from tests.faults.traffic import Passage


def on_manager(*steps: tuple[float, dict[str, Any]]) -> list[Told]:
    """The manager's Workload over time."""
    return [
        told(at, MANAGER, WORKLOADS, document, "MODIFIED" if number else "ADDED")
        for number, (at, document) in enumerate(steps)
    ]


def placed(worker: str = "w1", *, at: float = 1.0) -> list[tuple[float, dict[str, Any]]]:
    """Reserved, nominated, chosen."""
    nominated = workload("QuotaReserved", nominatedClusterNames=["w1", "w2"])
    return [(at, workload()), (at + 0.1, nominated), (at + 0.2, running(worker))]


GOOD = [
    *on_manager(
        *placed("w1"),
        (30.0, workload("Evicted", "QuotaReserved", clusterName="w1")),
        (31.0, workload()),
        *placed("w2", at=32.0)[1:],
        (50.0, workload("QuotaReserved", "Finished=Succeeded", clusterName="w2")),
    ),
    *life("w1", job("a", attempt="1"), 2.0, 42.0),
    *life("w2", job("b", attempt="2"), 33.0),
    told(49.0, "w2", JOBS, job("b", attempt="2", ended="Complete")),
    told(51.0, "w2", JOBS, job("b", attempt="2", ended="Complete"), "DELETED"),
]
OUTAGE = Outage("w1", 15.0, 40.0)


def test_judge_finds_nothing_in_a_good_history():
    verdict = judge(GOOD, facts(outages=[OUTAGE]))
    assert verdict.faults == []
    looked_at = {name for name, count in verdict.checked.items() if count}
    assert set(RULES) - looked_at <= {"no retry under an eviction", "others are left alone",
                                      "no refused write"}  # fmt: skip


BREACHES = [
    pytest.param(
        "one start per reservation",
        [*on_manager(*placed()), *life("w1", job("a"), 2, 3), *life("w1", job("b"), 4)],
        {},
        id="a second Job under one reservation",
    ),
    pytest.param(
        "one start per attempt",
        [*life("w1", job("a"), 2, 3), *life("w2", job("b"), 9)],
        {},
        id="two Jobs under one attempt",
    ),
    pytest.param(
        "one worker at a time",
        [*life("w1", job("a"), 2), *life("w2", job("b", attempt="2"), 9)],
        {},
        id="Jobs on two workers that can be reached",
    ),
    pytest.param(
        "one worker at a time",
        [*life("w1", job("a"), 2, 200), *life("w2", job("b", attempt="2"), 30)],
        {"outages": [OUTAGE]},
        id="a returning worker is never cleared",
    ),
    pytest.param(
        "nominated before chosen",
        on_manager((1, workload("QuotaReserved")), (2, running("w1"))),
        {},
        id="chosen without a nomination",
    ),
    pytest.param(
        "a choice is kept",
        on_manager(*placed("w1"), (9, running("w2"))),
        {},
        id="from one worker right to another",
    ),
    pytest.param(
        "no retry under an eviction",
        on_manager(
            (1, workload("Evicted")), (2, workload("Evicted", admissionChecks=[check("Retry")]))
        ),
        {},
        id="a Retry that Kueue refuses",
    ),
    pytest.param(
        "a reservation is kept",
        on_manager(
            (1, workload("QuotaReserved")),
            (2, workload("QuotaReserved", admission={"podSetAssignments": [
                {"name": "main", "flavors": {"nvidia.com/gpu": "a100"}}]})),
        ),
        {},
        id="another flavor in place",
    ),
    pytest.param(
        "quota is kept",
        [*life("w1", workload("QuotaReserved", name="one"), 1),
         *life("w1", workload("QuotaReserved", name="two", gpus=1), 2)],
        {},
        id="nine of eight GPUs",
    ),
    pytest.param(
        "evicted for a reason",
        on_manager(*placed("w1"), (20, workload("Evicted", "QuotaReserved", clusterName="w1"))),
        {"outages": [Outage("w1", 15.0, 18.0)]},
        id="evicted within the grace",
    ),
    pytest.param(
        "evicted for a reason",
        on_manager(*placed("w1"), (30, workload("Evicted", "QuotaReserved", clusterName="w1"))),
        {"outages": [Outage("w2", 15.0, 40.0)]},
        id="evicted since another worker is away",
    ),
    pytest.param(
        "nobody kills what runs",
        [*on_manager(*placed("w1")), *life("w1", job("a"), 2, 20)],
        {},
        id="its Job is removed while it runs",
    ),
    pytest.param(
        "ends are true",
        [*on_manager(*placed("w1"),
                     (20, workload("QuotaReserved", "Finished=Succeeded", clusterName="w1"))),
         *life("w1", job("a", ended="Failed"), 2)],
        {},
        id="a failed Job is reported as a success",
    ),
    pytest.param(
        "no orphans",
        [*life("manager", workload(), 1, 2), *life("w1", job("a"), 2),
         *life("w1", workload(name="x"), 200)],
        {},
        id="a Job whose Workload is long gone",
    ),
    pytest.param(
        "others are left alone",
        life("w1", job("a", origin=""), 2, 20),
        {},
        id="somebody else's Job is deleted",
    ),
    pytest.param(
        "no refused write",
        [],
        {"passages": [Passage(1, "dispatch-a", "w1", "PATCH", "/apis/batch/x", 422, False)]},
        id="a write that the API server refuses",
    ),
    pytest.param("no crash", [], {"crashes": ["dispatch-a: boom"]}, id="a shift that breaks down"),
    pytest.param("nothing unseen", [], {"blind": ["w1: 410"]}, id="a gap in what was told"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "history", "done"), BREACHES)
def test_judge_notices(rule, history, done):
    verdict = judge(history, facts(**done))
    assert rule in {fault.partition(":")[0] for fault in verdict.faults}


def test_every_rule_has_a_breach():
    assert {case.values[0] for case in BREACHES} == set(RULES)


def at_rest(cluster: str, kind: str) -> list[dict[str, Any]]:
    if cluster == MANAGER and kind == WORKLOADS:
        return [workload("QuotaReserved", "Finished")]
    if cluster == MANAGER and kind == JOBS:
        return [job("m", ended="Complete", origin="")]
    return [queue("q", reservingWorkloads=0)[1]] if kind == QUEUES else []


@pytest.mark.parametrize(
    ("cluster", "kind", "left", "want"),
    [
        pytest.param(MANAGER, JOBS, job("m", origin=""), "has not ended", id="open job"),
        pytest.param(MANAGER, WORKLOADS, workload(), "is not Finished", id="open Workload"),
        pytest.param("w1", JOBS, job("a"), "jobs train is left", id="left Job"),
        pytest.param("w2", WORKLOADS, workload("QuotaReserved"), "hold 8 GPUs", id="held quota"),
        pytest.param(
            "w1", QUEUES, queue("q", reservingWorkloads=1)[1], "[1, 0]", id="quota nobody counts"
        ),
    ],
)
def test_unrest_names_what_is_open(cluster, kind, left, want):
    assert list(unrest(at_rest, facts())) == []
    found = list(
        unrest(lambda c, k: [left] if (c, k) == (cluster, kind) else at_rest(c, k), facts())
    )
    assert any(want in words for words in found), found
