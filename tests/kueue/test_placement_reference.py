"""Every search for domains finds what Kueue's rules find, told once more in another way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from typing import Any

import pytest

from clusters.kueue.configuration import Gates
from clusters.kueue.topology.need import Conditions, NoPlacement, PodSetNeed
from clusters.kueue.topology.nodes import NodeSpec
from clusters.kueue.topology.placer import Placer
from clusters.kueue.topology.tree import TopologyTree
from clusters.kueue.workload.matching import Expression, NodeRules, NodeTerm
from clusters.kueue.workload.requests import PodRequests
from clusters.kueue.workload.topology_request import SliceLayer, TopologyRequest
from clusters.kueue.workload.workloads import PodShape
from tests.kueue.builders import GPU
from tests.kueue.placement_reference import Asked, NotFound, placed

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
# Blocks of racks of nodes: GPUs, CPUs, and how well the node is liked.
FLEETS: dict[str, tuple[tuple[tuple[tuple[int, int, int], ...], ...], ...]] = {
    "one rack": ((((8, 8, 0), (4, 9, 1), (2, 1, 2)),),),
    "equal racks": ((((4, 4, 0), (4, 4, 0)), ((4, 4, 0), (4, 4, 0))), (((4, 4, 0), (4, 4, 0)),)),
    "rising racks": ((((2, 9, 1),), ((3, 9, 0), (3, 0, 0))), (((5, 0, 2), (5, 9, 0), (1, 9, 3)),)),
    "a leader costs": ((((3, 3, 0), (3, 9, 1)), ((6, 2, 0), (5, 0, 1))), (((7, 7, 0), (2, 9, 0)),)),
    "odd sizes": (
        (((5, 9, 0), (3, 2, 0), (1, 9, 5)), ((7, 1, 0),)),
        (((2, 9, 0), (2, 9, 4), (2, 0, 4)), ((9, 3, 1),)),
    ),
    "small and large": ((((1, 9, 0), (1, 9, 0), (9, 9, 1)), ((2, 9, 0), (2, 9, 0))),),
    "full nodes": ((((0, 9, 3), (4, 0, 0)), ((0, 0, 0), (6, 5, 0))), (((3, 9, 0), (0, 9, 0)),)),
    "many blocks": ((((3, 4, 0),),), (((5, 1, 1),), ((2, 9, 0),)), (((4, 9, 0), (4, 2, 2)),)),
}
LEVELS = ((BLOCK, RACK, HOST), (RACK, HOST), (HOST,), (BLOCK, RACK))
# Nothing, a pod beside the others, one that takes more than they do, one that few nodes take.
LEADERS: tuple[dict[str, int] | None, ...] = (None, {GPU: 1}, {GPU: 3}, {"cpu": 3})
GATES = (
    Gates(),
    Gates(tas_profile_mixed=False),
    Gates(tas_balanced_placement=True),
    Gates(tas_respect_node_affinity_preferred=True),
    Gates(tas_balanced_placement=True, tas_respect_node_affinity_preferred=True),
)
COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 14, 16, 20, 24)
LIKES = NodeRules(
    preferences=tuple(
        (weight, NodeTerm((Expression("liked", "In", (str(weight),)),))) for weight in range(1, 6)
    )
)


def requests_of(levels: tuple[str, ...]) -> list[TopologyRequest]:
    """Every kind of request that these levels allow for."""
    found = [TopologyRequest(unconstrained=True, is_explicit=True)]
    sliced = [
        (),
        *((SliceLayer(level, size),) for level in levels for size in (2, 3)),
        *(
            (SliceLayer(outer, 4), SliceLayer(inner, 2))
            for number, outer in enumerate(levels)
            for inner in levels[number + 1 :]
        ),
    ]
    if len(levels) == 3:
        sliced.append((SliceLayer(BLOCK, 6), SliceLayer(RACK, 3), SliceLayer(levels[2], 1)))
    for layers in sliced:
        if layers:
            found.append(TopologyRequest(layers=layers, is_explicit=True))
        lowest = levels.index(layers[0].topology) if layers else len(levels) - 1
        for level in levels[: lowest + 1]:
            found.append(TopologyRequest(required=level, layers=layers, is_explicit=True))
            found.append(TopologyRequest(preferred=level, layers=layers, is_explicit=True))
    return found


def nodes_of(name: str) -> list[NodeSpec]:
    return [
        NodeSpec(
            name=f"n{block}{rack}{number}",
            labels={
                BLOCK: f"b{block}",
                RACK: f"r{rack}",
                HOST: f"n{block}{rack}{number}",
                "liked": str(liked),
            },
            taints=(),
            allocatable={GPU: gpus, "cpu": cpus, "pods": 9},
            is_usable=True,
        )
        for block, racks in enumerate(FLEETS[name])
        for rack, nodes in enumerate(racks)
        for number, (gpus, cpus, liked) in enumerate(nodes)
    ]


def rooms_of(nodes: list[NodeSpec], levels: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
    """What is free by the values of each leaf, and what each is liked."""
    rooms: dict[tuple[str, ...], Any] = {}
    for node in nodes:
        room, _ = rooms.setdefault(
            tuple(node.labels[x] for x in levels), ({}, node.labels["liked"])
        )
        for resource, amount in node.allocatable.items():
            room[resource] = room.get(resource, 0) + amount
    return rooms


def need(name: str, count: int, requests: dict[str, int], request: TopologyRequest) -> PodSetNeed:
    shape = PodShape("", "", PodRequests(requests, of_pod=requests), LIKES, request)
    return PodSetNeed(name, shape, count, requests, request, "f0")


def expected(asked: Asked) -> Any:
    start = len(asked.levels) - 1 if asked.is_by_host else 0
    try:
        workers, leader = placed(asked)
    except NotFound as failure:
        return str(failure)
    found = {"workers": workers} | ({} if asked.leader is None else {"leader": leader})
    return {
        name: (asked.levels[start:], [(x[start:], count) for x, count in sorted(counted.items())])
        for name, counted in found.items()
    }


def answered(placer: Placer, workers: PodSetNeed, leader: PodSetNeed | None, within: str) -> Any:
    try:
        found = placer.place(workers, leader, Conditions(within=within))
    except NoPlacement as failure:
        return str(failure)
    return {
        name: (item.levels, [(each.values, each.count) for each in item.domains])
        for name, item in found.items()
    }


def every(first: int, step: int, *choices: Any) -> Iterator[Any]:
    return islice(product(*choices), first, None, step)


@pytest.mark.parametrize("gates", GATES, ids=["", "one profile", "balanced", "liked", "both"])
@pytest.mark.parametrize("levels", LEVELS, ids=["three", "two", "one", "no hosts"])
@pytest.mark.parametrize("fleet", FLEETS)
def test_domains_are_those_of_the_reference(fleet, levels, gates):
    nodes = nodes_of(fleet)
    tree = TopologyTree("topo", levels=levels, node_labels={}, tolerations=())
    tree.build(nodes, pods={})
    rooms = rooms_of(nodes, levels)
    placer = Placer(tree, gates=gates)
    likes = {values: int(liked) for values, (_, liked) in rooms.items()}
    prefers = gates.tas_respect_node_affinity_preferred
    first = len(fleet) + 3 * len(levels)
    for request, each, led_by, count in every(
        first % 41, 41, requests_of(levels), ({GPU: 1}, {GPU: 2, "cpu": 1}), LEADERS, COUNTS
    ):
        within = f"b{count % 2}" if levels[0] == BLOCK and count % 5 == 0 else ""
        level, of_slices = request.level(levels), request.slice_level(levels)
        assert level is not None
        asked = Asked(
            levels=levels,
            is_by_host=levels[-1] == HOST,
            rooms={values: room for values, (room, _) in rooms.items()},
            worker=each,
            leader=led_by,
            count=count,
            size=request.slice_size,
            level=levels.index(level),
            slice_level=levels.index(of_slices),
            layers=tuple((levels.index(x.topology), x.size) for x in request.layers[1:]),
            is_required=request.required is not None,
            is_unconstrained=bool(request.unconstrained) or request.is_slice_only,
            is_mixed=gates.tas_profile_mixed,
            is_balanced=gates.tas_balanced_placement,
            likes=(likes if levels[-1] == HOST else {}) if prefers else None,
            within=(within,) if within else (),
        )
        workers = need("workers", count, each, request)
        leader = None if led_by is None else need("leader", 1, led_by, request)
        got = answered(placer, workers, leader, within)
        assert got == expected(asked), asked
