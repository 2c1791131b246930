"""Who goes first in a cycle, step by step, and what a head that waits keeps from those behind."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.documents import labels
from clusters.kueue.amounts import UNLIMITED, FlavorResource
from clusters.kueue.cycle.decisions import CycleResult, Evict, Pending
from clusters.kueue.cycle.nomination import smallest_reduction
from clusters.kueue.cycle.scheduler import _reserved
from clusters.kueue.quota.resource_node import Quota, ResourceNode
from clusters.kueue.quota.specifications import ClusterQueueSpec
from clusters.kueue.quota.tree import ClusterQueueState
from clusters.kueue.workload.parser import WorkloadParser
from clusters.kueue.workload.requests import SurroundingsByNamespace
from clusters.kueue.workload.workloads import PodSetHold, Reservation
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

KEY = FlavorResource("f0", GPU)
FAIR: dict[str, Any] = {"fairSharing": {}}
WAITING_FOR_PODS = "waiting for all admitted workloads to be in PodsReady condition"


def queue(name: str, nominal: int = 0, **spec: Any) -> dict[str, Any]:
    spec.setdefault("in_cohort", "pool")
    return cluster_queue(name, group(f0=quota(nominal)), **spec)


def order(world: World) -> list[str]:
    """Names in the order in which one cycle admits them."""
    return [item.key.removeprefix("ns/") for item in world.cycle().admitted]


# By borrowing, priority and time


def test_heads_are_in_order_of_borrowing_then_priority_then_time_then_uid():
    world = World().feed(
        cohort("top", f0=quota(99)),
        cohort("pool", "top", f0=quota(9)),
        *(queue(name) for name in ("b1", "b2", "b3", "b4")),
        queue("own", 9),
        queue("far"),
        workload("far", "far", gpus=60, priority=99),
        workload("own", "own", gpus=1, age=99),
        workload("b1", "b1", gpus=1, age=5),
        workload("b2", "b2", gpus=1, age=4),
        workload("b3", "b3", gpus=1, age=9, priority=1),
        workload("b4", "b4", gpus=1, age=4),
    )
    assert order(world) == ["own", "b3", "b2", "b4", "b1", "far"]


def test_without_the_gate_time_goes_before_priority():
    gates = {"featureGates": {"PrioritySortingWithinCohort": False}}
    world = World(gates).feed(
        cohort("pool", f0=quota(9)),
        *(queue(name) for name in "abc"),
        workload("a", "a", age=3, priority=9),
        workload("b", "b", age=1),
        workload("c", "c", age=2, priority=5),
    )
    assert order(world) == ["b", "c", "a"]


@pytest.mark.parametrize("is_on", [True, False])
def test_head_that_no_longer_fits_comes_back_at_once(is_on):
    gates = {"featureGates": {"FlavorFungibilityPreserveScanProgress": is_on}}
    world = World(gates).feed(
        cohort("pool", f0=quota(4)),
        queue("a"),
        queue("b"),
        workload("first", "a", gpus=4),
        workload("second", "b", gpus=4, age=1),
    )
    assert order(world) == ["first"]
    second = world.engine.state.queues.queue("b")
    assert second is not None
    assert second.is_active("ns/second")


# By shares


def test_whoever_would_have_the_lowest_share_goes_first_and_is_weighed_again():
    world = World(FAIR).feed(
        cohort("pool", f0=quota(100)),
        queue("a", fairSharing={"weight": "2"}),
        queue("b"),
        queue("c"),
        workload("a", "a", gpus=30),
        workload("b", "b", gpus=20),
        workload("c", "c", gpus=10, age=50),
    )
    # Of 100 that are lent: 100 of c; 300 by weight 2, 150 of a; 200 of b.
    assert order(world) == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, ["a", "b"], id="the smaller UID"),
        pytest.param({"age": -5}, ["b", "a"], id="the older one"),
        pytest.param({"age": 9, "priority": 1}, ["b", "a"], id="the higher priority"),
        pytest.param({"gpus": 3, "age": -5, "priority": 9}, ["a", "b"], id="the lower share"),
    ],
)
def test_equal_shares_have_an_order(changes, want):
    world = World(FAIR).feed(
        cohort("pool", f0=quota(9)),
        queue("a"),
        queue("b"),
        workload("a", "a", gpus=2),
        workload("b", "b", **{"gpus": 2, **changes}),
    )
    assert order(world) == want


def test_tournament_is_held_in_each_cohort_from_below():
    """left's best one has the higher share, but left as a whole has the lower one."""
    world = World(FAIR).feed(
        cohort("pool", f0=quota(100)),
        cohort("left", "pool", f0=quota(40)),
        cohort("right", "pool"),
        queue("l1", in_cohort="left"),
        queue("l2", in_cohort="left"),
        queue("r1", in_cohort="right"),
        queue("r2", in_cohort="right"),
        queue("mid"),
        workload("l1", "l1", gpus=42),
        workload("l2", "l2", gpus=30, age=9),
        workload("r1", "r1", gpus=12),
        workload("r2", "r2", gpus=11, age=9),
        workload("mid", "mid", gpus=20),
    )
    # left: l2 is within its 40; r2 11, then mid 20 and right with r1 23; left with l1 as well 32.
    assert order(world) == ["l2", "r2", "mid", "r1", "l1"]


