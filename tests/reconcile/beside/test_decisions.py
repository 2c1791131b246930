"""Decisions of guard and external dispatcher: tables without any cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.documents.labels import COMPONENT_INDEX
from clusters.kueue.multikueue.dispatchers import CHEAPEST_FIT
from clusters.kueue.multikueue.group import Group, GroupView
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.reconcile.external.defects import CopySeen, Defect, Patient, diagnose
from clusters.reconcile.external.nominator import may_nominate, waits_for, wanted_names
from clusters.reconcile.external.ways import (
    GATE,
    POLICY,
    Way,
    WayFacts,
    bound_policy,
    choose,
    handed_over,
    has_gate,
)
from clusters.reconcile.reactivation import REJECTED, is_stuck, reactivation

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def workload(*true: str, active: bool = True, **status: Any) -> dict[str, Any]:
    """A Workload with these conditions True."""
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": "R",
            "lastTransitionTime": "2026-03-01T11:00:00Z",
        }
        for kind in true
    ]
    return {
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
        "spec": {"active": active},
        "status": {"conditions": conditions + status.pop("conditions", []), **status},
    }


def rejected(**changes: Any) -> dict[str, Any]:
    marked = {"type": "Requeued", "status": "False", "reason": REJECTED}
    return workload("Evicted", conditions=[marked], **changes)


# Reactivation


def test_reactivation_sets_active_first_then_takes_the_mark_away():
    first = reactivation(rejected(active=False))
    assert first is not None and first.subresource == ""
    assert first.body == {"metadata": {"resourceVersion": "7"}, "spec": {"active": True}}
    second = reactivation(rejected())
    assert second is not None and second.subresource == "status" and second.body is not None
    assert [item["type"] for item in second.body["status"]["conditions"]] == ["Evicted"]
    assert second.body["metadata"] == {"resourceVersion": "7"}


@pytest.mark.parametrize(
    ("found", "want_stuck"),
    [
        pytest.param(rejected(), True, id="active, and Kueue leaves it out"),
        pytest.param(rejected(active=False), False, id="nobody wants it back"),
        pytest.param(workload("Evicted"), False, id="an ordinary eviction"),
    ],
)
def test_stuck_is_what_is_active_and_marked(found, want_stuck):
    assert is_stuck(found) is want_stuck


@pytest.mark.parametrize("kind", ["Finished", "QuotaReserved"])
def test_reactivation_waits_while_the_eviction_is_not_over(kind):
    found = rejected()
    found["status"]["conditions"].append({"type": kind, "status": "True"})
    assert reactivation(found) is None
    assert not is_stuck(found)


def test_reactivation_leaves_alone_what_is_being_deleted_or_waits():
    going = rejected()
    going["metadata"]["deletionTimestamp"] = "2026-03-01T11:00:00Z"
    assert reactivation(going) is None
    assert reactivation(workload()) is None


# Defects


def defects(patient: Patient) -> list[tuple[Defect, str]]:
    return [(item.defect, item.worker) for item in diagnose(patient)]


ADMITTED = workload("Admitted", "QuotaReserved")
WAITING = workload()
RUNS_ON_B = workload("QuotaReserved", "Admitted", clusterName="b")


@pytest.mark.parametrize(
    ("site", "want"),
    [
        pytest.param(
            CopySeen("a", is_active=False, copy=ADMITTED), True, id="Kueue is not back yet"
        ),
        pytest.param(CopySeen("a", copy=ADMITTED, has_job=True), True, id="its job runs"),
        pytest.param(CopySeen("a", copy=ADMITTED), False, id="the loser of a race has no job"),
        pytest.param(
            CopySeen("a", is_active=False, copy=WAITING), False, id="it was never admitted"
        ),
        pytest.param(
            CopySeen(
                "a", is_active=False, answers=False, copy=ADMITTED, lost_for=timedelta(hours=1)
            ),
            False,
            id="it is still away",
        ),
    ],
)
def test_stale_copy_is_an_admitted_one_beside_the_chosen(site, want):
    patient = Patient(RUNS_ON_B, (site, CopySeen("b", copy=ADMITTED, has_job=True)))
    assert defects(patient) == ([(Defect.STALE_COPY, "a")] if want else [])


def test_stale_copy_that_was_taken_is_told_so():
    old = CopySeen("a", copy=ADMITTED, has_job=True)
    [before] = diagnose(Patient(RUNS_ON_B, (old, CopySeen("b", copy=ADMITTED))))
    [after] = diagnose(Patient(RUNS_ON_B, (old, CopySeen("b"))))
    assert "would delete the running one on b" in before.found
    assert "Kueue took the old copy" in after.found


def test_no_copy_is_stale_while_nobody_is_chosen():
    """An admitted copy is then the best one there is: its job goes on."""
    patient = Patient(workload("QuotaReserved"), (CopySeen("a", copy=ADMITTED, has_job=True),))
    assert defects(patient) == []


EVICTED = workload("Evicted", "QuotaReserved")
GONE, AWAY = (
    CopySeen("a"),
    CopySeen("b", is_active=False, answers=False, lost_for=timedelta(minutes=15)),
)


@pytest.mark.parametrize(
    ("local", "sites", "is_job_active", "want"),
    [
        pytest.param(EVICTED, (GONE,), True, True, id="nothing is anywhere"),
        pytest.param(EVICTED, (GONE, AWAY), True, True, id="lost for longer than the time-out"),
        pytest.param(
            EVICTED,
            (GONE, CopySeen("b", is_active=False, answers=False, lost_for=timedelta(minutes=14))),
            True,
            False,
            id="a lost worker may still have it",
        ),
        pytest.param(
            EVICTED,
            (CopySeen("b", answers=False, lost_for=timedelta(hours=1)),),
            True,
            False,
            id="Kueue still sees what the portal does not",
        ),
        pytest.param(EVICTED, (CopySeen("a", copy=ADMITTED),), True, False, id="a copy is there"),
        pytest.param(EVICTED, (CopySeen("a", has_job=True),), True, False, id="a job is there"),
        pytest.param(EVICTED, (GONE,), False, False, id="its status says that nothing runs"),
        pytest.param(EVICTED, (GONE,), None, False, id="a kind that does not say"),
        pytest.param(EVICTED, (), True, False, id="no worker is known"),
        pytest.param(workload("Evicted"), (GONE,), True, False, id="its quota is free"),
        pytest.param(workload("QuotaReserved"), (GONE,), True, False, id="it is not evicted"),
    ],
)
def test_quota_is_stuck_once_every_copy_is_proved_gone(local, sites, is_job_active, want):
    patient = Patient(local, sites, is_job_active)
    assert defects(patient) == ([(Defect.STUCK_QUOTA, "")] if want else [])


def test_finished_and_deleted_workloads_have_no_defects():
    ended = workload("Evicted", "QuotaReserved", "Finished")
    assert defects(Patient(ended, (GONE,), is_job_active=True)) == []
    going = {**EVICTED, "metadata": {**EVICTED["metadata"], "deletionTimestamp": "x"}}
    assert defects(Patient(going, (GONE,), is_job_active=True)) == []


# Duties of an external dispatcher


def view(local: dict[str, Any], **checks: str) -> GroupView:
    local["status"]["admissionChecks"] = [
        {"name": name, "state": state} for name, state in {"mk": "Pending", **checks}.items()
    ]
    return GroupView(Group(local=local, check="mk", now=NOW), local)


@pytest.mark.parametrize(
    ("local", "checks", "want"),
    [
        pytest.param(workload("QuotaReserved"), {}, True, id="waits for a worker"),
        pytest.param(workload("QuotaReserved"), {"budget": "Ready"}, True, id="others are ready"),
        pytest.param(workload("QuotaReserved"), {"budget": "Pending"}, False, id="a check waits"),
        pytest.param(workload("QuotaReserved"), {"mk": "Retry"}, False, id="it is to be evicted"),
        pytest.param(workload("QuotaReserved", clusterName="a"), {}, False, id="it has one"),
        pytest.param(workload("QuotaReserved", "Evicted"), {}, False, id="it is evicted"),
        pytest.param(workload("QuotaReserved", active=False), {}, False, id="it is stopped"),
        pytest.param(workload(), {}, False, id="it has no quota"),
    ],
)
def test_a_workload_is_nominated_when_kueue_waits_for_it(local, checks, want):
    assert may_nominate(view(local, **checks)) is want


def test_only_the_first_of_several_workloads_is_nominated():
    parts = [workload("QuotaReserved") for _ in range(2)]
    for index, part in enumerate(parts):
        part["metadata"]["annotations"] = {COMPONENT_INDEX: str(index)}
    assert may_nominate(view(parts[0]), siblings=parts)
    assert not may_nominate(view(parts[1]), siblings=parts)


@pytest.mark.parametrize(
    ("nominated", "chosen", "seen", "want"),
    [
        pytest.param([], ["a"], {}, ("a",), id="the dispatcher's wish"),
        pytest.param(["a"], ["b"], {"a": CopySeen("a")}, ("b",), id="nothing is there: withdrawn"),
        pytest.param(
            ["a"], ["b"], {"a": CopySeen("a", copy=WAITING)}, ("b",), id="it waits: withdrawn"
        ),
        pytest.param(
            ["a"],
            ["b"],
            {"a": CopySeen("a", copy=ADMITTED)},
            ("b", "a"),
            id="admitted: never withdrawn",
        ),
        pytest.param(
            ["a"],
            ["b"],
            {"a": CopySeen("a", answers=False)},
            ("b", "a"),
            id="not seen: not withdrawn",
        ),
        pytest.param(["a"], ["b"], {}, ("b", "a"), id="not known: not withdrawn"),
        pytest.param(
            ["b"],
            ["b"],
            {"a": CopySeen("a", copy=ADMITTED)},
            ("b", "a"),
            id="admitted: nominated again",
        ),
    ],
)
def test_nominations_never_leave_an_admitted_worker_out(nominated, chosen, seen, want):
    assert wanted_names(nominated, chosen=chosen, seen=seen) == want


def test_a_workload_is_woken_for_a_worker_that_has_no_copy():
    found = view(workload("QuotaReserved", nominatedClusterNames=["a"]))
    assert waits_for(found, "a", {"a": CopySeen("a")})
    assert not waits_for(found, "a", {"a": CopySeen("a", copy=WAITING)})
    assert not waits_for(found, "b", {"b": CopySeen("b")})


# Ways


def facts(**changes: Any) -> WayFacts:
    given: dict[str, Any] = {
        "settings": DispatchSettings(dispatcher=CHEAPEST_FIT),
        "has_gate": False,
        "policy": "",
        "may_see_policies": True,
        "may_patch_status": True,
        "may_patch": True,
    }
    return WayFacts(**given | changes)


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"has_gate": True, "policy": POLICY}, Way.MERGE_PATCH, id="M1 comes first"),
        pytest.param({"policy": POLICY}, Way.POLICY, id="then M2"),
        pytest.param({}, Way.HAND_OVER, id="then M4"),
        pytest.param({"may_patch": False}, Way.NONE, id="M4 needs a right"),
        pytest.param({"may_patch": False, "policy": POLICY}, Way.POLICY, id="M2 does not"),
        pytest.param({"may_patch_status": False, "has_gate": True}, Way.NONE, id="all need one"),
        pytest.param({"settings": DispatchSettings(), "has_gate": True}, Way.NONE, id="not ours"),
    ],
)
def test_way_is_the_first_possible_one(changes, want):
    found = choose(facts(**changes))
    assert found.way is want and found.why


def test_policy_counts_only_when_it_is_bound():
    policy = {"metadata": {"name": f"kueue-{POLICY}"}}
    other = {"metadata": {"name": "something"}}
    binding = {"spec": {"policyName": f"kueue-{POLICY}"}}
    assert bound_policy([other, policy], [binding]) == f"kueue-{POLICY}"
    assert bound_policy([other, policy], []) == ""
    assert bound_policy([other], [{"spec": {"policyName": "something"}}]) == ""


def test_gate_is_read_from_the_command_line_before_the_configuration():
    assert has_gate({"featureGates": {GATE: True}})
    assert not has_gate({})
    assert has_gate({}, [f"--feature-gates=A=true,{GATE}=true"])
    assert not has_gate({"featureGates": {GATE: True}}, [f"--feature-gates={GATE}=false"])


def entry(manager: str, operation: str, **status: Any) -> dict[str, Any]:
    return {
        "manager": manager, "operation": operation, "subresource": "status",
        "fieldsV1": {"f:status": {f"f:{name}": value for name, value in status.items()}},
    }  # fmt: skip


def test_field_is_handed_over_to_kueues_apply():
    found = workload("QuotaReserved")
    found["metadata"]["managedFields"] = [
        entry("kueue", "Update", admissionChecks={}),
        entry("kueue-admission", "Apply", admission={}),
        entry("gpu-budget-portal", "Update", nominatedClusterNames={}),
    ]
    patch = handed_over(found)
    assert patch is not None and patch["metadata"]["resourceVersion"] == "7"
    assert patch["metadata"]["managedFields"] == [
        entry("kueue", "Update", admissionChecks={}),
        entry("kueue-admission", "Apply", admission={}, nominatedClusterNames={}),
    ]
    # What was read stays as it was.
    assert found["metadata"]["managedFields"][2]["fieldsV1"]["f:status"]


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([entry("kueue-admission", "Apply", admission={})], id="nothing is ours"),
        pytest.param(
            [
                entry("kueue-admission", "Update", admission={}),
                entry("gpu-budget-portal", "Update", nominatedClusterNames={}),
            ],
            id="Kueue sends merge patches",
        ),
    ],
)
def test_nothing_is_handed_over_where_nothing_is_in_the_way(entries):
    found = workload("QuotaReserved")
    found["metadata"]["managedFields"] = entries
    assert handed_over(found) is None
