"""Domains of nodes: what they have, and what labels get wrong."""

from __future__ import annotations

import pytest

from budgets import services
from clusters.models import Cluster, NodeSight
from clusters.selectors.racks import Node, labels_seen, largest_domains, nodes_of, standings
from tests.builders import SmallFleet

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"


def node(name: str, block: str, rack: str, *, gpus: int = 8, free: int = 8) -> Node:
    labels = {BLOCK: block, RACK: rack, HOST: name}
    return Node("east", name, {key: value for key, value in labels.items() if value}, gpus, free)


def test_domains_add_up_and_those_with_room_come_first():
    nodes = [node("a", "b0", "r0", free=2), node("b", "b0", "r1"), node("c", "b1", "r2", free=0)]
    (found,) = standings((BLOCK, RACK, HOST), nodes)
    assert [(row.path, row.nodes, row.gpus, row.free) for row in found.below(())] == [
        (("b0",), 2, 16, 10),
        (("b1",), 1, 8, 0),
    ]
    assert [(row.name, row.free) for row in found.below(("b0",))] == [("r1", 8), ("r0", 2)]
    assert [row.name for row in found.below(("b0", "r0"))] == ["a"]
    assert found.below(("b0", "r0", "a")) == found.below(("nowhere",)) == []
    assert (found.findings, found.outside) == ((), ())


def test_missing_labels_are_told_with_nodes_and_the_way_out():
    nodes = [node(f"n{n}", "b0", "" if n else "r0") for n in range(6)]
    (found,) = standings((BLOCK, RACK, HOST), nodes)
    assert found.outside == ("n1", "n2", "n3", "n4", "n5")
    (finding,) = found.findings
    assert finding.text == (
        "5 of 6 nodes have no label example.com/rack: n1, n2, n3 and 2 more. "
        "No pod that asks for a topology runs there."
    )
    assert finding.advice == "kubectl label node n1 example.com/rack=RACK"
    assert sum(row.nodes for row in found.below(())) == 1


def test_a_rack_in_two_blocks_is_told():
    nodes = [node("a", "b0", "r0"), node("b", "b1", "r0"), node("c", "b1", "r1")]
    (found,) = standings((BLOCK, RACK, HOST), nodes)
    (finding,) = found.findings
    assert finding.text == (
        "The rack r0 is in 2 domains of the level block: b0, b1. "
        "It counts as 2, and no job spans them as one."
    )
    assert "same label example.com/block" in finding.advice


def test_clusters_stand_apart_and_labels_are_listed_with_few_values_first():
    other = Node("west", "x", {BLOCK: "b0", RACK: "r9", HOST: "x"}, 4, 4)
    nodes = [node("a", "b0", "r0"), node("b", "b0", "r1"), other]
    assert [each.cluster for each in standings((BLOCK,), nodes)] == ["east", "west"]
    assert [(row.key, row.nodes, row.values) for row in labels_seen(nodes)] == [
        (BLOCK, 3, 1),
        (RACK, 3, 3),
    ]


@pytest.mark.django_db
def test_largest_domains_come_from_nodes_of_registered_clusters(fleet: SmallFleet):
    for slug, state in (("east", "active"), ("gone", "removed")):
        Cluster.objects.create(
            slug=slug, name=slug, role="worker", mode="kueue", state=state, server="https://x",
            context="x", user_kind="token", kubeconfig_sealed=b"x",
        )  # fmt: skip
        for number in range(3):
            NodeSight.objects.create(
                cluster=slug,
                name=f"n{number}",
                flavor="h100",
                labels={BLOCK: "b0", RACK: f"r{number // 2}", HOST: f"n{number}"},
                gpus=8,
                used=20 if number else 3,
            )
    h100 = fleet.flavors["h100"]
    nodes = nodes_of(["h100", "l4"])
    assert [(row.name, row.free) for row in nodes["h100"]] == [("n0", 5), ("n1", 0), ("n2", 0)]
    assert largest_domains([h100]) == []
    topology = services.create_topology(None, slug="t", name="T", levels=[BLOCK, RACK, HOST])
    services.give_topology(None, flavor=h100, topology=topology)
    h100.refresh_from_db()
    assert largest_domains([h100]) == [(h100, [("rack", 16), ("block", 24)])]