def test_queues_without_a_cohort_go_first_and_trees_in_order_of_names():
    world = World(FAIR).feed(
        cohort("y", f0=quota(9)),
        cohort("x", f0=quota(9)),
        queue("a", in_cohort="y"),
        queue("b", in_cohort="x"),
        queue("c", 9, in_cohort=""),
        workload("a", "a", priority=9),
        workload("b", "b"),
        workload("c", "c", age=9),
    )
    assert order(world) == ["c", "b", "a"]


# What is kept


@pytest.mark.parametrize(
    ("limit", "level", "used", "amount", "want"),
    [
        pytest.param(None, 0, 1, 3, 3, id="all that it asks for"),
        pytest.param(None, 0, 1, 9, 4, id="no more than its nominal quota leaves"),
        pytest.param(None, 0, 7, 9, 0, id="nothing where it borrows"),
        pytest.param(None, 1, 7, 9, 9, id="a borrower without a limit: all"),
        pytest.param(3, 1, 1, 9, 7, id="a borrower: what it may borrow"),
        pytest.param(3, 2, 1, 5, 5, id="a borrower: no more than it asks for"),
        pytest.param(3, 1, 9, 5, 0, id="a borrower at its limit"),
        pytest.param(3, 0, 1, 9, 4, id="its own quota, though it may borrow"),
        pytest.param(UNLIMITED, 1, 1, 9, 9, id="a borrower that may have everything"),
    ],
)
def test_room_that_one_keeps_that_waits(limit, level, used, amount, want):
    spec = ClusterQueueSpec("q", quotas={KEY: Quota(5, limit)})
    state = ClusterQueueState(spec, ResourceNode("q", usage={KEY: used} if used else {}))
    assert _reserved(state, KEY, amount, level=level) == want


def test_room_of_one_that_uses_nothing_yet_is_its_nominal_quota():
    state = ClusterQueueState(ClusterQueueSpec("q", quotas={KEY: Quota(5)}), ResourceNode("q"))
    assert _reserved(state, KEY, 9, level=0) == 5


def test_cycle_leaves_nothing_behind_but_what_it_admitted():
    world = World().feed(
        queue("a", 4, preemption=preemption("LowerPriority")),
        queue("b", 4, preemption=preemption("Never", "LowerPriority")),
        queue("c", 0),
        reserved(workload("old", "a", gpus=6), "a"),
        reserved(workload("top", "b", gpus=2, priority=99), "b"),
        workload("first", "a", gpus=4, priority=5),
        workload("second", "b", gpus=7, priority=1),
        workload("third", "c", gpus=1, age=9),
    )
    before = world.usage()
    result = world.cycle()
    assert (result.admitted, world.usage()) == ((), before)
    assert [item.key for item in result.preempted] == ["ns/old"]
    assert [(item.key, item.reason) for item in result.pending] == [
        ("ns/first", "WaitingForPreemptedWorkloads"),
        ("ns/second", "WaitingForQuota"),
        ("ns/third", "WaitingForQuota"),
    ]


def test_one_workload_at_a_time_starts_where_pods_must_be_ready_first():
    world = World({"waitForPodsReady": {"blockAdmission": True}}).feed(
        cluster_queue("a", group(f0=quota(4))),
        cluster_queue("b", group(f0=quota(4))),
        workload("first", "a"),
        workload("second", "b", age=1),
    )
    assert world.cycle() == CycleResult(
        number=1,
        heads=2,
        admitted=world_admits("first", "a"),
        pending=(
            Pending("ns/second", "WaitingForPodsReady", WAITING_FOR_PODS, "b", has_changed=True),
        ),
        is_settled=False,
    )
    again = world.cycle()
    assert again.pending == (
        Pending("ns/second", "WaitingForPodsReady", WAITING_FOR_PODS, "b", has_changed=False),
    )
    assert (again.number, again.heads, again.is_settled) == (2, 1, True)


