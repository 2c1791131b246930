"""A Workload read whole, and what its value answers: holdings, order, waiting, lost nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.kueue.amounts import UNLIMITED, FlavorResource
from clusters.kueue.configuration import Configuration, Gates
from clusters.kueue.workload.matching import Expression, NodeRules, NodeTerm, Toleration
from clusters.kueue.workload.parser import SHAPE_MOST, WorkloadParser
from clusters.kueue.workload.placement import PlacedPods, Placement
from clusters.kueue.workload.requests import LimitRules, PodRequests, PodSurroundings
from clusters.kueue.workload.topology_request import (
    NO_REQUEST,
    SliceLayer,
    TopologyRequest,
    parse_topology_request,
)
from clusters.kueue.workload.workloads import (
    UNKNOWN_TIME,
    PodAdditions,
    PodSet,
    PodSetHold,
    PodShape,
    Reservation,
    Workload,
    scaled,
)
from tests.kueue.builders import GPU, START, pod_set, workload

PLAIN = PodSurroundings(Configuration())
BLOCK, RACK, HOST = "block", "rack", "kubernetes.io/hostname"


def read(document: dict[str, Any], configuration: Configuration | None = None) -> Workload:
    return WorkloadParser(configuration or Configuration()).parse(document, surroundings=PLAIN)


def at(seconds: int) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def true(kind: str, seconds: int | None = None, reason: str = "R") -> dict[str, Any]:
    found = {"type": kind, "status": "True", "reason": reason}
    return found if seconds is None else {**found, "lastTransitionTime": at(seconds)}


WHOLE: dict[str, Any] = {
    "metadata": {
        "name": "w",
        "namespace": "team",
        "uid": "u1",
        "creationTimestamp": at(5),
        "labels": {"kueue.x-k8s.io/job-uid": "j1"},
        "annotations": {
            "kueue.x-k8s.io/workload-slice-replacement-for": "team/older",
            "kueue.x-k8s.io/admission-gated-by": "gate",
            "gpu-budget-portal.dev/refused": "too large",
            "kueue.x-k8s.io/elastic-job": "true",
        },
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j"}],
    },
    "spec": {
        "queueName": "lq",
        "priority": 7,
        "active": False,
        "podSets": [pod_set({GPU: 2}, name="worker", count=4, min_count=3)],
    },
    "status": {
        "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [
                {
                    "name": "worker",
                    "count": 4,
                    "flavors": {GPU: "f0"},
                    "resourceUsage": {GPU: 8, "cpu": "250m"},
                }
            ],
        },
        "admissionChecks": [
            {
                "name": "c",
                "state": "Ready",
                "podSetUpdates": [{"name": "worker", "nodeSelector": {"a": "1"}}],
            },
            {"name": "d"},
        ],
        "conditions": [
            true("QuotaReserved", 30),
            true("Admitted", 40),
            true("Evicted", 50),
            true("PodsReady", 60),
            true("Finished", 70),
            {"type": "Requeued", "status": "False"},
        ],
        "reclaimablePods": [{"name": "worker", "count": "1"}],
        "requeueState": {"requeueAt": at(90)},
        "unhealthyNodes": [{"name": "n1"}, {"name": "n2"}],
    },
}


def test_workload_is_read_whole():
    found = read(WHOLE)
    want = Workload(
        key="team/w",
        namespace="team",
        name="w",
        uid="u1",
        job_uid="j1",
        queue_name="lq",
        priority=7,
        created_at=START + timedelta(seconds=5),
        queued_at=START + timedelta(seconds=5),
        pod_sets=found.pod_sets,
        shape_hash=found.shape_hash,
        is_active=False,
        is_finished=True,
        is_evicted=True,
        is_pods_ready=True,
        is_requeue_blocked=True,
        requeue_at=START + timedelta(seconds=90),
        reclaimable={"worker": 1},
        reservation=Reservation(
            cluster_queue="cq",
            pod_sets=(PodSetHold("worker", {GPU: "f0"}, {GPU: 8, "cpu": 250}, 4),),
            reserved_at=START + timedelta(seconds=30),
            is_admitted=True,
        ),
        check_states={"c": "Ready", "d": "Pending"},
        gated_by="gate",
        refused="too large",
        replaces="team/older",
        unhealthy_nodes=("n1", "n2"),
        additions={"worker": PodAdditions({"a": "1"})},
        is_elastic=True,
        owner="batch/v1, Kind=Job",
    )
    assert found == want
    [item] = found.pod_sets
    assert (item.name, item.count, item.min_count) == ("worker", 4, 3)
    assert (found.local_queue, found.is_admitted) == ("team/lq", True)
    assert len(found.shape_hash) == 16


def test_workload_that_says_nothing_has_the_defaults():
    found = read({"metadata": {"name": "w"}})
    long_ago = datetime.min.replace(tzinfo=UTC)
    assert found == Workload(
        key="/w",
        namespace="",
        name="w",
        uid="",
        job_uid="",
        queue_name="",
        priority=0,
        created_at=long_ago,
        queued_at=long_ago,
        pod_sets=(),
        shape_hash=found.shape_hash,
    )
    empty = {"metadata": {"name": "w", "labels": None, "annotations": None}, "spec": {
        "queueName": None, "priority": None, "podSets": None}, "status": {
        "admission": None, "admissionChecks": None, "requeueState": None, "reclaimablePods": None,
        "unhealthyNodes": None}}  # fmt: skip
    assert read(empty) == found


@pytest.mark.parametrize(
    ("spec", "want"),
    [({}, True), ({"active": True}, True), ({"active": None}, True), ({"active": False}, False)],
)
def test_workload_is_active_unless_it_is_switched_off(spec, want):
    assert read({"metadata": {"name": "w"}, "spec": spec}).is_active is want


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        ([{"type": "Requeued", "status": "False"}], True),
        ([{"type": "Requeued", "status": "True"}], False),
        ([{"type": "Requeued"}], False),
        ([], False),
    ],
)
def test_only_a_false_condition_blocks_queueing(conditions, want):
    document = {"metadata": {"name": "w"}, "status": {"conditions": conditions}}
    assert read(document).is_requeue_blocked is want


def test_elastic_is_only_what_says_true():
    for text, want in (("true", True), ("false", False), ("", False)):
        metadata = {"name": "w", "annotations": {"kueue.x-k8s.io/elastic-job": text}}
        assert read({"metadata": metadata}).is_elastic is want


def evicted(reason: str, seconds: int | None = 60) -> dict[str, Any]:
    return true("Evicted", seconds, reason)


BY_CREATION = Configuration(requeues_by_eviction=False)
BY_EVICTION = Configuration(requeues_by_eviction=True)
UNSORTED = Configuration(
    requeues_by_eviction=True, gates=Gates(priority_sorting_within_cohort=False)
)
RECLAIMED = "InCohortReclaimWhileBorrowing"
CREATED = START + timedelta(seconds=5)


@pytest.mark.parametrize(
    ("configuration", "condition", "want"),
    [
        pytest.param(BY_EVICTION, evicted("PodsReadyTimeout"), 60.0, id="time-out, by eviction"),
        pytest.param(BY_CREATION, evicted("PodsReadyTimeout"), 5.0, id="time-out, by creation"),
        pytest.param(BY_CREATION, evicted("AdmissionCheck"), 60.0, id="by a check, ever"),
        pytest.param(BY_EVICTION, evicted("AdmissionCheck"), 60.0, id="by a check"),
        pytest.param(BY_EVICTION, evicted("Preempted"), 5.0, id="preempted"),
        pytest.param(BY_EVICTION, evicted("AdmissionCheck", None), 5.0, id="nobody knows when"),
        pytest.param(
            BY_EVICTION, {**evicted("AdmissionCheck"), "status": "False"}, 5.0, id="not any more"
        ),
        pytest.param(UNSORTED, true("Preempted", 60, RECLAIMED), 60.001, id="borrower, reclaimed"),
        pytest.param(UNSORTED, true("Preempted", None, RECLAIMED), 5.0, id="reclaimed some time"),
        pytest.param(UNSORTED, true("Preempted", 60, "InClusterQueue"), 5.0, id="in its queue"),
        pytest.param(
            UNSORTED, {**true("Preempted", 60, RECLAIMED), "status": "False"}, 5.0, id="once"
        ),
        pytest.param(BY_EVICTION, true("Preempted", 60, RECLAIMED), 5.0, id="with the gate"),
    ],
)
def test_time_that_decides_the_place_in_the_queue(configuration, condition, want):
    document = workload("w", "q", age=5)
    document["status"] = {"conditions": [condition]}
    found = read(document, configuration)
    assert found.created_at == CREATED
    assert (found.queued_at - START) / timedelta(seconds=1) == want


def test_done_pods_count_only_with_their_gate():
    document = workload("w", "q", pod_set({GPU: 1}, count=4))
    document["status"] = {"reclaimablePods": [{"name": "main", "count": 3}]}
    assert read(document).reclaimable == {"main": 3}
    without = Configuration(gates=Gates(reclaimable_pods=False))
    assert read(document, without).reclaimable == {}


def test_reservation_has_defaults_for_what_is_not_said():
    document = workload("w", "q")
    document["status"] = {
        "admission": {"clusterQueue": "q", "podSetAssignments": [{}]},
        "conditions": [true("QuotaReserved")],
    }
    assert read(document).reservation == Reservation(
        cluster_queue="q",
        pod_sets=(PodSetHold("main", {}, {}, 0, None, ""),),
        reserved_at=UNKNOWN_TIME,
        is_admitted=False,
    )
    del document["status"]["admission"]["podSetAssignments"]
    found = read(document)
    assert found.reservation == Reservation("q", (), UNKNOWN_TIME, False)
    assert not found.is_admitted
    document["status"]["conditions"] = []
    assert read(document).reservation is None


def test_shape_keeps_only_what_decisions_read():
    container = {
        "name": "c",
        "image": "i",
        "command": ["x"],
        "env": [],
        "resources": {"requests": {GPU: "1"}},
        "restartPolicy": "Always",
    }
    spec = {
        "affinity": {"nodeAffinity": {}},
        "nodeSelector": {"a": "1"},
        "overhead": {"cpu": "1"},
        "resources": {"requests": {"cpu": "2"}},
        "runtimeClassName": "kata",
        "tolerations": [{"operator": "Exists"}],
        "containers": [container, {"image": "only"}],
        "initContainers": [container],
        "volumes": [{"name": "v"}],
        "restartPolicy": "Never",
    }
    kept = {name: spec[name] for name in spec if name not in ("volumes", "restartPolicy")}
    short = {name: container[name] for name in ("name", "resources", "restartPolicy")}
    kept |= {"containers": [short, {}], "initContainers": [short]}
    asked = {"required": RACK}
    document = workload("w", "q", {"template": {"spec": spec}, "topologyRequest": asked})
    [found] = read(document).pod_sets
    want = {"spec": kept, "topologyRequest": asked}
    assert found.shape.source == json.dumps(want, sort_keys=True, separators=(",", ":"))
    assert found.shape.topology == TopologyRequest(required=RACK, is_explicit=True)
    [bare] = read(workload("w", "q", {"template": None, "topologyRequest": None})).pod_sets
    assert bare.shape.source == '{"spec":{},"topologyRequest":{}}'
    assert (bare.shape.topology, bare.shape.rules) == (NO_REQUEST, NodeRules())
    assert bare.shape.requests == PodRequests({})


def test_shape_has_requests_rules_and_topology_of_its_pods():
    selector = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [selector]}]}
    document = workload(
        "w",
        "q",
        pod_set(
            {GPU: 2, "cpu": 1},
            nodeSelector={"pool": "x"},
            tolerations=[{"key": "k", "operator": "Exists"}],
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        ),
    )
    document["spec"]["podSets"][0]["topologyRequest"] = {"preferred": BLOCK}
    [item] = read(document).pod_sets
    assert item.shape.requests == PodRequests({GPU: 2, "cpu": 1000}, of_pod={GPU: 2, "cpu": 1000})
    assert item.shape.rules == NodeRules(
        node_selector=(("pool", "x"),),
        affinity_terms=(NodeTerm((Expression("zone", "In", ("a",)),)),),
        tolerations=(Toleration("k", "Exists"),),
    )
    assert item.shape.topology == TopologyRequest(preferred=BLOCK, is_explicit=True)


def test_shape_may_be_so_large_and_no_larger():
    def document(size: int) -> dict[str, Any]:
        return workload(
            "w", "q", pod_set({GPU: 1}), pod_set({GPU: 1}, nodeSelector={"a": "x" * size})
        )

    rest = len(read(document(10)).pod_sets[1].shape.source) - 10
    assert SHAPE_MOST == 32_768
    assert len(read(document(SHAPE_MOST - rest)).pod_sets[1].shape.source) == SHAPE_MOST
    with pytest.raises(ValueError) as caught:
        read(document(SHAPE_MOST - rest + 1))
    assert str(caught.value) == (
        "spec.podSets[1].template: requests, tolerations and affinity have 32,769 characters, and "
        "32,768 are read at most"
    )


BASE = pod_set({GPU: 1}, count=2)


@pytest.mark.parametrize(
    ("other", "is_alike"),
    [
        pytest.param({**BASE, "name": "else"}, False, id="another name"),
        pytest.param({**BASE, "count": 3}, False, id="more pods"),
        pytest.param({**BASE, "minCount": 1}, False, id="partly"),
        pytest.param(pod_set({GPU: 1, "cpu": 1}, count=2), False, id="another resource"),
        pytest.param(pod_set({GPU: 1}, count=2, nodeSelector={"a": "b"}), False, id="elsewhere"),
        pytest.param({**BASE, "topologyRequest": {"required": RACK}}, False, id="a topology"),
        pytest.param(pod_set({GPU: 1}, count=2, runtimeClassName="r"), True, id="what nobody asks"),
    ],
)
def test_shapes_are_told_apart_by_what_decisions_read(other, is_alike):
    first, second = read(workload("a", "q", BASE)), read(workload("b", "q", other))
    assert (first.shape_hash == second.shape_hash) is is_alike


def test_done_pods_make_another_shape_only_of_their_pod_set():
    def hashed(*done: tuple[str, int]) -> str:
        document = workload("w", "q", BASE, {**BASE, "name": "second"})
        document["status"] = {"reclaimablePods": [{"name": n, "count": c} for n, c in done]}
        return read(document).shape_hash

    hashes = [
        hashed(),
        hashed(("main", 1)),
        hashed(("second", 1)),
        hashed(("main", 1), ("second", 1)),
    ]
    assert len(set(hashes)) == 4
    assert hashed(("unknown", 1)) == hashed(("main", 0)) == hashes[0]


def test_shapes_are_shared_by_place_scope_and_content():
    parser = WorkloadParser(Configuration())
    document = workload("w", "q", BASE, {**BASE, "name": "second"})

    def shapes(around: PodSurroundings = PLAIN) -> list[PodShape]:
        return [item.shape for item in parser.parse(document, surroundings=around).pod_sets]

    first, second = shapes()
    assert first is not second
    assert shapes()[0] is first
    assert shapes()[1] is second
    scoped = shapes(PodSurroundings(Configuration(), scope="ns"))
    assert scoped[0] is not first
    parser.forget_shapes()
    again = shapes()
    assert again[0] is not first
    assert again[0].fingerprint == first.fingerprint


def test_workload_is_worked_out_again_in_other_surroundings():
    parser = WorkloadParser(Configuration())
    plain = pod_set({"cpu": 1}, name="plain")
    inside = pod_set({"cpu": 1}, name="inside", count=2, runtimeClassName="kata")
    document = workload("w", "q", plain, inside, priority=3)
    document["status"] = {"reclaimablePods": [{"name": "inside", "count": 1}]}
    before = parser.parse(document, surroundings=PLAIN)
    around = PodSurroundings(
        Configuration(),
        bounds={"Pod": LimitRules(highest={"cpu": "1"})},
        overheads={"kata": {"cpu": "500m"}},
        scope="ns",
    )
    after = parser.reshape(before, surroundings=around)
    assert [item.shape.requests.amounts for item in after.pod_sets] == [
        {"cpu": 1000},
        {"cpu": 1500},
    ]
    assert [item.shape.requests.range_problems for item in after.pod_sets] == [
        (),
        (
            'spec.podSets[1].template.spec: Invalid value: ["cpu"]: '
            "requests must not be above the limitRange max",
        ),
    ]
    direct = WorkloadParser(Configuration()).parse(document, surroundings=around)
    assert after.shape_hash == direct.shape_hash != before.shape_hash
    back = parser.reshape(after, surroundings=PLAIN)
    assert back == before


def bare(**changes: Any) -> Workload:
    """A workload value without a document; ``changes`` are its fields."""
    return Workload(
        **{
            "key": "ns/w",
            "namespace": "ns",
            "name": "w",
            "uid": "u",
            "job_uid": "",
            "queue_name": "q",
            "priority": 0,
            "created_at": START,
            "queued_at": START,
            "pod_sets": (),
            "shape_hash": "",
            **changes,
        }
    )


def pods(
    name: str,
    count: int,
    min_count: int | None = None,
    *,
    limits: tuple[str, ...] = (),
    ranges: tuple[str, ...] = (),
    **amounts: int,
) -> PodSet:
    shape = PodShape("", "", PodRequests(amounts, limits, ranges), NodeRules())
    return PodSet(name, count, min_count, shape)


def hold(name: str, count: int, **amounts: int) -> PodSetHold:
    return PodSetHold(name, dict.fromkeys(amounts, f"of-{name}"), amounts, count)


def reservation(*holds: PodSetHold) -> Reservation:
    return Reservation("q", holds, START, True)


def test_what_is_asked_for_is_that_of_pods_that_are_not_done():
    found = bare(
        pod_sets=(pods("a", 4, gpu=2, cpu=500), pods("b", 2, cpu=1000), pods("c", 1, cpu=1)),
        reclaimable={"a": 1, "c": 9, "unknown": 5},
    )
    assert [found.remaining_count(item) for item in found.pod_sets] == [3, 2, 0]
    assert found.total_requests() == {"gpu": 6, "cpu": 3500}
    assert scaled({"a": 3, "b": UNLIMITED}, 2) == {"a": 6, "b": UNLIMITED}


def test_order_is_by_priority_then_time_then_uid():
    later = START + timedelta(seconds=1)
    rows = [
        bare(priority=2, queued_at=later, uid="b"),
        bare(priority=1, queued_at=START, uid="b"),
        bare(priority=1, queued_at=later, uid="a"),
        bare(priority=1, queued_at=later, uid="b"),
        bare(priority=-1, queued_at=START, uid="a"),
    ]
    assert sorted({row.order: row for row in rows}) == [row.order for row in rows]
    assert rows[0].order == (-2, later, "b")


@pytest.mark.parametrize(
    ("states", "want"),
    [
        ({}, False),
        ({"a": "Ready", "b": "Pending"}, False),
        ({"a": "Ready", "b": "Retry"}, True),
        ({"a": "Rejected"}, True),
    ],
)
def test_checks_that_are_tried_again(states, want):
    assert bare(check_states=states).is_retrying_checks is want


PLACED = Placement((RACK, HOST), (PlacedPods(("r1", "n1"), 1), PlacedPods(("n9", "n2"), 1)))


def test_placement_that_follows_later_is_waited_for():
    late = replace(hold("a", 1), delayed="Pending")
    assert bare(reservation=reservation(hold("b", 1), late)).is_placement_delayed
    assert not bare(reservation=reservation(replace(late, placement=PLACED))).is_placement_delayed
    assert not bare(reservation=reservation(replace(late, delayed="Ready"))).is_placement_delayed
    assert not bare(reservation=reservation(hold("a", 1))).is_placement_delayed
    assert not bare().is_placement_delayed


def test_node_is_lost_only_where_pods_were_placed_on_it():
    placed = reservation(hold("a", 1), replace(hold("b", 2), placement=PLACED))
    for nodes, want in (
        (("n1",), True),
        (("x", "n2"), True),
        (("n9",), False),
        (("r1",), False),
        ((), False),
    ):
        assert bare(unhealthy_nodes=nodes, reservation=placed).has_lost_node is want
    assert not bare(unhealthy_nodes=("n1",), reservation=reservation(hold("a", 1))).has_lost_node
    assert not bare(unhealthy_nodes=("n1",)).has_lost_node


def test_backoff_ends_at_its_second_and_never_while_it_is_blocked():
    second = timedelta(seconds=1)
    assert bare().is_backoff_over(START)
    assert bare(requeue_at=START).is_backoff_over(START)
    assert bare(requeue_at=START - second).is_backoff_over(START)
    assert not bare(requeue_at=START + second).is_backoff_over(START)
    assert not bare(is_requeue_blocked=True).is_backoff_over(START)
    assert not bare(is_requeue_blocked=True, requeue_at=START).is_backoff_over(START)


def test_holdings_shrink_with_pods_that_are_done():
    whole, partly, admitted_with_fewer, gone = (
        replace(hold("a", 3, gpu=6, cpu=9), placement=PLACED, delayed="x"),
        replace(hold("b", 4, gpu=8, cpu=6), placement=PLACED),
        hold("c", 2, gpu=2),
        hold("d", 5, gpu=5),
    )
    found = bare(
        pod_sets=(
            pods("a", 3, gpu=2),
            pods("b", 4, gpu=2),
            pods("c", 6, gpu=1),
            pods("e", 1, gpu=1),
        ),
        reclaimable={"b": 1, "c": 3},
        reservation=reservation(whole, partly, admitted_with_fewer, gone),
    )
    flavors = {"gpu": "of-b", "cpu": "of-b"}
    assert found.held() == (
        whole,
        PodSetHold("b", flavors, {"gpu": 6, "cpu": 3}, 3),
        admitted_with_fewer,
        PodSetHold("d", {"gpu": "of-d"}, {"gpu": 0}, 0),
    )
    assert found.usage() == {
        FlavorResource("of-a", "gpu"): 6,
        FlavorResource("of-a", "cpu"): 9,
        FlavorResource("of-b", "gpu"): 6,
        FlavorResource("of-b", "cpu"): 3,
        FlavorResource("of-c", "gpu"): 2,
        FlavorResource("of-d", "gpu"): 0,
    }
    assert bare(pod_sets=found.pod_sets).held() == ()
    assert bare(pod_sets=found.pod_sets).usage() == {}


def test_usage_of_one_flavor_adds_up_over_pod_sets():
    first = PodSetHold("a", {"gpu": "f", "cpu": "f"}, {"gpu": 1}, 1)
    second = PodSetHold("b", {"gpu": "f"}, {"gpu": 2}, 1)
    found = bare(pod_sets=(pods("a", 1), pods("b", 1)), reservation=reservation(first, second))
    assert found.usage() == {FlavorResource("f", "gpu"): 3, FlavorResource("f", "cpu"): 0}


@pytest.mark.parametrize(
    ("first", "second", "want"),
    [
        pytest.param({}, {}, "", id="nothing"),
        pytest.param(
            {"limits": ("l1",)}, {}, "resources validation failed: l1", id="one over its limit"
        ),
        pytest.param(
            {"limits": ("l1",), "ranges": ("r1",)},
            {"limits": ("l2", "l3"), "ranges": ("r2",)},
            "resources validation failed: [l1, l2, l3]",
            id="limits come first",
        ),
        pytest.param(
            {},
            {"ranges": ("r2",)},
            "resources didn't satisfy LimitRange constraints: r2",
            id="one out of range",
        ),
        pytest.param(
            {"ranges": ("r1",)},
            {"ranges": ("r2",)},
            "resources didn't satisfy LimitRange constraints: [r1, r2]",
            id="several out of range",
        ),
    ],
)
def test_problems_of_all_pod_sets_are_told_together(first, second, want):
    found = bare(pod_sets=(pods("a", 1, **first), pods("b", 1, **second)))
    assert found.resource_problem() == want


@pytest.mark.parametrize(
    ("least", "want"),
    [((None, None), False), ((3, None), False), ((None, 2), True), ((3, 3), False)],
)
def test_workload_may_be_partial_where_fewer_pods_do(least, want):
    sets = tuple(pods(name, 3, fewest) for name, fewest in zip("ab", least, strict=True))
    assert bare(pod_sets=sets).may_be_partial() is want


LEVELS = (BLOCK, RACK, HOST)


@pytest.mark.parametrize(
    ("section", "want", "want_level", "want_slice_level"),
    [
        pytest.param({}, NO_REQUEST, None, HOST, id="nothing"),
        pytest.param(
            {"required": RACK},
            TopologyRequest(required=RACK, is_explicit=True),
            RACK,
            HOST,
            id="required",
        ),
        pytest.param(
            {"preferred": BLOCK},
            TopologyRequest(preferred=BLOCK, is_explicit=True),
            BLOCK,
            HOST,
            id="preferred",
        ),
        pytest.param(
            {"unconstrained": True},
            TopologyRequest(unconstrained=True, is_explicit=True),
            HOST,
            HOST,
            id="anywhere",
        ),
        pytest.param(
            {"unconstrained": False},
            TopologyRequest(unconstrained=False, is_explicit=True),
            None,
            HOST,
            id="not anywhere",
        ),
        pytest.param(
            {"podSetSliceSize": 2}, TopologyRequest(is_explicit=True), None, HOST, id="a size alone"
        ),
        pytest.param(
            {"podSetGroupName": "g"}, TopologyRequest(group="g"), None, HOST, id="a group alone"
        ),
        pytest.param(
            {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": "4"},
            TopologyRequest(layers=(SliceLayer(RACK, 4),), is_explicit=True),
            BLOCK,
            RACK,
            id="slices alone",
        ),
        pytest.param(
            {"podSetSliceRequiredTopology": RACK, "required": RACK},
            TopologyRequest(required=RACK, layers=(SliceLayer(RACK, 0),), is_explicit=True),
            RACK,
            RACK,
            id="slices without a size within a level",
        ),
        pytest.param(
            {
                "podsetSliceRequiredTopologyConstraints": [
                    {"topology": BLOCK, "size": 8},
                    {"topology": RACK},
                ],
                "podSetSliceRequiredTopology": HOST,
                "preferred": RACK,
            },
            TopologyRequest(
                preferred=RACK,
                layers=(SliceLayer(BLOCK, 8), SliceLayer(RACK, 0)),
                is_explicit=True,
            ),
            RACK,
            BLOCK,
            id="the list of slices wins",
        ),
    ],
)
def test_topology_request_is_read_whole(section, want, want_level, want_slice_level):
    found = parse_topology_request(section)
    assert found == want
    assert found.level(LEVELS) == want_level
    assert found.slice_level(LEVELS) == want_slice_level
    assert found.slice_size == (found.layers[0].size if found.layers else 1)


@pytest.mark.parametrize(
    ("request_", "is_slice_only", "is_within"),
    [
        (TopologyRequest(required=RACK), False, True),
        (TopologyRequest(required="zone"), False, False),
        (TopologyRequest(required=RACK, layers=(SliceLayer(HOST, 2),)), False, True),
        (TopologyRequest(preferred=RACK, layers=(SliceLayer(HOST, 2),)), False, True),
        (TopologyRequest(required=RACK, layers=(SliceLayer("zone", 2),)), False, False),
        (TopologyRequest(layers=(SliceLayer(RACK, 2), SliceLayer(HOST, 1))), True, True),
        (TopologyRequest(layers=(SliceLayer(RACK, 2), SliceLayer("zone", 1))), True, False),
        (NO_REQUEST, False, False),
    ],
)
def test_topology_has_every_level_that_a_request_names(request_, is_slice_only, is_within):
    assert request_.is_slice_only is is_slice_only
    assert request_.is_within(LEVELS) is is_within
