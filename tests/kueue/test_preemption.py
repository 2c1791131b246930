"""Who is preempted without fair sharing, and who is spared."""

from __future__ import annotations

import pytest

from tests.kueue.builders import (
    GPU,
    World,
    cluster_queue,
    cohort,
    flavor,
    group,
    pod_set,
    preemption,
    quota,
    reserved,
    workload,
)


def victims(world: World) -> dict[str, str]:
    return {item.key.removeprefix("ns/"): item.reason for item in world.cycle().preempted}


@pytest.mark.parametrize(
    ("policy", "priority", "age", "want_victims"),
    [
        pytest.param("Never", 9, 0, {}, id="never"),
        pytest.param("LowerPriority", 9, 99, {"old": "InClusterQueue"}, id="lower"),
        pytest.param("LowerPriority", 5, 0, {}, id="equal is not lower"),
        pytest.param(
            "LowerOrNewerEqualPriority", 5, 5, {"old": "InClusterQueue"}, id="newer and equal"
        ),
        pytest.param("LowerOrNewerEqualPriority", 5, 50, {}, id="older and equal stays"),
    ],
)
def test_policy_within_the_queue(policy, priority, age, want_victims):
    world = World().feed(
        cluster_queue("q", group(f0=quota(4)), preemption=preemption(policy)),
        reserved(workload("old", "q", gpus=4, priority=5, age=10), "q"),
        workload("w", "q", gpus=2, priority=priority, age=age),
    )
    assert victims(world) == want_victims


@pytest.mark.parametrize(
    ("policy", "want_victims"),
    [
        pytest.param("Never", {}, id="never"),
        pytest.param("LowerPriority", {}, id="equal priority is kept"),
        pytest.param("Any", {"borrower": "InCohortReclamation"}, id="any"),
    ],
)
def test_reclaim_from_a_borrower(policy, want_victims):
    world = World().feed(
        cluster_queue(
            "q", group(f0=quota(4)), in_cohort="pool", preemption=preemption("Never", policy)
        ),
        cluster_queue("b", group(f0=quota(4)), in_cohort="pool"),
        reserved(workload("borrower", "b", gpus=6), "b"),
        workload("w", "q", gpus=4),
    )
    assert victims(world) == want_victims


def test_reclaim_spares_who_stays_within_nominal():
    world = World().feed(
        cluster_queue(
            "q", group(f0=quota(4)), in_cohort="pool", preemption=preemption("Never", "Any")
        ),
        cluster_queue("b", group(f0=quota(4)), in_cohort="pool"),
        cluster_queue("c", group(f0=quota(4)), in_cohort="pool"),
        reserved(workload("nominal", "b", gpus=4), "b"),
        reserved(workload("one", "c", gpus=4, priority=1), "c"),
        reserved(workload("two", "c", gpus=4, priority=2), "c"),
        workload("w", "q", gpus=4),
    )
    assert victims(world) == {"one": "InCohortReclamation"}


@pytest.mark.parametrize(
    ("borrow", "victim_priority", "want_victims"),
    [
        pytest.param({"policy": "Never"}, 0, {}, id="not while borrowing"),
        pytest.param(
            {"policy": "LowerPriority"}, 0, {"b": "InCohortReclaimWhileBorrowing"}, id="allowed"
        ),
        pytest.param(
            {"policy": "LowerPriority", "maxPriorityThreshold": 3}, 4, {}, id="above the threshold"
        ),
        pytest.param(
            {"policy": "LowerPriority", "maxPriorityThreshold": 4},
            4,
            {"b": "InCohortReclaimWhileBorrowing"},
            id="at the threshold",
        ),
    ],
)
def test_borrowing_while_preempting(borrow, victim_priority, want_victims):
    world = World().feed(
        cluster_queue(
            "q",
            group(f0=quota(2)),
            in_cohort="pool",
            preemption=preemption("Never", "LowerPriority", **borrow),
        ),
        cluster_queue("other", group(f0=quota(0)), in_cohort="pool"),
        cohort("pool", f0=quota(4)),
        reserved(workload("b", "other", gpus=4, priority=victim_priority), "other"),
        workload("w", "q", gpus=4, priority=9),
    )
    assert victims(world) == want_victims