def world_admits(name: str, queue_name: str) -> tuple[Any, ...]:
    """What a cycle says of one admitted workload in a world of its own."""
    alone = World().feed(cluster_queue(queue_name, group(f0=quota(4))), workload(name, queue_name))
    return alone.cycle().admitted


def test_reservation_of_what_is_admitted_is_noted_whole():
    document = workload("w", "q", pod_set({GPU: 3, "cpu": 1}, count=2), pod_set({}, name="idle"))
    document["status"] = {
        "conditions": [{"type": "Evicted", "status": "True", "reason": "Preempted"}],
        "unhealthyNodes": [{"name": "n"}],
    }
    cores = quota(9, resource="cpu")
    world = World().feed(cluster_queue("q", group(f0=[quota(9), cores])), document)
    assert order(world) == ["w"]
    found = world.engine.state.workloads["ns/w"]
    assert found.reservation == Reservation(
        cluster_queue="q",
        pod_sets=(
            PodSetHold("main", {GPU: "f0", "cpu": "f0"}, {GPU: 6, "cpu": 2000}, 2),
            PodSetHold("idle", {}, {}, 1),
        ),
        reserved_at=world.now,
        is_admitted=True,
    )
    assert (found.is_evicted, found.unhealthy_nodes) == (False, ())
    holding = world.engine.state.snapshot.holding("ns/w")
    assert holding is not None
    assert (holding.workload, holding.is_evicted) == (found, False)
    assert world.usage()["q"] == {("f0", GPU): 6, ("f0", "cpu"): 2000}
    assert world.engine.state.queues.item("ns/w") is None


