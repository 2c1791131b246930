"""The parts of preemption: who may take whose place, in what order, and what has to fit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from clusters.kueue.amounts import FlavorResource
from clusters.kueue.configuration import AdmissionFairSharing, Configuration, FairStrategy
from clusters.kueue.preemption.classic import (
    ClassicalPreemption,
    PreemptionReason,
    Preemptor,
    candidate_order,
    candidates_in,
    fits_after,
    satisfies,
)
from clusters.kueue.preemption.fair import FairPreemption
from clusters.kueue.quota.resource_node import Quota
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import (
    ClusterQueueSpec,
    PreemptionPolicy,
    PreemptionRules,
)
from clusters.kueue.quota.usage_ledger import QueueShare, UsageLedger
from clusters.kueue.workload.workloads import PodSetHold, Reservation
from tests.kueue.preemption_reference import Held
from tests.kueue.test_preemption_reference import (
    START,
    A,
    B,
    cohort,
    held,
    queue,
    snapshot_of,
    workload,
)

NEVER, LOWER, NEWER, ANY = PreemptionPolicy
EVERYBODY = PreemptionRules(ANY, ANY)
KEY = FlavorResource(*A)
FAIR = Configuration(fair_strategies=(FairStrategy.LESS_THAN_INITIAL_SHARE,))


def preemptor(snapshot: Snapshot, of: str, amount: int, **more: Any) -> Preemptor:
    owner = workload("w", 3, 5)
    return Preemptor(owner, snapshot.queues[of], frozenset({KEY}), {KEY: amount}, **more)


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param(NEVER, [], id="never"),
        pytest.param(LOWER, ["lower older", "lower newer"], id="lower"),
        pytest.param(NEWER, ["lower older", "lower newer", "equal newer"], id="newer"),
        pytest.param(
            ANY,
            [
                *("lower older", "lower newer"),
                *("equal older", "equal at once", "equal newer"),
                *("higher older", "higher newer"),
            ],
            id="any",
        ),
    ],
)
def test_who_may_take_whose_place(policy, want):
    candidates = {
        "lower older": (2, 4),
        "lower newer": (2, 6),
        "equal older": (3, 4),
        "equal at once": (3, 5),
        "equal newer": (3, 6),
        "higher older": (4, 4),
        "higher newer": (4, 6),
    }
    found = [
        name
        for name, (priority, queued) in candidates.items()
        if satisfies(
            policy, preemptor=workload("w", 3, 5), candidate=workload(name, priority, queued)
        )
    ]
    assert found == want


def test_the_words_of_each_reason():
    assert {item.text: item.words for item in PreemptionReason} == {
        "InClusterQueue": "prioritization in the ClusterQueue",
        "InCohortReclamation": "reclamation within the cohort",
        "InCohortFairSharing": "Fair Sharing within the cohort",
        "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
    }


def test_the_order_of_candidates():
    nodes = {"top": cohort(), "q": queue("top", a=(9,)), "r": queue("top", a=(9,))}
    all_held = [
        held("early", "r", 1, at=1),
        held("b late", "r", 1, at=2),
        held("a late", "r", 1, at=2),
        held("high", "r", 1, at=9, priority=1),
        held("own", "q", 1, at=9),
        held("own told", "q", 1, at=1, priority=9, is_evicted=True),
        held("told", "r", 1, priority=10, is_evicted=True),
    ]
    snapshot = snapshot_of(nodes, all_held, EVERYBODY)
    order = candidate_order(snapshot, "q")
    found = [item.workload.name for item in sorted(snapshot.holdings(), key=order)]
    assert found == ["told", "own told", "a late", "b late", "early", "high", "own"]


def test_of_one_queue_who_used_more_goes_before_any_priority():
    ledger = UsageLedger(AdmissionFairSharing(half_life_s=60, sampling_interval_s=5))
    ledger.set_share("ns/much", QueueShare(consumed={"gpu": 5_000_000_000}))
    snapshot = Snapshot(ledger=ledger)
    for name, is_by_usage in (("q", True), ("r", True), ("s", False)):
        spec = ClusterQueueSpec(name, quotas={KEY: Quota(9)}, is_usage_based=is_by_usage)
        snapshot.set_queue(spec)
    snapshot.refresh()
    for name, of, by, priority, at in (
        ("r much", "r", "much", 5, 1),
        ("r little early", "r", "little", 1, 2),
        ("r none late", "r", "none", 1, 3),
        ("r told", "r", "little", 9, 4),
        ("q much", "q", "much", 9, 5),
        ("q little", "q", "little", 0, 6),
        ("s much", "s", "much", 2, 7),
        ("s little", "s", "little", 0, 8),
    ):
        hold = PodSetHold("main", {A[1]: A[0]}, {A[1]: 1}, 1)
        reserved = Reservation(of, (hold,), START + timedelta(seconds=at), is_admitted=True)
        owner = workload(name, priority, 0, reservation=reserved)
        snapshot.hold(replace(owner, queue_name=by), is_evicted=name.endswith("told"))
    order = candidate_order(snapshot, "q")
    found = {
        name: [
            item.workload.name
            for item in sorted(snapshot.holdings(), key=order)
            if item.cluster_queue in name
        ]
        for name in ("qr", "s")
    }
    assert found == {
        "qr": ["r told", "r much", "r none late", "r little early", "q much", "q little"],
        "s": ["s little", "s much"],
    }


def test_only_what_holds_the_lacking_pairs_is_a_candidate():
    nodes = {"q": queue(a=(9,), b=(9,))}
    all_held = [held("a", "q", 1), held("b", "q", b=1), held("both", "q", 1, 1)]
    # An amount of 0 counts: the flavor is assigned.
    all_held.append(Held("none", "q", {A: 0, B: 1}))
    snapshot = snapshot_of(nodes, all_held, EVERYBODY)
    asked = preemptor(snapshot, "q", 1)
    found = [x.workload.name for x in candidates_in(snapshot.queues["q"], asked, ANY)]
    assert found == ["a", "both", "none"]
    assert list(candidates_in(snapshot.queues["q"], asked, NEVER)) == []


def test_what_has_to_fit_afterwards():
    nodes = {"top": cohort(a=(2,)), "q": queue("top", a=(4,))}
    snapshot = snapshot_of(nodes, [held("m", "q", 1)], EVERYBODY)
    found = {
        (amount, may_borrow): fits_after(preemptor(snapshot, "q", amount), may_borrow=may_borrow)
        for amount in (3, 4, 5, 6)
        for may_borrow in (True, False)
    }
    assert [key for key, fits in found.items() if fits] == [
        (3, True),
        (3, False),
        (4, True),
        (5, True),
    ]
    homeless = preemptor(snapshot, "q", 1, finds_places=lambda: False)
    assert not fits_after(homeless, may_borrow=True)


@pytest.mark.parametrize("is_fair", [False, True])
def test_victims_go_until_pods_find_domains(is_fair):
    """Quota is free; only the third that stops leaves room, and the second is spared."""
    nodes = {"q": queue(a=(9,))}
    all_held = [held(f"m{n}", "q", 1, at=n) for n in range(4)]
    snapshot = snapshot_of(nodes, all_held, EVERYBODY)
    state = snapshot.queues["q"]

    def finds_places() -> bool:
        return {"ns/m3", "ns/m1"}.isdisjoint(state.holdings)

    finder = (
        FairPreemption(snapshot, configuration=FAIR) if is_fair else ClassicalPreemption(snapshot)
    )
    found = finder.targets(preemptor(snapshot, "q", 1, finds_places=finds_places))
    assert [item.holding.workload.name for item in found] == ["m3", "m1"]
    assert sorted(state.holdings) == ["ns/m0", "ns/m1", "ns/m2", "ns/m3"]
    nowhere = preemptor(snapshot, "q", 1, finds_places=lambda: False)
    assert finder.targets(nowhere) == []
    assert sorted(state.holdings) == ["ns/m0", "ns/m1", "ns/m2", "ns/m3"]
    assert state.node.usage == {KEY: 4}


@pytest.mark.parametrize("is_fair", [False, True])
def test_a_queue_that_takes_no_part_gives_nothing(is_fair):
    nodes = {"top": cohort(a=(4,)), "q": queue("top", a=(1,)), "r": queue("top", a=(0,))}
    snapshot = snapshot_of(nodes, [held("m", "r", 5)], EVERYBODY)
    finder = (
        FairPreemption(snapshot, configuration=FAIR) if is_fair else ClassicalPreemption(snapshot)
    )
    asked = preemptor(snapshot, "q", 1)
    assert [item.holding.workload.name for item in finder.targets(asked)] == ["m"]
    snapshot.queues["r"].is_active = False
    assert finder.targets(asked) == []
    snapshot.queues["r"].is_active = True
    snapshot.queues["r"].is_reachable = False
    assert finder.targets(asked) == []