def test_candidates_are_taken_lowest_priority_then_latest_first():
    world = World().feed(
        cluster_queue("q", group(f0=quota(6)), preemption=preemption("LowerPriority")),
        reserved(workload("early", "q", gpus=2), "q", at="2026-01-01T00:00:01Z"),
        reserved(workload("late", "q", gpus=2), "q", at="2026-01-01T00:00:09Z"),
        reserved(workload("high", "q", gpus=2, priority=3), "q", at="2026-01-01T00:00:20Z"),
        workload("w", "q", gpus=2, priority=9),
    )
    assert victims(world) == {"late": "InClusterQueue"}


def test_targets_that_are_not_needed_after_all_are_spared():
    world = World().feed(
        cluster_queue("q", group(f0=quota(6)), preemption=preemption("LowerPriority")),
        reserved(workload("small", "q", gpus=1), "q"),
        reserved(workload("large", "q", gpus=5, priority=1), "q"),
        workload("w", "q", gpus=5, priority=9),
    )
    assert victims(world) == {"large": "InClusterQueue"}


def test_message_names_both_paths():
    world = World().feed(
        cohort("pool", "top"),
        cluster_queue(
            "q", group(f0=quota(4)), in_cohort="pool", preemption=preemption("Never", "Any")
        ),
        cluster_queue("b", group(f0=quota(0)), in_cohort="top"),
        reserved(workload("old", "b", gpus=4), "b"),
        workload("w", "q", gpus=4, metadata={"name": "w", "namespace": "ns", "uid": "U1"}),
    )
    result = world.cycle()
    assert [item.message for item in result.preempted] == [
        "Preempted to accommodate a workload (UID: U1, JobUID: UNKNOWN) due to reclamation within "
        "the cohort; preemptor path: /top/pool/q; preemptee path: /top/b"
    ]
    assert [item.message for item in result.pending] == [
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
        "flavor f0, 4 more needed. Pending the preemption of 1 workload(s)"
    ]


def test_victim_is_not_preempted_twice_while_it_stops():
    world = World().feed(
        cluster_queue("q", group(f0=quota(4)), preemption=preemption("LowerPriority")),
        reserved(workload("old", "q", gpus=4), "q"),
        workload("w", "q", gpus=4, priority=9),
    )
    assert victims(world) == {"old": "InClusterQueue"}
    assert victims(world) == {}
    world.engine.release_evicted("ns/old", now=world.now)
    assert list(world.admitted()) == ["w"]


def test_victims_of_one_cycle_may_make_room_for_others_of_it():
    """19 of 15 are reserved while the victim still runs, as in Kueue."""
    rules = preemption("LowerPriority")
    world = World().feed(
        cluster_queue("a", group(f0=quota(10)), in_cohort="pool", preemption=rules),
        cluster_queue("b", group(f0=quota(5)), in_cohort="pool"),
        cluster_queue("c", group(f0=quota(0)), in_cohort="pool"),
        reserved(workload("victim", "a", gpus=10), "a"),
        workload("p", "a", gpus=6, priority=9),
        workload("x", "b", gpus=5),
        workload("y", "c", gpus=4, age=1),
    )
    result = world.cycle()
    assert [item.key for item in result.preempted] == ["ns/victim"]
    assert {item.key for item in result.admitted} == {"ns/x", "ns/y"}


@pytest.mark.parametrize(
    ("gate", "want_message"),
    [
        pytest.param(
            False,
            "Workload has overlapping preemption targets with another workload",
            id="skipped as in 0.19",
        ),
        pytest.param(
            True,
            "Workload has overlapping preemption targets with another workload, but will fit after "
            "these preemptions complete",
            id="gate on: deferred",
        ),
    ],
)
def test_second_preemptor_of_the_same_victim(gate, want_message):
    gates = {"featureGates": {"RecomputeAssignmentUponPreemptionTargetsOverlap": gate}}
    rules = preemption("Never", "Any")
    world = World(gates).feed(
        cluster_queue("a", group(f0=quota(4)), in_cohort="pool", preemption=rules),
        cluster_queue("b", group(f0=quota(4)), in_cohort="pool", preemption=rules),
        cluster_queue("c", group(f0=quota(0)), in_cohort="pool"),
        reserved(workload("victim", "c", gpus=8), "c"),
        workload("first", "a", gpus=4),
        workload("second", "b", gpus=4, age=1),
    )
    result = world.cycle()
    assert [(item.key, item.preemptor) for item in result.preempted] == [("ns/victim", "ns/first")]
    messages = {item.key: item.message for item in result.pending}
    assert messages["ns/second"] == want_message
    assert world.usage()["pool"] == {("f0", GPU): 8}
    world.engine.release_evicted("ns/victim", now=world.now)
    assert {item.key for item in world.cycle().admitted} == {"ns/first", "ns/second"}


