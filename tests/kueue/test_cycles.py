"""What one cycle decides, held whole: order, what is kept for others, messages, second passes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from clusters.documents import labels
from clusters.kueue.assignment.outcome import FlavorChoice, FlavorMode, PodSetAssignment
from clusters.kueue.configuration import Configuration
from clusters.kueue.cycle.decisions import Admit, CycleResult, Pending, Preempt
from clusters.kueue.cycle.second_pass import needs_second_pass
from clusters.kueue.workload.parser import WorkloadParser
from clusters.kueue.workload.requests import PodSurroundings
from clusters.kueue.workload.workloads import PodSetHold
from tests.kueue.builders import (
    GPU,
    START,
    World,
    cluster_queue,
    cohort,
    group,
    pod_set,
    preemption,
    quota,
    reserved,
    workload,
)

NIC = "example.com/nic"
NO_LONGER = "Workload no longer fits after processing another workload"


def admission(queue: str, gpus: int) -> dict[str, Any]:
    """The ``status.admission`` of one pod."""
    assigned = {"name": "main", "flavors": {GPU: "f0"}, "resourceUsage": {GPU: str(gpus)}}
    return {"clusterQueue": queue, "podSetAssignments": [{**assigned, "count": 1}]}


def admit(name: str, queue: str, gpus: int, **changes: Any) -> Admit:
    values = {"is_admitted": True, "checks": (), **changes}
    message = f"Quota reserved in ClusterQueue {queue}"
    return Admit(f"ns/{name}", admission(queue, gpus), message=message, **values)


def test_cycle_tells_what_it_admits_and_what_waits():
    world = World().feed(
        cluster_queue("q", group(f0=quota(4))), workload("w", "q", gpus=3), workload("v", "q")
    )
    world.feed(workload("x", "q", gpus=2, age=5))
    assert world.cycle() == CycleResult(
        number=1, heads=1, admitted=(admit("v", "q", 1),), is_settled=False
    )
    assert world.cycle() == CycleResult(
        number=2, heads=1, admitted=(admit("w", "q", 3),), is_settled=False
    )
    lacking = f"insufficient unused quota for {GPU} in flavor f0, 2 more needed"
    text = f"couldn't assign flavors to pod set main: {lacking}"
    assert world.cycle() == CycleResult(
        number=3,
        heads=1,
        pending=(Pending("ns/x", "WaitingForQuota", text, "q", has_changed=True),),
        is_settled=False,
    )
    assert world.cycle() == CycleResult(number=3, heads=0)


def test_cycle_tells_whom_it_preempts_for_whom():
    document = workload("w", "a", gpus=4)
    document["metadata"]["labels"] = {labels.JOB_UID: "job-uid"}
    nameless = workload("old", "b", gpus=4)
    world = World().feed(
        cohort("pool", "top"),
        cluster_queue(
            "a", group(f0=quota(4)), in_cohort="pool", preemption=preemption("Never", "Any")
        ),
        cluster_queue("b", group(f0=quota(0)), in_cohort="top"),
        reserved(nameless, "b"),
        document,
    )
    lacking = f"insufficient unused quota for {GPU} in flavor f0, 4 more needed"
    text = f"couldn't assign flavors to pod set main: {lacking}"
    assert world.cycle() == CycleResult(
        number=1,
        heads=1,
        preempted=(
            Preempt(
                "ns/old",
                reason="InCohortReclamation",
                message=(
                    "Preempted to accommodate a workload (UID: uid-w, JobUID: job-uid) due to "
                    "reclamation within the cohort; preemptor path: /top/pool/a; preemptee path: "
                    "/top/b"
                ),
                preemptor="ns/w",
                cluster_queue="b",
            ),
        ),
        pending=(
            Pending(
                "ns/w",
                "WaitingForPreemptedWorkloads",
                f"{text}. Pending the preemption of 1 workload(s)",
                "a",
                has_changed=True,
            ),
        ),
        is_settled=False,
    )


def test_uid_that_is_not_known_is_told_as_such():
    document = workload("w", "q", gpus=4, priority=1)
    del document["metadata"]["uid"]
    world = World().feed(
        cluster_queue("q", group(f0=quota(4)), preemption=preemption("LowerPriority")),
        reserved(workload("old", "q", gpus=4), "q"),
        document,
    )
    [preempted] = world.cycle().preempted
    assert preempted.message == (
        "Preempted to accommodate a workload (UID: UNKNOWN, JobUID: UNKNOWN) due to "
        "prioritization in the ClusterQueue; preemptor path: /q; preemptee path: /q"
    )


def pool_of_four(*documents: dict[str, Any], **gates: bool) -> World:
    """Two queues without quota of their own, and a Cohort that lends four."""
    queues = [cluster_queue(name, group(f0=quota(0)), in_cohort="pool") for name in "ab"]
    return World({"featureGates": gates}).feed(cohort("pool", f0=quota(4)), *queues, *documents)


@pytest.mark.parametrize(
    ("is_on", "want_first", "want_later"),
    [
        pytest.param(True, "ns/high", "ns/old", id="the higher priority"),
        pytest.param(False, "ns/old", "ns/high", id="gate off: whoever waits longer"),
    ],
)
def test_who_goes_first_in_a_cohort(is_on, want_first, want_later):
    world = pool_of_four(
        workload("old", "a", gpus=4),
        workload("high", "b", gpus=4, priority=5, age=9),
        PrioritySortingWithinCohort=is_on,
    )
    result = world.cycle()
    assert [item.key for item in result.admitted] == [want_first]
    assert [(item.key, item.reason, item.message) for item in result.pending] == [
        (want_later, "WaitingForQuota", NO_LONGER)
    ]


@pytest.mark.parametrize(
    ("changes", "want_first"),
    [
        pytest.param({"age": 9}, "ns/first", id="whoever waits longer"),
        pytest.param({}, "ns/first", id="the smaller UID"),
        pytest.param({"priority": 1, "age": 9}, "ns/second", id="the higher priority"),
    ],
)
def test_equals_of_a_cohort_have_an_order(changes, want_first):
    world = pool_of_four(workload("second", "b", gpus=4, **changes), workload("first", "a", gpus=4))
    assert [item.key for item in world.cycle().admitted] == [want_first]


def test_who_does_not_borrow_goes_before_a_higher_priority():
    world = World().feed(
        cluster_queue("a", group(f0=quota(4)), in_cohort="pool"),
        cluster_queue("b", group(f0=quota(0)), in_cohort="pool"),
        workload("own", "a", gpus=4, age=9),
        workload("borrowing", "b", gpus=4, priority=5),
    )
    assert [item.key for item in world.cycle().admitted] == ["ns/own"]


@pytest.mark.parametrize(
    ("reclaim", "nics", "want_admitted"),
    [
        pytest.param("Never", 2, ["ns/small"], id="what is left beside it"),
        pytest.param("Never", 3, [], id="not what it will need"),
        pytest.param("Any", 3, ["ns/small"], id="what it could reclaim is kept from nobody"),
    ],
)
def test_room_of_one_that_waits_is_kept_from_later_ones(reclaim, nics, want_admitted):
    """a lacks GPUs that b has borrowed, and keeps its four cards of the network meanwhile."""

    def own(gpus: int, cards: int) -> dict[str, Any]:
        return group(f0=[quota(gpus), quota(cards, resource=NIC)])

    rules = preemption("Never", reclaim)
    world = World().feed(
        cluster_queue("a", own(4, 4), in_cohort="pool", preemption=rules),
        cluster_queue("b", own(4, 4), in_cohort="pool", stopPolicy="Hold"),
        cluster_queue("c", own(0, 0), in_cohort="pool"),
        reserved(workload("big", "b", pod_set({GPU: 8, NIC: 2}), priority=9), "b"),
        workload("w", "a", pod_set({GPU: 4, NIC: 4})),
        workload("small", "c", pod_set({NIC: nics}), age=9),
    )
    result = world.cycle()
    assert [item.key for item in result.admitted] == want_admitted


@pytest.mark.parametrize(
    ("limit", "want_admitted"),
    [
        pytest.param(None, [], id="all that it asks for"),
        pytest.param(1, ["ns/small"], id="no more than it may borrow"),
    ],
)
def test_borrower_keeps_what_it_may_borrow(limit, want_admitted):
    """a holds two cards of the network and asks for four more, and for a GPU that b has."""
    cards = quota(4, limit, resource=NIC)
    rules = preemption("Never", "LowerPriority", policy="LowerPriority")
    world = World().feed(
        cluster_queue("a", group(f0=[quota(0), cards]), in_cohort="pool", preemption=rules),
        cluster_queue("b", group(f0=[quota(4), quota(4, resource=NIC)]), in_cohort="pool"),
        cluster_queue("c", group(f0=[quota(0), quota(0, resource=NIC)]), in_cohort="pool"),
        reserved(workload("cards", "a", pod_set({NIC: 2}), priority=9), "a"),
        reserved(workload("gpus", "b", pod_set({GPU: 4}), priority=9), "b"),
        workload("w", "a", pod_set({GPU: 1, NIC: 4})),
        workload("small", "c", pod_set({NIC: 3}), age=9),
    )
    assert [item.key for item in world.cycle().admitted] == want_admitted


def test_pod_set_that_asks_for_nothing_holds_nothing():
    world = World().feed(
        cluster_queue("q", group(f0=quota(4))),
        workload("w", "q", pod_set({}, name="idle"), pod_set({GPU: 1}, count=2)),
    )
    [found] = world.cycle().admitted
    assert found.admission["podSetAssignments"] == [
        {"name": "idle", "count": 1},
        {"name": "main", "flavors": {GPU: "f0"}, "resourceUsage": {GPU: "2"}, "count": 2},
    ]
    held = world.engine.state.workloads["ns/w"].reservation
    assert held is not None
    assert held.pod_sets == (
        PodSetHold("idle", {}, {}, 1),
        PodSetHold("main", {GPU: "f0"}, {GPU: 2}, 2),
    )


def test_usage_of_new_pods_is_that_of_whole_ones():
    held = PodSetHold("main", {GPU: "f0"}, {GPU: 2}, 1)
    item = PodSetAssignment("main", 3, {GPU: 7}, held, {GPU: FlavorChoice("f0", FlavorMode.FIT, 0)})
    assert (item.beyond_held(GPU), item.of_more_pods(GPU)) == (5, 4)
    assert (item.beyond_held("cpu"), item.of_more_pods("cpu")) == (0, 0)
    alone = PodSetAssignment("main", 3, {GPU: 7})
    assert (alone.beyond_held(GPU), alone.of_more_pods(GPU)) == (7, 7)


def test_what_is_released_waits_until_its_time():
    document = reserved(workload("w", "q", gpus=4), "q")
    document["status"]["requeueState"] = {"requeueAt": "2026-01-01T01:00:30Z"}
    world = World().feed(cluster_queue("q", group(f0=quota(4))), document)
    world.engine.release_evicted("ns/w", now=world.now)
    assert world.cycle().heads == 0
    world.now = START + timedelta(hours=1, seconds=30)
    world.engine.wake("q")
    assert [item.key for item in world.cycle().admitted] == ["ns/w"]


def test_what_is_kept_from_its_queue_is_not_looked_at():
    document = workload("w", "q")
    document["status"] = {"conditions": [{"type": "Requeued", "status": "False"}]}
    world = World().feed(cluster_queue("q", group(f0=quota(4))), document)
    assert world.cycle().heads == 0
    document["status"]["conditions"][0]["status"] = "True"
    assert [item.key for item in world.feed(document).cycle().admitted] == ["ns/w"]


def test_overhead_of_a_runtime_class_counts_once_it_is_known():
    world = World().feed(
        cluster_queue("q", group(f0=quota(4, resource="cpu"))),
        workload("w", "q", pod_set({"cpu": 1}, runtimeClassName="kata")),
        {
            "kind": "RuntimeClass",
            "metadata": {"name": "kata"},
            "overhead": {"podFixed": {"cpu": "500m"}},
        },
        {"kind": "RuntimeClass", "metadata": {"name": "plain"}},
    )
    [found] = world.cycle().admitted
    assert found.admission["podSetAssignments"][0]["resourceUsage"] == {"cpu": "1500m"}


@pytest.mark.parametrize(
    ("states", "delayed", "changes", "want"),
    [
        pytest.param(["Ready"], "Pending", {}, True, id="its nodes are made"),
        pytest.param(["Ready", "Ready"], "Pending", {}, True, id="all checks are ready"),
        pytest.param(["Ready", "Pending"], "Pending", {}, False, id="a check is not"),
        pytest.param([], "Pending", {}, False, id="no check"),
        pytest.param(["Ready"], "", {}, False, id="it waits for no domains"),
        pytest.param(["Ready"], "Pending", {"is_admitted": True}, False, id="it runs"),
        pytest.param(["Ready"], "Pending", {"ended": "Finished"}, False, id="finished"),
        pytest.param(["Ready"], "Pending", {"ended": "Evicted"}, False, id="evicted"),
        pytest.param(["Ready"], "Pending", {"waits": True}, False, id="without quota"),
    ],
)
def test_who_needs_a_second_pass(states, delayed, changes, want):
    ended = changes.get("ended")
    conditions = ({"type": ended, "status": "True"},) if ended else ()
    document = reserved(
        workload("w", "q"),
        "q",
        is_admitted=changes.get("is_admitted", False),
        conditions=conditions,
    )
    status = document["status"]
    status["admissionChecks"] = [
        {"name": f"c{index}", "state": state} for index, state in enumerate(states)
    ]
    status["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] = delayed
    if changes.get("waits"):
        del status["admission"]
    around = PodSurroundings(Configuration())
    found = WorkloadParser(Configuration()).parse(document, surroundings=around)
    assert needs_second_pass(found) is want


def test_workload_passed_over_for_an_equal_one_says_so_until_it_is_looked_at():
    passed_over = "Bypassed scheduling evaluation because an equivalent workload recently failed"
    world = World().feed(
        cluster_queue(
            "q",
            group(f0=quota(4)),
        ),
        workload("first", "q", gpus=4),
    )
    world.run()
    world.feed(workload("second", "q", gpus=4, age=1))
    world.run()
    world.feed(workload("third", "q", gpus=4, age=2))
    lacking = f"insufficient unused quota for {GPU} in flavor f0, 4 more needed"
    assert world.message("second") == f"couldn't assign flavors to pod set main: {lacking}"
    assert world.message("third") == passed_over
    world.engine.wake("q")
    world.run()
    assert world.message("second") == f"couldn't assign flavors to pod set main: {lacking}"


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_who_is_in_no_welcome_namespace_is_looked_at_once(strategy):
    selector = {"matchLabels": {"team": "a"}}
    world = World().feed(
        cluster_queue(
            "q", group(f0=quota(4)), namespaceSelector=selector, queueingStrategy=strategy
        ),
        workload("w", "q"),
    )
    text = "workload namespace doesn't match ClusterQueue selector"
    assert world.cycle().pending == (Pending("ns/w", "Misconfigured", text, "q", True),)
    assert world.cycle().heads == 0


def test_what_is_preempted_in_its_own_queue_under_fair_sharing_says_so():
    world = World({"fairSharing": {}}).feed(
        cluster_queue(
            "a", group(f0=quota(4)), in_cohort="pool", preemption=preemption("LowerPriority")
        ),
        reserved(workload("old", "a", gpus=4), "a"),
        workload("w", "a", gpus=4, priority=1),
    )
    found = [(item.key, item.reason) for item in world.cycle().preempted]
    assert found == [("ns/old", "InClusterQueue")]
