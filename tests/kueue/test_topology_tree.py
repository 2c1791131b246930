"""The tree of domains: what nodes, pods and placements make of it, held whole."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.kueue.topology.nodes import NodeSpec
from clusters.kueue.topology.tree import (
    Domain,
    PlacedUse,
    TopologyTree,
    add_amounts,
    count_in,
    placed_uses,
    subtract_amounts,
    total_of,
)
from clusters.kueue.workload.matching import Toleration
from clusters.kueue.workload.placement import PlacedPods, Placement

RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
MOST = 2**31 - 1


def node(name: str, rack: str, *, host: str = "", gpus: int = 8) -> NodeSpec:
    labels = {RACK: rack, HOST: host or name}
    return NodeSpec(name, labels, (), {"gpu": gpus, "pods": 10}, is_usable=True)


def tree_of(*nodes: NodeSpec, levels: tuple[str, ...] = (RACK, HOST), **pods: Any) -> TopologyTree:
    tree = TopologyTree("topo", levels=levels, node_labels={"pool": "a"}, tolerations=())
    tree.build(nodes, pods=pods)
    return tree


def drawn(tree: TopologyTree) -> dict[str, Any]:
    """Everything that a tree holds, levels and links among them."""
    for level in tree.by_level:
        for domain in level.values():
            assert all(child.parent is domain for child in domain.children)
    return {
        "levels": [
            {
                name: (domain.values, [child.name for child in domain.children])
                for name, domain in level.items()
            }
            for level in tree.by_level
        ],
        "leaves": {
            name: (sorted(leaf.nodes), leaf.free, leaf.rest) for name, leaf in tree.leaves.items()
        },
        "of": {name: leaf.name for name, leaf in tree.leaf_of.items()},
        "usage": tree.usage,
    }


def leaf(names: list[str], gpus: int, pods: int) -> tuple[list[str], dict[str, int], ...]:
    return names, {"gpu": gpus, "pods": pods}, {"gpu": gpus, "pods": pods}


def test_a_tree_of_nodes():
    tree = tree_of(node("n1", "r1"), node("n2", "r1"), node("n3", "r2"), n2={"gpu": 3, "pods": 2})
    assert drawn(tree) == {
        "levels": [
            {"r1": (("r1",), ["n1", "n2"]), "r2": (("r2",), ["n3"])},
            {"n1": (("r1", "n1"), []), "n2": (("r1", "n2"), []), "n3": (("r2", "n3"), [])},
        ],
        "leaves": {
            "n1": leaf(["n1"], 8, 10),
            "n2": leaf(["n2"], 5, 8),
            "n3": leaf(["n3"], 8, 10),
        },
        "of": {"n1": "n1", "n2": "n2", "n3": "n3"},
        "usage": {},
    }
    assert [item.node for item in tree.leaves.values()] == [
        node("n1", "r1"),
        node("n2", "r1"),
        node("n3", "r2"),
    ]
    assert (tree.topology, tree.levels, tree.is_by_host) == ("topo", (RACK, HOST), True)
    assert (tree.node_labels, tree.tolerations) == ({"pool": "a"}, ())


def test_a_tree_of_racks_adds_up_their_nodes():
    levels = ("example.com/block", RACK)
    nodes = [
        NodeSpec(name, {levels[0]: block, RACK: rack}, (), {"gpu": gpus}, is_usable=True)
        for name, block, rack, gpus in (
            ("n1", "b", "r", 8),
            ("n2", "b", "r", 4),
            ("n3", "c", "r", 2),
        )
    ]
    tolerations = (Toleration("broken"),)
    tree = TopologyTree("topo", levels=list(levels), node_labels={}, tolerations=list(tolerations))
    tree.build(nodes, pods={"n2": {"gpu": 1}})
    assert drawn(tree) == {
        "levels": [
            {"b": (("b",), ["b,r"]), "c": (("c",), ["c,r"])},
            {"b,r": (("b", "r"), []), "c,r": (("c", "r"), [])},
        ],
        "leaves": {
            "b,r": (["n1", "n2"], {"gpu": 11}, {"gpu": 11}),
            "c,r": (["n3"], {"gpu": 2}, {"gpu": 2}),
        },
        "of": {"n1": "b,r", "n2": "b,r", "n3": "c,r"},
        "usage": {},
    }
    assert [item.node for item in tree.leaves.values()] == [None, None]
    assert (tree.levels, tree.is_by_host, tree.tolerations) == (levels, False, tolerations)
    assert not tree.is_shared(nodes[0])
    tree.remove(nodes[1], pods={"gpu": 1})
    assert drawn(tree)["leaves"]["b,r"] == (["n1"], {"gpu": 8}, {"gpu": 8})
    assert drawn(tree)["of"] == {"n1": "b,r", "n3": "c,r"}
    tree.remove(nodes[0], pods={})
    assert drawn(tree)["levels"] == [{"c": (("c",), ["c,r"])}, {"c,r": (("c", "r"), [])}]


def test_a_tree_built_anew_keeps_its_usage_alone():
    tree = tree_of(node("n1", "r1"))
    tree.use("n1", {"gpu": 3, "pods": 1})
    tree.use("gone", {"gpu": 1})
    tree.build([node("n1", "r2"), node("n2", "r2")], pods={"n1": {"gpu": 1}})
    assert drawn(tree) == {
        "levels": [
            {"r2": (("r2",), ["n1", "n2"])},
            {"n1": (("r2", "n1"), []), "n2": (("r2", "n2"), [])},
        ],
        "leaves": {
            "n1": (["n1"], {"gpu": 7, "pods": 10}, {"gpu": 4, "pods": 9}),
            "n2": leaf(["n2"], 8, 10),
        },
        "of": {"n1": "n1", "n2": "n2"},
        "usage": {"n1": {"gpu": 3, "pods": 1}, "gone": {"gpu": 1}},
    }


def test_nodes_that_go_take_their_empty_domains_with_them():
    nodes = [node("n1", "r1"), node("n2", "r1"), node("n3", "r2")]
    tree = tree_of(*nodes)
    tree.remove(nodes[2], pods={"gpu": 1})
    assert drawn(tree)["levels"] == [
        {"r1": (("r1",), ["n1", "n2"])},
        {"n1": (("r1", "n1"), []), "n2": (("r1", "n2"), [])},
    ]
    tree.remove(nodes[0], pods={})
    assert drawn(tree) == {
        "levels": [{"r1": (("r1",), ["n2"])}, {"n2": (("r1", "n2"), [])}],
        "leaves": {"n2": leaf(["n2"], 8, 10)},
        "of": {"n2": "n2"},
        "usage": {},
    }
    tree.remove(nodes[1], pods={})
    assert drawn(tree) == {"levels": [{}, {}], "leaves": {}, "of": {}, "usage": {}}
    tree.add(nodes[1], pods={"gpu": 2})
    assert drawn(tree)["levels"] == [{"r1": (("r1",), ["n2"])}, {"n2": (("r1", "n2"), [])}]
    assert drawn(tree)["leaves"] == {"n2": leaf(["n2"], 6, 10)}


def test_nodes_of_one_hostname_share_a_leaf():
    first, second = node("n1", "r1", host="h"), node("n2", "r1", host="h", gpus=2)
    tree = tree_of(first)
    assert not tree.is_shared(first)
    assert tree.is_shared(second)
    assert not tree.is_shared(node("n2", "r1"))
    tree.add(second, pods={})
    assert tree.is_shared(first)
    assert drawn(tree)["leaves"] == {"h": leaf(["n1", "n2"], 10, 20)}
    assert tree.leaves["h"].node == first


def test_pods_without_a_placement_take_from_what_is_free():
    tree = tree_of(node("n1", "r1"))
    tree.use_node("n1", {"gpu": 3, "cpu": 2})
    tree.use_node("other", {"gpu": 1})
    taken = {"gpu": 5, "pods": 10, "cpu": -2}
    assert drawn(tree)["leaves"] == {"n1": (["n1"], taken, taken)}
    tree.free_node("n1", {"gpu": 3, "cpu": 2})
    tree.free_node("other", {"gpu": 1})
    given = {"gpu": 8, "pods": 10, "cpu": 0}
    assert drawn(tree)["leaves"] == {"n1": (["n1"], given, given)}


def test_placed_pods_take_from_the_rest_alone():
    tree = tree_of(node("n1", "r1"))
    free = {"gpu": 8, "pods": 10}
    tree.use("n1", {"gpu": 3, "pods": 1})
    tree.use("n1", {"gpu": 2, "cpu": 1})
    tree.use("gone", {"gpu": 1})
    assert tree.usage == {"n1": {"gpu": 5, "pods": 1, "cpu": 1}, "gone": {"gpu": 1}}
    rest = {"gpu": 3, "pods": 9, "cpu": -1}
    assert drawn(tree)["leaves"] == {"n1": (["n1"], free, rest)}
    tree.release("n1", {"gpu": 3, "pods": 1})
    assert tree.usage == {"n1": {"gpu": 2, "pods": 0, "cpu": 1}, "gone": {"gpu": 1}}
    tree.release("n1", {"gpu": 2, "cpu": 1})
    tree.release("gone", {"gpu": 1})
    assert tree.usage == {}
    assert drawn(tree)["leaves"] == {"n1": (["n1"], free, {"gpu": 8, "pods": 10, "cpu": 0})}
    tree.release("n1", {"gpu": 1})
    assert tree.usage == {"n1": {"gpu": -1}}


@pytest.mark.parametrize(
    ("domain", "count", "requests", "want"),
    [
        pytest.param("n1", 2, {"gpu": 4}, True, id="as many as fit"),
        pytest.param("n1", 3, {"gpu": 4}, False, id="one more"),
        pytest.param("n1", 1, {"gpu": 4, "cpu": 1}, False, id="of something that is not there"),
        pytest.param("n1", 8, {"gpu": 1}, True, id="the number of pods is not looked at"),
        pytest.param("n2", 0, {"gpu": 1}, False, id="a domain that is gone"),
    ],
)
def test_one_item_of_a_placement_fits_by_itself(domain, count, requests, want):
    tree = tree_of(node("n1", "r1"))
    tree.use("n1", {"pods": 9})
    use = PlacedUse("f0", domain, count, requests, total_of(requests, count))
    assert tree.fits(use) is want


def test_a_domain_that_is_gone_is_named_as_it_was_written():
    tree = tree_of(node("n1", "r1"))
    placed = [PlacedPods(("n1",), 1), PlacedPods(("n2",), 1), PlacedPods(("n3",), 1)]
    assert tree.missing(Placement((HOST,), tuple(placed))) == "n2"
    assert tree.missing(Placement((HOST,), tuple(placed[:1]))) is None
    two = Placement((RACK, HOST), (PlacedPods(("r", "n1"), 1),))
    assert tree.missing(two) == "r"


def test_what_a_placement_takes():
    placement = Placement((RACK, HOST), (PlacedPods(("r", "n1"), 2), PlacedPods(("r", "n2"), 1)))
    each = {"gpu": 3, "pods": 1}
    assert placed_uses(placement, flavor="f0", requests=each) == [
        PlacedUse("f0", "r,n1", 2, each, {"gpu": 6, "pods": 4}),
        PlacedUse("f0", "r,n2", 1, each, {"gpu": 3, "pods": 2}),
    ]
    assert total_of({}, 2) == {"pods": 2}
    assert total_of({"gpu": 0}, 0) == {"gpu": 0, "pods": 0}


@pytest.mark.parametrize(
    ("requests", "capacity", "want"),
    [
        pytest.param([], {"gpu": 5}, (0, ""), id="nothing asked for"),
        pytest.param([("gpu", 2)], {"gpu": 5}, (2, "gpu"), id="whole pods"),
        pytest.param([("gpu", 2)], {"gpu": 1}, (0, "gpu"), id="not one"),
        pytest.param([("gpu", 1)], {"gpu": 1}, (1, "gpu"), id="just one"),
        pytest.param([("gpu", 1)], {}, (0, "gpu"), id="nothing there"),
        pytest.param([("gpu", 2)], {"gpu": -7}, (0, "gpu"), id="less than nothing"),
        pytest.param([("cpu", 1), ("gpu", 1)], {"cpu": 9, "gpu": 5}, (5, "gpu"), id="the scarcest"),
        pytest.param([("cpu", 1), ("gpu", 1)], {"cpu": 4, "gpu": 4}, (4, "cpu"), id="first of two"),
        pytest.param([("cpu", 0), ("gpu", 1)], {"gpu": 4}, (4, "gpu"), id="none of one"),
        pytest.param([("cpu", 0)], {}, (MOST, "cpu"), id="none of anything"),
        pytest.param([("gpu", 1)], {"gpu": MOST + 9}, (MOST, "gpu"), id="no more than 32 bits"),
        pytest.param([("gpu", 1)], {"gpu": MOST - 1}, (MOST - 1, "gpu"), id="one below"),
    ],
)
def test_how_often_requests_fit(requests, capacity, want):
    assert count_in(requests, capacity) == want


def test_amounts_are_added_in_place():
    total = {"gpu": 2}
    add_amounts(total, {"gpu": 3, "cpu": 1})
    assert total == {"gpu": 5, "cpu": 1}
    subtract_amounts(total, {"gpu": 7, "pods": 2})
    assert total == {"gpu": -2, "cpu": 1, "pods": -2}


def test_the_domain_above():
    tree = tree_of(node("n1", "r1"))
    host, rack = tree.leaves["n1"], tree.by_level[0]["r1"]
    assert host.above(0) is rack
    assert host.above(1) is host
    assert rack.above(0) is rack
    assert rack.above(1) is rack
    orphan = Domain("x", ("r", "x"))
    assert orphan.above(0) is orphan
