"""Another domain for the pods of a failed node: what stays, what is new, and where it may lie."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.kueue.configuration import Gates
from clusters.kueue.topology.need import Conditions, NoPlacement, PodSetNeed
from clusters.kueue.topology.nodes import NodeSpec
from clusters.kueue.topology.placer import Placer
from clusters.kueue.topology.replacement import merged, replaced_placement
from clusters.kueue.topology.tree import TopologyTree
from clusters.kueue.workload.matching import NodeRules
from clusters.kueue.workload.placement import PlacedPods, Placement
from clusters.kueue.workload.requests import PodRequests
from clusters.kueue.workload.topology_request import SliceLayer, TopologyRequest
from clusters.kueue.workload.workloads import PodShape

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
GPU = "gpu"


def placer_of(levels: tuple[str, ...] = (BLOCK, RACK, HOST), **nodes: int) -> Placer:
    """Nodes named as ``block_rack_host`` with their free GPUs."""
    tree = TopologyTree("topo", levels=levels, node_labels={}, tolerations=())
    made = []
    for name, gpus in nodes.items():
        block, rack, _ = name.split("_")
        labels = {BLOCK: block, RACK: f"{block}{rack}", HOST: name}
        made.append(NodeSpec(name, labels, (), {GPU: gpus, "pods": 99}, is_usable=True))
    tree.build(made, pods={})
    return Placer(tree, gates=Gates())


def need_of(**request: Any) -> PodSetNeed:
    is_implied = request.pop("is_implied", False)
    layers = tuple(SliceLayer(*layer) for layer in request.pop("layers", ()))
    asked = TopologyRequest(**request, layers=layers, is_explicit=not is_implied)
    shape = PodShape("", "", PodRequests({GPU: 1}, of_pod={GPU: 1}), NodeRules(), asked)
    return PodSetNeed("main", shape, 99, {GPU: 1}, asked, "f0", is_implied=is_implied)


def hosts(**counts: int) -> Placement:
    placed = (PlacedPods((name,), count) for name, count in counts.items())
    return Placement((HOST,), tuple(placed))


FLEET = {"a_1_x": 0, "a_1_y": 2, "a_1_z": 1, "a_2_x": 4, "b_1_x": 3}


@pytest.mark.parametrize(
    ("request_", "before", "want_new", "want_whole"),
    [
        pytest.param(
            {"required": RACK},
            {"a_1_f": 2, "a_1_x": 1},
            {"a_1_y": 2},
            {"a_1_x": 1, "a_1_y": 2},
            id="in the rack that it is in",
        ),
        pytest.param(
            {"required": BLOCK},
            {"a_1_f": 4, "a_1_x": 1},
            {"a_2_x": 4},
            {"a_1_x": 1, "a_2_x": 4},
            id="in the block that it is in",
        ),
        pytest.param(
            {"required": RACK},
            {"a_1_f": 4},
            {"a_2_x": 4},
            {"a_2_x": 4},
            id="anywhere when nothing is left of it",
        ),
        pytest.param(
            {"preferred": RACK},
            {"a_1_f": 4, "a_1_x": 1},
            {"a_2_x": 4},
            {"a_1_x": 1, "a_2_x": 4},
            id="preferred is not required",
        ),
        pytest.param(
            {"is_implied": True},
            {"a_1_f": 3, "a_1_x": 1},
            {"b_1_x": 3},
            {"a_1_x": 1, "b_1_x": 3},
            id="implied",
        ),
        pytest.param(
            {"unconstrained": True},
            {"a_1_f": 2, "a_1_y": 1, "b_1_x": 1},
            {"a_1_y": 2},
            {"a_1_y": 3, "b_1_x": 1},
            id="beside what is there already",
        ),
        pytest.param(
            {"required": BLOCK, "layers": [(RACK, 2)]},
            {"a_1_f": 1, "a_1_x": 1, "b_1_x": 2},
            {"a_1_z": 1},
            {"a_1_x": 1, "a_1_z": 1, "b_1_x": 2},
            id="the broken slice is completed in its rack",
        ),
        pytest.param(
            {"required": BLOCK, "layers": [(RACK, 2)]},
            {"a_1_f": 2, "a_1_x": 2},
            {"a_1_y": 1, "a_1_z": 1},
            {"a_1_x": 2, "a_1_y": 1, "a_1_z": 1},
            id="a whole slice goes into the block",
        ),
        pytest.param(
            {"preferred": BLOCK, "layers": [(RACK, 3)]},
            {"a_1_f": 1, "a_1_x": 2, "b_1_x": 3},
            {"a_1_z": 1},
            {"a_1_x": 2, "a_1_z": 1, "b_1_x": 3},
            id="the broken slice, where it is preferred",
        ),
        pytest.param(
            {"required": BLOCK, "layers": [(RACK, 4), (HOST, 2)]},
            {"a_1_f": 2, "a_1_x": 2, "b_1_x": 4},
            {"a_1_y": 2},
            {"a_1_x": 2, "a_1_y": 2, "b_1_x": 4},
            id="an inner slice that was lost whole",
        ),
        pytest.param(
            {"required": BLOCK, "layers": [(BLOCK, 4), (RACK, 2)]},
            {"a_1_f": 1, "a_1_x": 1, "a_2_x": 2},
            {"a_1_z": 1},
            {"a_1_x": 1, "a_1_z": 1, "a_2_x": 2},
            id="an inner slice that is broken",
        ),
        pytest.param(
            {"required": BLOCK, "layers": [(BLOCK, 4), (RACK, 4), (HOST, 2)]},
            {"a_1_f": 2, "a_1_x": 2},
            {"a_1_y": 2},
            {"a_1_x": 2, "a_1_y": 2},
            id="the finest layer that is broken",
        ),
    ],
)
def test_pods_of_a_failed_node_are_placed_anew(request_, before, want_new, want_whole):
    whole, new = replaced_placement(
        placer_of(**FLEET),
        need_of(**request_),
        before=hosts(**before),
        failed="a_1_f",
        conditions=Conditions(),
    )
    assert new == hosts(**want_new)
    assert whole == hosts(**want_whole)


@pytest.mark.parametrize(
    ("layers", "before", "want"),
    [
        pytest.param(
            [(BLOCK, 4), (RACK, 2)],
            {"a_1_f": 1, "a_1_x": 1, "b_1_x": 2},
            {"a_1_z": 1},
            id="two layers, the inner one is broken",
        ),
        pytest.param(
            [(BLOCK, 4), (RACK, 4), (HOST, 2)],
            {"a_1_f": 2, "a_1_x": 2},
            {"a_1_y": 2},
            id="three layers, the one between is broken",
        ),
        pytest.param(
            [(BLOCK, 3), (RACK, 2)],
            {"b_1_x": 2, "a_1_f": 1, "a_1_x": 1},
            {"a_1_z": 1},
            id="another rack is complete",
        ),
        pytest.param(
            [(BLOCK, 4), (RACK, 2)],
            {"a_1_f": 2, "a_1_x": 2},
            {"a_0_x": 2},
            id="the inner slice was lost whole",
        ),
    ],
)
def test_a_broken_slice_is_completed_where_it_is_though_others_fit_better(layers, before, want):
    """Rack a0 has least to spare."""
    _, new = replaced_placement(
        placer_of(a_0_x=2, a_1_x=0, a_1_y=3, a_1_z=1, b_1_x=9),
        need_of(required=BLOCK, layers=layers),
        before=hosts(**before),
        failed="a_1_f",
        conditions=Conditions(),
    )
    assert new == hosts(**want)


def test_a_topology_of_one_level_is_enough_for_what_is_implied():
    whole, new = replaced_placement(
        placer_of((HOST,), a_1_x=1, a_1_y=2, b_1_x=9),
        need_of(is_implied=True),
        before=hosts(a_1_f=2, a_1_x=1),
        failed="a_1_f",
        conditions=Conditions(),
    )
    assert new == hosts(a_1_y=2)
    assert whole == hosts(a_1_x=1, a_1_y=2)


def refused(placer: Placer, need: PodSetNeed, conditions: Conditions, **before: int) -> str:
    with pytest.raises(NoPlacement) as failure:
        replaced_placement(
            placer, need, before=hosts(**before), failed="a_1_f", conditions=conditions
        )
    return str(failure.value)


def test_a_placement_with_another_domain_that_is_gone_is_not_replaced():
    found = refused(placer_of(**FLEET), need_of(required=RACK), Conditions(), a_1_f=1, a_1_g=1)
    assert found == (
        "Cannot replace the node, because the existing topologyAssignment is invalid, as it "
        "contains the stale domain a_1_g"
    )


def test_a_node_that_had_no_pods_is_not_replaced():
    found = refused(placer_of(**FLEET), need_of(required=RACK), Conditions(), a_1_x=1)
    assert found == "cannot find replacement assignment for unhealthy node: a_1_f"


def test_outside_of_its_rack_there_is_no_room():
    found = refused(placer_of(**FLEET), need_of(required=RACK), Conditions(), a_1_f=4, a_1_x=1)
    assert found == (
        'topology "topo" allows to fit only 3 out of 4 pod(s). Total nodes: 5; excluded: '
        'resource "gpu": 1, topologyDomain: 2'
    )


def test_a_required_node_is_never_replaced():
    """As in Kueue, which compares all values of a leaf with the hostname alone."""
    found = refused(placer_of(**FLEET), need_of(required=HOST), Conditions(), a_1_f=1, a_1_y=1)
    assert found == (
        'topology "topo" doesn\'t allow to fit any of 1 pod(s). Total nodes: 5; excluded: '
        "topologyDomain: 5"
    )


def test_what_other_pod_sets_took_is_not_there():
    taken = Conditions(assumed={"a_1_y": {GPU: 2}})
    found = refused(placer_of(**FLEET), need_of(required=RACK), taken, a_1_f=2, a_1_x=1)
    assert found == (
        'topology "topo" allows to fit only 1 out of 2 pod(s). Total nodes: 5; excluded: '
        'resource "gpu": 2, topologyDomain: 2'
    )


def test_the_last_item_of_a_node_says_how_many_pods_it_had():
    twice = Placement((HOST,), (PlacedPods(("a_1_f",), 1), PlacedPods(("a_1_f",), 2)))
    whole, new = replaced_placement(
        placer_of(**FLEET),
        need_of(required=RACK),
        before=twice,
        failed="a_1_f",
        conditions=Conditions(),
    )
    assert whole == new == hosts(a_1_y=2)


def test_two_placements_become_one_in_order_of_all_their_values():
    placer = placer_of(b_1_a=1, a_1_b=1, a_1_c=1)
    new, kept = hosts(b_1_a=1, a_1_c=2), hosts(a_1_c=3, a_1_b=4)
    assert merged(placer.tree, new, kept) == hosts(a_1_b=4, a_1_c=5, b_1_a=1)
    racks = placer_of((BLOCK, RACK), b_1_a=1, a_1_b=1)
    one = Placement((BLOCK, RACK), (PlacedPods(("b", "b1"), 1),))
    other = Placement((BLOCK, RACK), (PlacedPods(("a", "a1"), 2), PlacedPods(("b", "b1"), 2)))
    assert merged(racks.tree, one, other) == Placement(
        (BLOCK, RACK), (PlacedPods(("a", "a1"), 2), PlacedPods(("b", "b1"), 3))
    )