@pytest.mark.parametrize(
    ("states", "want"),
    [
        ({"c": "Ready", "d": "Ready"}, True),
        ({"c": "Ready", "d": "Pending"}, False),
        ({"d": "Ready"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_workload_is_admitted_at_once_where_all_its_checks_are_ready(states, want):
    rules = [{"name": name} for name in "dc"] + [{"name": "e", "onFlavors": ["f9"]}]
    document = workload("w", "q")
    document["status"] = {
        "admissionChecks": [{"name": name, "state": state} for name, state in states.items()]
    }
    active = {"conditions": [{"type": "Active", "status": "True"}]}
    checks = [
        {"kind": "AdmissionCheck", "metadata": {"name": name}, "status": active} for name in "cde"
    ]
    strategy = {"admissionChecks": rules}
    world = World(None, *checks).feed(
        cluster_queue("q", group(f0=quota(9)), admissionChecksStrategy=strategy), document
    )
    [found] = world.cycle().admitted
    assert (found.is_admitted, found.checks) == (want, ("c", "d"))
    reservation = world.engine.state.workloads["ns/w"].reservation
    assert reservation is not None
    assert reservation.is_admitted is want


# Fewer pods, older slices


def sliced(name: str, count: int, of: str = "", **extra: Any) -> dict[str, Any]:
    document = workload(name, "q", pod_set({GPU: 1}, count=count), **extra)
    document["metadata"]["annotations"] = {labels.ELASTIC: "true"}
    if of:
        document["metadata"]["annotations"][labels.SLICE_OF] = of
    return document


def test_slice_that_finds_no_room_leaves_the_older_one_alone():
    world = World().feed(
        cluster_queue("q", group(f0=quota(4))),
        reserved(sliced("old", 3), "q"),
        sliced("new", 6, of="ns/old"),
    )
    result = world.cycle()
    assert (result.admitted, result.replaced) == ((), ())
    [pending] = result.pending
    assert (pending.key, pending.reason) == ("ns/new", "WaitingForQuota")
    assert world.usage()["q"] == {("f0", GPU): 3}


@pytest.mark.parametrize(
    ("counts", "fewest", "most", "want"),
    [
        pytest.param([3, 5], [1, 1], 8, [3, 5], id="all"),
        # Of six pods that it can do without, two are of the first and four of the second.
        pytest.param([3, 5], [1, 1], 5, [2, 3], id="three less"),
        pytest.param([3, 5], [1, 1], 7, [3, 4], id="one less of the second, none of the first"),
        pytest.param([3, 5], [1, 1], 2, [1, 1], id="the fewest"),
        pytest.param([3, 5], [1, 1], 1, None, id="fewer than the fewest"),
        pytest.param([3, 5], [None, 1], 5, [3, 2], id="only one of them takes fewer"),
        pytest.param([3, 5], [None, 1], 4, [3, 1], id="the fewest of that one"),
        pytest.param([4], [4], 4, [4], id="none takes fewer"),
    ],
)
def test_pods_are_given_up_in_proportion(counts, fewest, most, want):
    sets = [
        pod_set({GPU: 1}, name=f"p{index}", count=count, min_count=least)
        for index, (count, least) in enumerate(zip(counts, fewest, strict=True))
    ]
    engine = World().engine
    around = SurroundingsByNamespace(engine.configuration).of("ns")
    parser = WorkloadParser(engine.configuration)
    found = parser.parse(workload("w", "q", *sets), surroundings=around)

    def attempt(tried: Any) -> Any:
        return list(tried) if sum(tried) <= most else None

    if sum(count - (least or count) for count, least in zip(counts, fewest, strict=True)):
        assert smallest_reduction(found, attempt=attempt) == want


def test_workload_takes_fewer_pods_only_where_that_is_on_and_it_says_so():
    for gate, fewest, want in ((True, 1, 4), (False, 1, None), (True, None, None), (True, 5, None)):
        world = World({"featureGates": {"PartialAdmission": gate}}).feed(
            cluster_queue("q", group(f0=quota(4))),
            workload("w", "q", pod_set({GPU: 1}, count=6, min_count=fewest)),
        )
        admitted = world.admitted()
        counts = [item["podSetAssignments"][0]["count"] for item in admitted.values()]
        assert counts == ([want] if want else [])


# Flavors one after the other


@pytest.mark.parametrize(
    ("is_on", "want"),
    [
        pytest.param(True, ["f1", "f1"], id="the scan goes on"),
        pytest.param(False, ["f1", "f1"], id="gate off"),
    ],
)
def test_both_flavors_are_looked_at_and_the_first_with_room_is_taken(is_on, want):
    gates = {"featureGates": {"FlavorFungibilityPreserveScanProgress": is_on}}
    world = World(gates, flavor("f1")).feed(
        cluster_queue("q", group(f0=quota(1), f1=quota(4))),
        workload("w", "q", gpus=2),
        workload("v", "q", gpus=2, age=1),
    )
    found = world.admitted()
    flavors = [found[name]["podSetAssignments"][0]["flavors"][GPU] for name in "wv"]
    assert flavors == want


# Nodes that failed


def test_workload_that_nothing_replaces_a_node_for_is_told_which():
    host = "kubernetes.io/hostname"
    nodes = [
        {
            "kind": "Node",
            "metadata": {"name": name, "labels": {"pool": "a", host: name}},
            "status": {
                "allocatable": {GPU: "8", "pods": "9"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for name in ("n", "m")
    ]
    document = workload(
        "w", "q", {**pod_set({GPU: 8}, count=2), "topologyRequest": {"required": host}}
    )
    document["spec"]["podSets"][0]["topologyRequest"] = {"unconstrained": True}
    world = World().feed(
        {
            "kind": "Topology",
            "metadata": {"name": "topo"},
            "spec": {"levels": [{"nodeLabel": host}]},
        },
        flavor("f0", nodeLabels={"pool": "a"}, topologyName="topo"),
        cluster_queue("q", group(f0=quota(99))),
        *nodes,
        document,
    )
    [found] = world.cycle().admitted
    status = {
        "admission": found.admission,
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "lastTransitionTime": "2026-01-01T01:00:01Z",
            }
            for kind in ("QuotaReserved", "Admitted")
        ],
        "unhealthyNodes": [{"name": "n"}, {"name": "m"}],
    }
    for name in ("n", "m"):
        world.engine.delete("Node", key=name, now=world.now)
    world.feed({**document, "status": status})
    text = "Workload was evicted as there was no replacement for unhealthy node(s): n,m"
    assert world.cycle() == CycleResult(
        number=2, heads=1, evicted=(Evict("ns/w", "NodeFailures", text, "q"),), is_settled=False
    )
    assert world.engine.state.assumed_evicted == {"ns/w"}
    assert world.cycle() == CycleResult(number=2, heads=0)


def test_decisions_of_a_cycle_are_told_in_one_order():
    evict, pending = Evict("ns/w", "r", "m", "q"), Pending("ns/v", "r", "m", "q", True)
    result = CycleResult(number=1, heads=2, evicted=(evict,), pending=(pending,))
    assert (result.decisions, result.has_moved) == ((evict, pending), True)
    assert not CycleResult(number=1, heads=1, pending=(pending,)).has_moved