def test_reclaim_stops_where_a_queue_is_back_within_nominal():
    """b gives only what it borrows, although a second candidate of it would be cheaper."""
    world = World().feed(
        cluster_queue(
            "q", group(f0=quota(6)), in_cohort="pool", preemption=preemption("Never", "Any")
        ),
        cluster_queue("b", group(f0=quota(3)), in_cohort="pool"),
        cluster_queue("c", group(f0=quota(0)), in_cohort="pool"),
        reserved(workload("b1", "b", gpus=3), "b"),
        reserved(workload("b2", "b", gpus=3), "b", at="2026-01-01T00:00:09Z"),
        reserved(workload("c1", "c", gpus=3, priority=5), "c"),
        workload("w", "q", gpus=6),
    )
    assert set(victims(world)) == {"b2", "c1"}


def test_failed_attempt_is_undone():
    """The only candidate is tried, does not make enough room, and is put back."""
    world = World().feed(
        cluster_queue("q", group(f0=quota(4)), preemption=preemption("LowerPriority")),
        reserved(workload("low", "q", gpus=1), "q"),
        reserved(workload("high", "q", gpus=3, priority=20), "q"),
        workload("w", "q", gpus=4, priority=9),
    )
    before = world.usage()
    assert victims(world) == {}
    assert world.usage() == before
    assert set(world.engine.state.snapshot.queues["q"].holdings) == {"ns/low", "ns/high"}


def test_request_of_zero_does_not_make_a_borrower():
    """The second pod set gets f1, of which its queue borrows already, and asks for none of it."""
    world = World(None, flavor("f1")).feed(
        cluster_queue(
            "q",
            group(f0=quota(9), f1=quota(0)),
            in_cohort="pool",
            preemption=preemption("Never", "Any"),
        ),
        cluster_queue("b", group(f0=quota(0), f1=quota(9)), in_cohort="pool"),
        reserved(workload("mine", "q", gpus=2), "q", flavor="f1"),
        reserved(workload("borrower", "b", gpus=9), "b"),
        workload("w", "q", pod_set({GPU: 9}), pod_set({GPU: 0}, name="worker")),
    )
    assert victims(world) == {"borrower": "InCohortReclamation"}


def test_snapshot_is_as_before_when_nothing_can_be_preempted():
    world = World().feed(
        cohort("pool", "top"),
        cluster_queue(
            "q",
            group(f0=quota(4)),
            in_cohort="pool",
            preemption=preemption("LowerPriority", "LowerPriority", policy="LowerPriority"),
        ),
        cluster_queue("b", group(f0=quota(3, None, 1)), in_cohort="top"),
        reserved(workload("low", "q", gpus=1), "q"),
        reserved(workload("borrower", "b", gpus=6, priority=20), "b"),
        workload("w", "q", gpus=7, priority=9),
    )
    before = world.usage()
    assert victims(world) == {}
    assert world.usage() == before


def test_a_queue_may_go_on_borrowing_when_it_preempts_its_own():
    world = World().feed(
        cluster_queue(
            "a", group(f0=quota(2)), in_cohort="pool", preemption=preemption("LowerPriority")
        ),
        cluster_queue("lender", group(f0=quota(4)), in_cohort="pool"),
        reserved(workload("old", "a", gpus=2), "a"),
        reserved(workload("other", "a", gpus=4, priority=9), "a"),
        workload("w", "a", gpus=2, priority=1),
    )
    found = [(item.key, item.reason) for item in world.cycle().preempted]
    assert found == [("ns/old", "InClusterQueue")]
