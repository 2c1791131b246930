"""Where pods are placed: hand-made fleets, one rule each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusters.kueue.assignment.outcome import FlavorChoice, FlavorMode, PodSetAssignment
from clusters.kueue.assignment.topology import held_assignment
from clusters.kueue.configuration import Configuration
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.topology.places import held_uses
from clusters.kueue.topology.tree import PlacedUse
from clusters.kueue.workload.placement import (
    PlacedPods,
    Placement,
    parse_placement,
    placement_document,
)
from clusters.kueue.workload.workloads import PodSetHold
from tests.kueue.builders import (
    GPU,
    World,
    cluster_queue,
    flavor,
    group,
    pod_set,
    preemption,
    quota,
    workload,
)

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
TAINT = {"key": "broken", "effect": "NoSchedule"}


def node(name: str, rack: str, *, gpus: int = 8, pods: int = 110, **changes: Any) -> dict[str, Any]:
    """A node in a rack, named as ``block-rack``."""
    labels = {"pool": "a", BLOCK: rack.partition("-")[0], RACK: rack, HOST: name}
    ready = {"type": "Ready", "status": changes.pop("ready", "True")}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, **changes.pop("labels", {})}},
        "spec": changes,
        "status": {
            "allocatable": {GPU: str(gpus), "cpu": "64", "pods": str(pods)},
            "conditions": [ready],
        },
    }


def topology(*levels: str) -> dict[str, Any]:
    listed = [{"nodeLabel": level} for level in levels]
    return {"kind": "Topology", "metadata": {"name": "topo"}, "spec": {"levels": listed}}


def fleet(
    *nodes: dict[str, Any],
    levels: tuple[str, ...] = (BLOCK, RACK, HOST),
    configuration: dict[str, Any] | None = None,
    **spec: Any,
) -> World:
    return World(configuration).feed(
        topology(*levels),
        flavor("f0", nodeLabels={"pool": "a"}, topologyName="topo"),
        cluster_queue("q", group(f0=quota(1000)), **spec),
        *nodes,
    )


def racks(**racks_of: int) -> list[dict[str, Any]]:
    """Nodes of eight GPUs: ``b1_r1=2`` are two in rack r1 of block b1."""
    return [
        node(f"{name.replace('_', '-')}-n{index}", name.replace("_", "-"))
        for name, count in racks_of.items()
        for index in range(1, count + 1)
    ]


def asking(count: int, *, gpus: int = 8, name: str = "main", **request: Any) -> dict[str, Any]:
    extra = request.pop("pods", {})
    found = pod_set({GPU: gpus}, name=name, count=count, **extra)
    return found | ({"topologyRequest": request} if request else {})


def places(world: World, name: str = "w") -> dict[str, dict[str, int]]:
    """Pods by domain, by pod set, of what is admitted."""
    admission = world.admitted().get(name)
    assert admission is not None, world.message(name)
    found = {}
    for item in admission["podSetAssignments"]:
        placed = parse_placement(item.get("topologyAssignment"))
        assert placed is not None
        found[item["name"]] = {place.domain: place.count for place in placed.domains}
    return found


THREE_RACKS = racks(b1_r1=2, b1_r2=3, b2_r1=4)


@pytest.mark.parametrize(
    ("request_", "count", "want"),
    [
        pytest.param(
            {"required": RACK}, 2, {"b1-r1-n1": 1, "b1-r1-n2": 1}, id="the smallest rack that fits"
        ),
        pytest.param(
            {"required": BLOCK},
            4,
            {"b2-r1-n1": 1, "b2-r1-n2": 1, "b2-r1-n3": 1, "b2-r1-n4": 1},
            id="the smallest block that fits",
        ),
        pytest.param(
            {"preferred": RACK},
            5,
            {"b1-r1-n1": 1, "b1-r1-n2": 1, "b1-r2-n1": 1, "b1-r2-n2": 1, "b1-r2-n3": 1},
            id="a preferred rack is left for a block",
        ),
        pytest.param(
            {"preferred": RACK},
            9,
            {f"{item['metadata']['name']}": 1 for item in THREE_RACKS},
            id="a preferred rack is left for all blocks",
        ),
    ],
)
def test_pods_are_placed_at_the_level_they_ask_for(request_, count, want):
    world = fleet(*THREE_RACKS).feed(workload("w", "q", asking(count, **request_)))
    assert places(world) == {"main": want}


def test_what_asks_for_nothing_takes_the_fullest_node_in_a_queue_of_topologies():
    world = fleet(node("big", "b1-r1", gpus=8), node("small", "b1-r2", gpus=2))
    world.feed(workload("w", "q", asking(2, gpus=1)))
    assert places(world) == {"main": {"small": 2}}


def test_without_the_mixed_profile_it_takes_the_best_fit():
    gates = {"featureGates": {"TASProfileMixed": False}}
    world = fleet(*racks(b1_r1=1, b1_r2=2), configuration=gates)
    world.feed(workload("w", "q", asking(3, gpus=8, unconstrained=True)))
    assert places(world) == {"main": {"b1-r1-n1": 1, "b1-r2-n1": 1, "b1-r2-n2": 1}}


def test_leader_and_workers_share_a_rack():
    world = fleet(*racks(b1_r1=2, b1_r2=3)).feed(
        workload(
            "w",
            "q",
            asking(1, name="leader", required=RACK, podSetGroupName="all"),
            asking(2, name="workers", required=RACK, podSetGroupName="all"),
        )
    )
    assert places(world) == {
        "leader": {"b1-r2-n1": 1},
        "workers": {"b1-r2-n2": 1, "b1-r2-n3": 1},
    }


def test_pod_sets_without_a_group_are_placed_one_after_the_other():
    world = fleet(*racks(b1_r1=2, b1_r2=3)).feed(
        workload(
            "w",
            "q",
            asking(2, name="first", required=RACK),
            asking(3, name="second", required=RACK),
        )
    )
    assert places(world) == {
        "first": {"b1-r1-n1": 1, "b1-r1-n2": 1},
        "second": {"b1-r2-n1": 1, "b1-r2-n2": 1, "b1-r2-n3": 1},
    }


def test_leader_that_takes_no_quota_is_placed_beside_the_others():
    leader = pod_set({"cpu": 1}, name="leader") | {
        "topologyRequest": {"required": RACK, "podSetGroupName": "all"}
    }
    configuration = {"resources": {"excludeResourcePrefixes": ["cpu"]}}
    world = fleet(*racks(b1_r1=2, b1_r2=1), configuration=configuration).feed(
        workload("w", "q", leader, asking(2, name="workers", required=RACK, podSetGroupName="all"))
    )
    assert places(world) == {
        "leader": {"b1-r1-n1": 1},
        "workers": {"b1-r1-n1": 1, "b1-r1-n2": 1},
    }
    held = world.engine.state.workloads["ns/w"].reservation
    assert held is not None
    assert [dict(item.amounts) for item in held.pod_sets] == [{GPU: 0}, {GPU: 16}]
    assert world.usage()["q"] == {("f0", GPU): 16}


LAYERS = [{"topology": RACK, "size": 4}, {"topology": HOST, "size": 2}]


@pytest.mark.parametrize(
    ("request_", "count", "want"),
    [
        pytest.param(
            {"preferred": BLOCK},
            12,
            f"doesn't allow to fit; 1/3 slice(s) fit on level {RACK}; "
            f"3/6 slice(s) fit on level {HOST}",
            id="preferred",
        ),
        pytest.param(
            {"required": RACK},
            8,
            f"doesn't allow to fit; 1/2 slice(s) fit on level {RACK}; "
            f"2/4 slice(s) fit on level {HOST}",
            id="required",
        ),
    ],
)
def test_slices_that_do_not_fit_are_counted_by_layer(request_, count, want):
    nodes = [node(f"n{index}", f"b1-r{index % 2}", gpus=3) for index in range(3)]
    asked = asking(count, gpus=1, podsetSliceRequiredTopologyConstraints=LAYERS, **request_)
    world = fleet(*nodes).feed(workload("w", "q", asked))
    world.cycle()
    assert world.message("w") == f'couldn\'t assign flavors to pod set main: topology "topo" {want}'


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param(
            {"required": RACK}, "allows to fit only 3 out of 4 pod(s)", id="some of the pods"
        ),
        pytest.param(
            {"preferred": BLOCK}, "allows to fit only 3 out of 4 pod(s)", id="no more anywhere"
        ),
        pytest.param(
            {"required": BLOCK, "podSetSliceRequiredTopology": HOST, "podSetSliceSize": 4},
            "doesn't allow to fit any of 1 slice(s)",
            id="not a single slice",
        ),
    ],
)
def test_pods_that_do_not_fit_are_counted(request_, want):
    world = fleet(*racks(b1_r1=3)).feed(workload("w", "q", asking(4, **request_)))
    world.cycle()
    text = world.message("w")
    start = f'couldn\'t assign flavors to pod set main: topology "topo" {want}'
    assert text.startswith(start)
    assert text.removeprefix(start) in {"", f'. Total nodes: 3; excluded: resource "{GPU}": 3'}


def test_inner_slices_stay_on_their_nodes():
    nodes = [node(f"n{index}", f"b1-r{index % 2}", gpus=3) for index in range(4)]
    layers = [{"topology": RACK, "size": 4}, {"topology": HOST, "size": 2}]
    world = fleet(*nodes).feed(
        workload(
            "w",
            "q",
            asking(8, gpus=1, required=BLOCK, podsetSliceRequiredTopologyConstraints=layers),
        )
    )
    assert places(world) == {"main": {"n0": 2, "n1": 2, "n2": 2, "n3": 2}}


def test_slices_stay_within_their_racks():
    request = {"required": BLOCK, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2}
    world = fleet(*racks(b1_r1=3, b1_r2=3)).feed(workload("w", "q", asking(4, **request)))
    assert places(world) == {
        "main": {"b1-r1-n1": 1, "b1-r1-n2": 1, "b1-r2-n1": 1, "b1-r2-n2": 1},
    }


@pytest.mark.parametrize(
    ("is_balanced", "want"),
    [
        pytest.param(True, {"b1-r1-n1": 3, "b1-r1-n2": 3}, id="evenly"),
        pytest.param(False, {"b1-r1-n1": 4, "b1-r1-n2": 2}, id="as few nodes as possible"),
    ],
)
def test_balanced_placement_shares_evenly(is_balanced, want):
    gates = {"featureGates": {"TASBalancedPlacement": is_balanced}}
    world = fleet(*racks(b1_r1=2), configuration=gates)
    world.feed(workload("w", "q", asking(6, gpus=2, preferred=HOST)))
    assert places(world) == {"main": want}


def test_balanced_placement_takes_the_first_nodes_that_leave_nothing_over():
    gates = {"featureGates": {"TASBalancedPlacement": True}}
    nodes = [node(f"n{n}", "b1-r1", gpus=gpus) for n, gpus in enumerate((5, 5, 7, 6, 6), start=1)]
    world = fleet(*nodes, configuration=gates)
    world.feed(workload("w", "q", asking(17, gpus=1, preferred=HOST)))
    assert places(world) == {"main": {"n1": 5, "n2": 5, "n3": 7}}


@pytest.mark.parametrize(
    ("changes", "pods", "want"),
    [
        pytest.param({"taints": [TAINT]}, {}, 'taint "broken:NoSchedule": 1', id="a taint"),
        pytest.param({}, {"nodeSelector": {"zone": "x"}}, "nodeSelector: 1", id="a selector"),
        pytest.param(
            {},
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchFields": [
                                        {
                                            "key": "metadata.name",
                                            "operator": "In",
                                            "values": ["other"],
                                        }
                                    ]
                                }
                            ]
                        }
                    }
                }
            },
            "affinity: 1",
            id="an affinity to another name",
        ),
        pytest.param({"gpus": 4}, {}, f'resource "{GPU}": 1', id="too few GPUs"),
        pytest.param({"pods": 0}, {}, 'resource "pods": 1', id="no room for pods"),
    ],
)
def test_a_node_that_does_not_do_is_counted_with_its_reason(changes, pods, want):
    world = fleet(node("n", "b1-r1", **changes)).feed(
        workload("w", "q", asking(1, required=RACK, pods=pods))
    )
    assert world.admitted() == {}
    assert world.message("w") == (
        "couldn't assign flavors to pod set main: topology \"topo\" doesn't allow to fit any of "
        f"1 pod(s). Total nodes: 1; excluded: {want}"
    )


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"unschedulable": True}, id="cordoned"),
        pytest.param({"ready": "False"}, id="not ready"),
        pytest.param({"labels": {"pool": "b"}}, id="of another flavor"),
    ],
)
def test_a_node_that_comes_into_use_wakes_what_waits(changes):
    world = fleet(node("n", "b1-r1", **changes), node("tiny", "b1-r1", gpus=1))
    world.feed(workload("w", "q", asking(1, required=RACK)))
    assert world.admitted() == {}
    world.feed(node("n", "b1-r1"))
    assert places(world) == {"main": {"n": 1}}


def pod(name: str, *, gpus: int, phase: str = "Running", **annotations: str) -> dict[str, Any]:
    spec = pod_set({GPU: gpus})["template"]["spec"]
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "other", "annotations": annotations},
        "spec": {**spec, "nodeName": "n"},
        "status": {"phase": phase},
    }


def test_a_pod_outside_of_kueue_takes_room_until_it_ends():
    world = fleet(node("n", "b1-r1")).feed(
        pod("daemon", gpus=1), workload("w", "q", asking(1, required=RACK))
    )
    assert world.admitted() == {}
    world.feed(pod("daemon", gpus=1, phase="Succeeded"))
    assert places(world) == {"main": {"n": 1}}


def test_a_pod_that_was_placed_takes_no_room_twice():
    placed = pod("own", gpus=8, **{"kueue.x-k8s.io/podset-required-topology": RACK})
    world = fleet(node("n", "b1-r1")).feed(placed, workload("w", "q", asking(1, required=RACK)))
    assert places(world) == {"main": {"n": 1}}


def test_preemption_makes_room_although_quota_is_free():
    world = fleet(node("n", "b1-r1"), preemption=preemption("LowerPriority"))
    world.feed(workload("low", "q", asking(1, required=RACK)))
    assert places(world, "low") == {"main": {"n": 1}}
    world.feed(workload("w", "q", asking(1, required=RACK), priority=5))
    assert [item.key for item in world.cycle().preempted] == ["ns/low"]
    world.engine.release_evicted("ns/low", now=world.now)
    assert places(world) == {"main": {"n": 1}}


def test_flavors_over_the_same_nodes_see_each_other():
    world = fleet(node("n", "b1-r1")).feed(
        flavor("f1", nodeLabels={"pool": "a"}, topologyName="topo"),
        cluster_queue("other", group(f1=quota(1000))),
        workload("first", "other", asking(1, required=RACK)),
    )
    assert places(world, "first") == {"main": {"n": 1}}
    world.feed(workload("w", "q", asking(1, required=RACK)))
    assert world.admitted() == {}
    world.engine.delete("Workload", key="ns/first", now=world.now)
    world.engine.wake("q")
    assert places(world) == {"main": {"n": 1}}


def lost(world: World, document: dict[str, Any], *nodes: str) -> dict[str, Any]:
    """The workload as it is admitted, with nodes that failed."""
    admission = world.admitted()[document["metadata"]["name"]]
    conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
    status = {
        "admission": admission,
        "conditions": conditions,
        "unhealthyNodes": [{"name": name} for name in nodes],
    }
    return {**document, "status": status}


def test_pods_of_a_failed_node_move_within_their_rack():
    document = workload("w", "q", asking(2, required=RACK))
    world = fleet(*racks(b1_r1=2, b1_r2=1)).feed(document)
    failed = lost(world, document, "b1-r1-n1")
    world.engine.delete("Node", key="b1-r1-n1", now=world.now)
    world.feed(node("b1-r1-n3", "b1-r1"), failed)
    assert places(world) == {"main": {"b1-r1-n2": 1, "b1-r1-n3": 1}}


def test_a_workload_that_nothing_replaces_a_node_for_is_evicted():
    document = workload("w", "q", asking(2, required=RACK))
    world = fleet(*racks(b1_r1=2, b1_r2=1)).feed(document)
    failed = lost(world, document, "b1-r1-n1")
    world.engine.delete("Node", key="b1-r1-n1", now=world.now)
    evicted = world.feed(failed).cycle().evicted
    assert [(item.key, item.reason) for item in evicted] == [("ns/w", "NodeFailures")]
    assert evicted[0].message.endswith("no replacement for unhealthy node(s): b1-r1-n1")


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param({"unconstrained": True}, {"b1-r1-n2": 1, "b1-r2-n1": 1}, id="anywhere"),
        pytest.param({"preferred": RACK}, {"b1-r1-n2": 1, "b1-r2-n1": 1}, id="elsewhere at need"),
        pytest.param(
            {"podSetSliceRequiredTopology": HOST, "podSetSliceSize": 1},
            {"b1-r1-n2": 1, "b1-r2-n1": 1},
            id="slices alone",
        ),
        pytest.param({"required": RACK}, None, id="not outside of its rack"),
    ],
)
def test_pods_of_a_failed_node_move_as_far_as_they_may(request_, want):
    document = workload("w", "q", asking(2, **request_))
    world = fleet(*racks(b1_r1=2)).feed(document)
    failed = lost(world, document, "b1-r1-n1")
    world.engine.delete("Node", key="b1-r1-n1", now=world.now)
    world.feed(node("b1-r2-n1", "b1-r2"), failed)
    if want is None:
        assert [item.key for item in world.cycle().evicted] == ["ns/w"]
    else:
        assert places(world) == {"main": want}


def test_what_is_left_of_an_inner_slice_is_completed_in_its_domain():
    """Two pods of a slice of four share a rack; the one that lost its node stays in it."""
    layers = [{"topology": BLOCK, "size": 4}, {"topology": RACK, "size": 2}]
    nodes = [
        node(f"b1-{rack}-{name}", f"b1-{rack}", gpus=1) for rack in ("r1", "r2") for name in "ab"
    ]
    asked = asking(4, gpus=1, required=BLOCK, podsetSliceRequiredTopologyConstraints=layers)
    document = workload("w", "q", asked)
    world = fleet(*nodes).feed(document)
    failed = lost(world, document, "b1-r1-a")
    world.engine.delete("Node", key="b1-r1-a", now=world.now)
    world.feed(node("b1-r0-z", "b1-r0", gpus=1), node("b1-r1-z", "b1-r1", gpus=9), failed)
    assert places(world) == {"main": {"b1-r1-b": 1, "b1-r1-z": 1, "b1-r2-a": 1, "b1-r2-b": 1}}


@pytest.mark.parametrize(
    ("spare", "want"),
    [
        pytest.param({"r4": [4]}, {"b1-r1-n": 4, "b1-r4-0": 4}, id="in a rack for all of it"),
        pytest.param({"r3": [2], "r4": [2]}, None, id="not in two racks"),
    ],
)
def test_a_slice_that_was_lost_whole_is_replaced_whole(spare, want):
    nodes = [node(f"b1-{rack}-n", f"b1-{rack}", gpus=4) for rack in ("r1", "r2")]
    asked = asking(8, gpus=1, required=BLOCK, podsetSliceRequiredTopologyConstraints=LAYERS)
    document = workload("w", "q", asked)
    world = fleet(*nodes).feed(document)
    failed = lost(world, document, "b1-r2-n")
    world.engine.delete("Node", key="b1-r2-n", now=world.now)
    for rack, sizes in spare.items():
        world.feed(
            *(node(f"b1-{rack}-{n}", f"b1-{rack}", gpus=gpus) for n, gpus in enumerate(sizes))
        )
    world.feed(failed)
    if want is None:
        assert [item.key for item in world.cycle().evicted] == ["ns/w"]
    else:
        assert places(world) == {"main": want}


def test_a_second_pass_that_finds_nothing_is_tried_ever_more_seldom():
    gates = {"featureGates": {"TASFailedNodeReplacementFailFast": False}}
    document = workload("w", "q", asking(2, required=RACK))
    world = fleet(*racks(b1_r1=2), configuration=gates).feed(document)
    failed = lost(world, document, "b1-r1-n1")
    world.engine.delete("Node", key="b1-r1-n1", now=world.now)
    world.feed(failed)
    results = [world.cycle() for _ in range(8)]
    assert [item.heads for item in results] == [1, 1, 0, 1, 0, 0, 0, 1]
    assert {item.decisions for item in results} == {()}


def test_placement_follows_later_where_nodes_are_made_for_the_reservation():
    made = {
        "kind": "AdmissionCheck",
        "metadata": {"name": "c"},
        "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"},
        "status": {"conditions": [{"type": "Active", "status": "True"}]},
    }
    strategy = {"admissionChecks": [{"name": "c"}]}
    world = fleet(admissionChecksStrategy=strategy).feed(
        made, workload("w", "q", asking(2, required=RACK))
    )
    [found] = world.cycle().admitted
    assert (found.is_admitted, found.checks) == (False, ("c",))
    assert found.admission["podSetAssignments"] == [
        {
            "name": "main",
            "flavors": {GPU: "f0"},
            "resourceUsage": {GPU: "16"},
            "count": 2,
            "delayedTopologyRequest": "Pending",
        }
    ]
    reservation = world.engine.state.workloads["ns/w"].reservation
    assert reservation is not None
    assert reservation.pod_sets == (
        PodSetHold("main", {GPU: "f0"}, {GPU: 16}, 2, delayed="Pending"),
    )


@pytest.mark.parametrize(
    ("kinds", "want"),
    [
        pytest.param(None, "Pending", id="a scheduler alone waits for them"),
        pytest.param(frozenset({"v1, Kind=Job"}), None, id="who dispatches asks for none"),
    ],
)
def test_what_workers_place_has_no_domains_on_the_manager(kinds, want):
    world = World()
    world.engine = Engine(Configuration(placed_kinds=kinds))
    remote = {
        "kind": "AdmissionCheck",
        "metadata": {"name": "c"},
        "spec": {"controllerName": "kueue.x-k8s.io/multikueue"},
        "status": {"conditions": [{"type": "Active", "status": "True"}]},
    }
    world.feed(
        {"kind": "Namespace", "metadata": {"name": "ns"}},
        topology(BLOCK, RACK, HOST),
        flavor("f0", nodeLabels={"pool": "a"}, topologyName="topo"),
        remote,
        cluster_queue(
            "q",
            group(f0=quota(8)),
            admissionChecksStrategy={"admissionChecks": [{"name": "c"}]},
        ),
        workload("w", "q", asking(1, required=RACK)),
    )
    [assigned] = world.admitted()["w"]["podSetAssignments"]
    assert assigned.get("delayedTopologyRequest") == want
    assert "topologyAssignment" not in assigned


def test_second_pass_begins_with_what_is_held():
    document = workload("w", "q", asking(4, gpus=2, required=RACK))
    world = fleet(*racks(b1_r1=1)).feed(document)
    assert places(world) == {"main": {"b1-r1-n1": 4}}
    held = world.engine.state.workloads["ns/w"]
    assert held.reservation is not None
    [hold] = held.reservation.pod_sets
    want = PodSetAssignment(
        name="main",
        count=3,
        requests={GPU: 6},
        choices={GPU: FlavorChoice("f0", FlavorMode.FIT, 0)},
        placement=hold.placement,
    )
    assert held_assignment(hold, replace(held, reclaimable={"main": 1})) == want
    total = {GPU: 8, "pods": 4}
    assert held_uses(held) == (PlacedUse("f0", "b1-r1-n1", 4, {GPU: 2}, total),)
    renamed = replace(held.reservation, pod_sets=(replace(hold, name="gone"),))
    assert held_uses(replace(held, reservation=renamed)) == held_uses(held)


def test_what_one_pod_of_an_unknown_pod_set_takes_is_what_is_held():
    world = fleet(*racks(b1_r1=1)).feed(workload("w", "q", asking(1, required=RACK)))
    assert places(world) == {"main": {"b1-r1-n1": 1}}
    held = world.engine.state.workloads["ns/w"]
    assert held.reservation is not None
    renamed = tuple(replace(hold, name="gone") for hold in held.reservation.pod_sets)
    found = held_uses(replace(held, reservation=replace(held.reservation, pod_sets=renamed)))
    assert found == (PlacedUse("f0", "b1-r1-n1", 1, {GPU: 8}, {GPU: 8, "pods": 1}),)


def test_a_second_pass_that_cannot_be_written_is_tried_again():
    document = workload("w", "q", asking(2, required=RACK))
    world = fleet(*racks(b1_r1=3)).feed(document)
    failed = lost(world, document, "b1-r1-n1")
    world.engine.delete("Node", key="b1-r1-n1", now=world.now)
    world.feed(failed)
    assert [item.key for item in world.cycle().admitted] == ["ns/w"]
    world.feed(failed)  # the document from before the write
    assert world.cycle().heads == 0
    world.engine.forget("ns/w", now=world.now)
    assert world.usage()["q"] == {("f0", GPU): 16}
    assert [item.key for item in world.cycle().admitted] == ["ns/w"]


def test_a_fork_knows_what_others_take():
    world = fleet(node("n", "b1-r1")).feed(cluster_queue("other", group(f0=quota(1000))))
    world.feed(workload("first", "other", asking(1, required=RACK)))
    assert places(world, "first") == {"main": {"n": 1}}
    world.feed(workload("w", "q", asking(1, required=RACK)))
    copy = world.engine.fork(now=world.now, names=["q"])
    assert copy.cycle(world.now).admitted == ()
    whole = world.engine.fork(now=world.now)
    assert whole.cycle(world.now).admitted == ()
    whole.delete("Workload", key="ns/first", now=world.now)
    whole.wake("q")
    assert [item.key for item in whole.cycle(world.now).admitted] == ["ns/w"]


def test_a_queue_without_its_topology_says_so():
    world = fleet(node("n", "b1-r1"))
    world.engine.delete("Topology", key="topo", now=world.now)
    world.feed(workload("w", "q", asking(1, required=RACK)))
    assert world.cycle().heads == 0
    condition = world.engine.state.condition(world.engine.state.snapshot.queues["q"].spec)
    assert (condition.reason, condition.message) == (
        "TopologyNotFound",
        'Can\'t admit new workloads: there is no Topology "topo" for TAS flavor "f0".',
    )


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param({"required": RACK}, "asks for it", id="asked for"),
        pytest.param({}, "is in a queue where it has to", id="implied by the queue"),
    ],
)
def test_where_nobody_places_pods_what_asks_for_it_is_refused(request_, want):
    world = World()
    world.engine = Engine(Configuration(placed_kinds=frozenset()))
    world.feed(
        {"kind": "Namespace", "metadata": {"name": "ns"}},
        flavor("f0", nodeLabels={"pool": "a"}, topologyName="topo"),
        cluster_queue("q", group(f0=quota(8))),
        workload("w", "q", asking(1, **request_)),
    )
    assert world.admitted() == {}
    assert world.message("w") == (
        f"pods are not placed by topology here, and pod set main {want}: use a queue whose "
        "flavors have no topology, without a topology request"
    )


@pytest.mark.parametrize(("kind", "is_admitted"), [("Job", True), ("RayJob", False), ("", True)])
def test_a_kind_whose_pods_nobody_places_is_refused(kind, is_admitted):
    world = World()
    world.engine = Engine(Configuration(placed_kinds=frozenset({"v1, Kind=Job"})))
    document = workload("w", "q", asking(1, required=RACK))
    if kind:
        owner = {"apiVersion": "v1", "kind": kind, "name": "w", "uid": "u", "controller": True}
        document["metadata"]["ownerReferences"] = [owner]
    world.feed(
        topology(BLOCK, RACK, HOST),
        flavor("f0", nodeLabels={"pool": "a"}, topologyName="topo"),
        cluster_queue("q", group(f0=quota(8))),
        node("n", "b1-r1"),
        document,
    )
    assert bool(world.admitted()) == is_admitted
    if not is_admitted:
        assert world.message("w") == (
            "pods of a RayJob are not placed by topology here, and pod set main asks for it: use a "
            "queue whose flavors have no topology, without a topology request, or a Job"
        )


@pytest.mark.parametrize(
    ("gate", "is_elastic"),
    [("SchedulerLibraryIntegration", False), ("ElasticJobsViaWorkloadSlicesWithTAS", True)],
)
def test_a_gate_that_is_not_followed_refuses_what_it_is_about(gate, is_elastic):
    document = workload("w", "q", asking(1, required=RACK))
    if is_elastic:
        document["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    world = fleet(node("n", "b1-r1"), configuration={"featureGates": {gate: True}}).feed(document)
    assert world.admitted() == {}
    assert world.message("w").startswith(f"the feature gate {gate} is on, which is not followed")


LONG_NAMES = ("pool-a-with-a-long-name-", "zone-b-of-another-maker-")


def hosts(*counted: tuple[str, int]) -> Placement:
    return Placement((HOST,), tuple(PlacedPods((name,), count) for name, count in counted))


@pytest.mark.parametrize(
    ("placement", "want"),
    [
        pytest.param(hosts(("n1", 2)), [{"universal": "n1"}], id="one value for all"),
        pytest.param(
            hosts(("ababa", 1), ("aba", 1)),
            [{"individual": {"suffix": "aba", "roots": ["ab", ""]}}],
            id="beginning and end do not overlap",
        ),
        pytest.param(
            hosts(*[(f"{start}{i}", 1) for start in LONG_NAMES for i in range(9)]),
            [{"individual": {"prefix": start, "roots": list("012345678")}} for start in LONG_NAMES],
            id="hostnames with a common beginning form a slice",
        ),
        pytest.param(
            hosts(*[(f"{start * 5}{i}", 1) for start in LONG_NAMES for i in range(2)]),
            [{"individual": {"prefix": start * 5, "roots": ["0", "1"]}} for start in LONG_NAMES],
            id="two are enough",
        ),
        pytest.param(
            hosts(*[(f"{LONG_NAMES[0] * 15}{i}", 1) for i in range(2)], ("b-1", 1), ("c-1", 1)),
            [
                {"individual": {"prefix": LONG_NAMES[0] * 15, "roots": ["0", "1"]}},
                {"individual": {"suffix": "-1", "roots": ["b", "c"]}},
            ],
            id="those that stand alone go together",
        ),
        pytest.param(
            hosts(*[(f"{start}0", 1) for start in LONG_NAMES]),
            [
                {
                    "individual": {
                        "suffix": "-0",
                        "roots": ["pool-a-with-a-long-name", "zone-b-of-another-maker"],
                    }
                }
            ],
            id="one is not",
        ),
    ],
)
def test_a_placement_is_written_in_its_short_form(placement, want):
    document = placement_document(placement, splits_by_prefix=True)
    assert [item["valuesPerLevel"][0] for item in document["slices"]] == want
    assert parse_placement(document) == placement
