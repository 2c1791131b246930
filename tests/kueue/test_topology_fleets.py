"""Random fleets: what holds wherever pods are placed."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from clusters.kueue.topology.tree import Leaf, TopologyTree
from clusters.kueue.workload.workloads import Workload
from tests.kueue.builders import GPU, World, preemption, workload
from tests.kueue.test_topology import BLOCK, HOST, RACK, asking, fleet, node, pod

FEW, MANY = 20, 10_000


def random_fleet(rng: Random) -> World:
    nodes = []
    for index in range(rng.randint(1, 12)):
        block, rack = rng.randint(1, 2), rng.randint(1, 3)
        changes: dict[str, Any] = {}
        if rng.random() < 0.2:
            changes["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
        if rng.random() < 0.1:
            changes["unschedulable"] = True
        name = f"n{index}"
        nodes.append(node(name, f"b{block}-r{rack}", gpus=rng.choice([2, 4, 8]), pods=4, **changes))
    return fleet(*nodes, preemption=preemption("LowerPriority"))


def random_workload(rng: Random, name: str) -> dict[str, Any]:
    request: dict[str, Any] = rng.choice(
        [{}, {"required": RACK}, {"preferred": RACK}, {"required": BLOCK}, {"unconstrained": True}]
    )
    if request and rng.random() < 0.3:
        request = request | {"podSetSliceRequiredTopology": HOST, "podSetSliceSize": 2}
    pods = {}
    if rng.random() < 0.3:
        pods["tolerations"] = [{"key": "broken", "operator": "Exists"}]
    item = asking(rng.randint(1, 6), gpus=rng.choice([1, 2, 4]), pods=pods, **request)
    return workload(name, "q", item, priority=rng.randint(0, 2))


def placed(world: World) -> list[tuple[Workload, Leaf, int]]:
    """Every workload that holds domains that are there: where, and how many pods."""
    placer = world.engine.state.snapshot.places.placer("f0")
    assert placer is not None
    found = []
    for holding in world.engine.state.snapshot.holdings():
        reservation = holding.workload.reservation
        assert reservation is not None
        for hold in reservation.pod_sets:
            for item in hold.placement.domains if hold.placement is not None else ():
                leaf = placer.tree.leaves.get(item.domain)
                if leaf is not None:
                    found.append((holding.workload, leaf, item.count))
    return found


def check(world: World, before: set[str]) -> None:
    """No domain over its capacity; nothing new on a node that it may not use; nothing left over."""
    used: dict[str, Counter[str]] = {}
    for owner, leaf, count in placed(world):
        shape = owner.pod_sets[0].shape
        total = used.setdefault(leaf.name, Counter())
        total[GPU] += shape.requests.of_pod[GPU] * count
        total["pods"] += count
        assert leaf.node is not None
        is_tolerated = bool(shape.rules.tolerations) or not leaf.node.taints
        assert is_tolerated or owner.key in before
    placer = world.engine.state.snapshot.places.placer("f0")
    assert placer is not None
    for name, leaf in placer.tree.leaves.items():
        for resource in (GPU, "pods"):
            taken = used.get(name, Counter())[resource]
            assert leaf.free[resource] - leaf.rest[resource] == taken
            assert taken <= leaf.free[resource]


def live(seed: int) -> int:
    """A fleet's life of arrivals, ends, and nodes that come and go; returns what was admitted."""
    rng = Random(seed)
    world, admitted = random_fleet(rng), 0
    for step in range(8):
        before = {item.workload.key for item in world.engine.state.snapshot.holdings()}
        for index in range(rng.randint(0, 3)):
            world.feed(random_workload(rng, f"w{step}-{index}"))
        if before and rng.random() < 0.4:
            world.engine.delete("Workload", key=rng.choice(sorted(before)), now=world.now)
        if rng.random() < 0.2:
            # One more, so that nothing that runs is on it.
            world.feed(node(f"late{step}", "b1-r1", gpus=8, pods=4))
        admitted += sum(len(result.admitted) for result in world.run())
        check(world, before)
        rest = {name: dict(leaf.rest) for name, leaf in leaves(world).items()}
        copy = world.engine.fork(now=world.now)
        copy.upsert(node("what-if", "b2-r9", gpus=64), now=world.now)
        copy.cycle(world.now)
        assert {name: leaf.rest for name, leaf in leaves(world).items()} == rest
    return admitted


def leaves(world: World) -> dict[str, Leaf]:
    placer = world.engine.state.snapshot.places.placer("f0")
    assert placer is not None
    return placer.tree.leaves


def test_fleets_keep_within_their_nodes():
    assert sum(live(seed) for seed in range(FEW)) > FEW


@pytest.mark.slow
def test_many_fleets_keep_within_their_nodes():
    assert sum(live(seed) for seed in range(FEW, MANY)) > MANY


def picture(tree: TopologyTree) -> dict[str, Any]:
    """All that a search reads of a tree, in an order of its own."""

    def amounts(found: dict[str, int]) -> dict[str, int]:
        return {name: amount for name, amount in found.items() if amount}

    return {
        "levels": [sorted(level) for level in tree.by_level],
        "below": {
            domain.values: sorted(child.values for child in domain.children)
            for level in tree.by_level
            for domain in level.values()
        },
        "leaves": {
            name: (leaf.values, leaf.node, leaf.nodes, amounts(leaf.free), amounts(leaf.rest))
            for name, leaf in tree.leaves.items()
        },
        "of": {name: leaf.name for name, leaf in tree.leaf_of.items()},
    }


@pytest.mark.parametrize("levels", [(BLOCK, RACK, HOST), (BLOCK, RACK)], ids=["hosts", "racks"])
def test_a_tree_that_followed_every_node_is_as_one_built_anew(levels):
    rng = Random(len(levels))
    for _ in range(FEW):
        world = fleet(levels=levels)
        for index in range(8):
            world.feed(random_workload(rng, f"w{index}"))
        for _ in range(40):
            name, rack = f"n{rng.randint(0, 5)}", f"b{rng.randint(1, 2)}-r{rng.randint(1, 2)}"
            if rng.random() < 0.3:
                world.engine.delete("Node", key=name, now=world.now)
            else:
                changes: dict[str, Any] = {"unschedulable": rng.random() < 0.2}
                document = node(name, rack, gpus=rng.choice([2, 4]), **changes)
                if rng.random() < 0.1:
                    document["metadata"]["labels"][HOST] = "n0"
                world.feed(document)
            if rng.random() < 0.3:
                bound = pod(f"p{rng.randint(0, 3)}", gpus=1)
                bound["spec"]["nodeName"] = name
                world.feed(bound)
            world.run()
            [placer] = world.engine.state.snapshot.places._placers.values()
            followed = picture(placer.tree)
            world.engine.state.snapshot.places._build(placer)
            assert followed == picture(placer.tree)
