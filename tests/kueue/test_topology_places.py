"""What is known of nodes and pods flavor by flavor, and where the usage of a flavor counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.kueue.configuration import Gates
from clusters.kueue.topology.need import Conditions, NoPlacement, PodSetNeed
from clusters.kueue.topology.nodes import NodeSpec, PodUse
from clusters.kueue.topology.places import FlavorNodes, Places, held_uses
from clusters.kueue.topology.tree import PlacedUse
from clusters.kueue.workload.matching import NodeRules, Toleration
from clusters.kueue.workload.placement import PlacedPods, Placement
from clusters.kueue.workload.requests import PodRequests
from clusters.kueue.workload.topology_request import TopologyRequest
from clusters.kueue.workload.workloads import PodSet, PodSetHold, PodShape, Reservation, Workload

RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
TOPOLOGIES = {"hosts": (RACK, HOST), "racks": (RACK,)}
FLAVORS = {
    "a": FlavorNodes("hosts", {"pool": "a"}, ()),
    "all": FlavorNodes("hosts", {}, (Toleration("k"),)),
    "racks": FlavorNodes("racks", {}, ()),
}


def node(name: str, *, pool: str = "a", rack: str = "r1", gpus: int = 8, **more: Any) -> NodeSpec:
    labels = {RACK: rack, HOST: name, "pool": pool}
    spec = NodeSpec(name, labels, (), {"gpu": gpus}, is_usable=True)
    return replace(spec, **more)


def use(flavor: str, domain: str, gpus: int) -> PlacedUse:
    return PlacedUse(flavor, domain, 1, {"gpu": gpus}, {"gpu": gpus, "pods": 1})


def pod(name: str, node: str, gpus: int) -> PodUse:
    return PodUse(name, node, {"gpu": gpus})


def places_of(*nodes: NodeSpec, **gates: bool) -> Places:
    places = Places(Gates(**gates))
    places.topologies.update(TOPOLOGIES)
    for item in nodes:
        places.set_node(item.name, item)
    places.reshape(FLAVORS, ())
    return places


def rests(places: Places) -> dict[str, dict[str, int]]:
    """What is left of GPUs by flavor and domain."""
    found = {}
    for flavor in FLAVORS:
        placer = places.placer(flavor)
        assert placer is not None
        leaves = placer.tree.leaves.items()
        found[flavor] = {name: leaf.rest.get("gpu", 0) for name, leaf in leaves}
    return found


def usages(places: Places) -> dict[str, dict[str, dict[str, int]]]:
    return {name: placer.tree.usage for name, placer in places._placers.items()}


def test_flavors_take_the_nodes_that_are_theirs():
    places = places_of(
        node("n2"), node("n1", pool="b", rack="r2", gpus=4), node("n3", is_usable=False)
    )
    assert rests(places) == {"a": {"n2": 8}, "all": {"n1": 4, "n2": 8}, "racks": {"r2": 4, "r1": 8}}
    made = places.placer("all")
    assert made is not None
    assert (made.tree.topology, made.tree.levels) == ("hosts", (RACK, HOST))
    assert (made.tree.node_labels, made.tree.tolerations) == ({}, (Toleration("k"),))
    # In order of their names, however they came.
    assert list(made.tree.leaves) == ["n1", "n2"]
    assert places.placer("gone") is None
    assert places.flavors_of("n1") == ["all", "racks"]
    assert places.flavors_of("n3") == ["a", "all", "racks"]
    assert places.flavors_of("gone") == []


@pytest.mark.parametrize(
    ("before", "after", "want", "want_rests"),
    [
        pytest.param(None, node("n"), True, ({"n": 8}, {"n": 8}, {"r1": 8}), id="came"),
        pytest.param(node("n"), node("n"), False, ({"n": 8}, {"n": 8}, {"r1": 8}), id="as it was"),
        pytest.param(node("n"), None, True, ({}, {}, {}), id="went"),
        pytest.param(None, None, False, ({}, {}, {}), id="never was"),
        pytest.param(
            node("n"), node("n", gpus=2), True, ({"n": 2}, {"n": 2}, {"r1": 2}), id="shrank"
        ),
        pytest.param(
            node("n"), node("n", pool="b"), True, ({}, {"n": 8}, {"r1": 8}), id="left one flavor"
        ),
        pytest.param(
            node("n", pool="b"), node("n"), True, ({"n": 8}, {"n": 8}, {"r1": 8}), id="joined one"
        ),
        pytest.param(
            node("n"), node("n", is_usable=False), True, ({}, {}, {}), id="can no longer be used"
        ),
        pytest.param(
            node("n", is_usable=False),
            node("n"),
            True,
            ({"n": 8}, {"n": 8}, {"r1": 8}),
            id="can be used again",
        ),
        pytest.param(
            None, node("n", labels={"pool": "a"}), False, ({}, {}, {}), id="of no topology"
        ),
        pytest.param(
            node("n", labels={}), node("n"), True, ({"n": 8}, {"n": 8}, {"r1": 8}), id="got labels"
        ),
        pytest.param(node("n"), node("n", labels={}), True, ({}, {}, {}), id="lost labels"),
    ],
)
def test_trees_follow_a_node(before, after, want, want_rests):
    places = places_of(*([before] if before is not None else []))
    assert places.set_node("n", after) is want
    assert rests(places) == dict(zip(FLAVORS, want_rests, strict=True))
    assert places.nodes == ({} if after is None else {"n": after})


def test_a_node_that_comes_back_finds_the_pods_on_it():
    places = places_of(node("n"))
    assert places.set_pod("p", pod("p", "n", 3)) == ""
    assert places.set_pod("q", pod("q", "other", 1)) == ""
    assert places.set_node("n", None)
    assert places.set_node("n", node("n", gpus=6))
    assert rests(places) == {"a": {"n": 3}, "all": {"n": 3}, "racks": {"r1": 3}}
    places.set_node("other", node("other"))
    assert rests(places)["a"] == {"n": 3, "other": 7}


def test_nodes_that_come_and_change_are_known_to_the_next_search():
    full, empty = {"gpu": 8, "pods": 9}, {"pods": 9}
    places = places_of(node("n1", allocatable=full))
    placer = places.placer("a")
    assert placer is not None
    request = TopologyRequest(required=RACK)
    shape = PodShape("", "", PodRequests({"gpu": 8}, of_pod={"gpu": 8}), NodeRules(), request)

    def found(pods: int) -> list[str]:
        need = PodSetNeed("main", shape, pods, {"gpu": 8}, request, "a")
        try:
            placed = placer.place(need, None, Conditions())["main"]
        except NoPlacement:
            return []
        return [item.domain for item in placed.domains]

    assert (found(1), found(2)) == (["n1"], [])
    places.set_node("n2", node("n2", allocatable=full))
    assert found(2) == ["n1", "n2"]
    places.set_node("n1", node("n1", allocatable=empty))
    assert (found(1), found(2)) == (["n2"], [])


def test_nodes_of_one_hostname_are_built_anew_in_their_order():
    second = node("n2", gpus=2, labels={RACK: "r1", HOST: "n1", "pool": "a"})
    places = places_of(second)
    assert rests(places)["a"] == {"n1": 2}
    places.set_node("n1", node("n1"))
    assert rests(places) == {"a": {"n1": 10}, "all": {"n1": 10}, "racks": {"r1": 10}}
    placer = places.placer("a")
    assert placer is not None
    assert placer.tree.leaves["n1"].node == node("n1")
    places.set_node("n1", None)
    assert placer.tree.leaves["n1"].node == second
    assert rests(places) == {"a": {"n1": 2}, "all": {"n1": 2}, "racks": {"r1": 2}}


@pytest.mark.parametrize(
    ("before", "after", "want", "want_left"),
    [
        pytest.param(None, pod("p", "n", 3), "", 5, id="came"),
        pytest.param(pod("p", "n", 3), pod("p", "n", 3), "", 5, id="as it was"),
        pytest.param(pod("p", "n", 3), None, "n", 8, id="went"),
        pytest.param(pod("p", "n", 3), pod("p", "", 3), "n", 8, id="ended"),
        pytest.param(None, pod("p", "", 3), "", 8, id="never ran"),
        pytest.param(pod("p", "n", 3), pod("p", "n", 4), "", 4, id="grew"),
        pytest.param(pod("p", "n", 3), pod("p", "n", 2), "n", 6, id="shrank"),
        pytest.param(pod("p", "n", 3), pod("p", "m", 4), "n", 8, id="moved"),
        pytest.param(pod("p", "m", 3), pod("p", "n", 3), "m", 5, id="moved here"),
        pytest.param(
            PodUse("p", "n", {"gpu": 1, "cpu": 1}),
            pod("p", "n", 5),
            "n",
            3,
            id="gave up one of two",
        ),
    ],
)
def test_a_pod_frees_its_node_where_it_takes_less(before, after, want, want_left):
    places = places_of(node("n"))
    if before is not None:
        assert places.set_pod("p", before) == ""
    assert places.set_pod("p", after) == want
    assert rests(places) == {
        "a": {"n": want_left},
        "all": {"n": want_left},
        "racks": {"r1": want_left},
    }
    is_there = after is not None and after.node
    assert places.pods == ({"p": after} if is_there else {})
    assert places._on_node == ({after.node: dict(after.amounts)} if is_there else {})


def test_pods_of_one_node_add_up():
    places = places_of(node("n"))
    places.set_pod("p", pod("p", "n", 3))
    places.set_pod("q", PodUse("q", "n", {"gpu": 1, "cpu": 2}))
    assert places._on_node == {"n": {"gpu": 4, "cpu": 2}}
    assert rests(places)["a"] == {"n": 4}
    assert places.set_pod("p", None) == "n"
    assert places._on_node == {"n": {"gpu": 1, "cpu": 2}}
    assert places.set_pod("p", None) == ""


def test_committed_usage_counts_in_every_flavor_by_host():
    places = places_of(node("n"))
    uses = [use("a", "n", 3), use("racks", "r1", 2), use("gone", "n", 9)]
    places.commit(uses)
    assert rests(places) == {"a": {"n": 5}, "all": {"n": 5}, "racks": {"r1": 6}}
    placed = {"gpu": 3, "pods": 1}
    assert usages(places) == {
        "a": {"n": placed},
        "all": {"n": placed},
        "racks": {"r1": {"gpu": 2, "pods": 1}},
    }
    places.withdraw(uses)
    assert usages(places) == {"a": {}, "all": {}, "racks": {}}
    assert rests(places) == {"a": {"n": 8}, "all": {"n": 8}, "racks": {"r1": 8}}


def test_without_the_gate_it_counts_in_its_own_flavor_alone():
    places = places_of(node("n"), tas_handle_overlapping_flavors=False)
    places.commit([use("a", "n", 3)])
    assert rests(places) == {"a": {"n": 5}, "all": {"n": 8}, "racks": {"r1": 8}}
    places.withdraw([use("a", "n", 3)])
    assert usages(places) == {"a": {}, "all": {}, "racks": {}}


def test_what_is_assumed_counts_in_its_own_flavor_alone():
    places = places_of(node("n"))
    uses = [use("a", "n", 3), use("gone", "n", 1), use("racks", "r1", 1)]
    places.assume(uses)
    assert rests(places) == {"a": {"n": 5}, "all": {"n": 8}, "racks": {"r1": 7}}
    places.release(uses)
    assert rests(places) == {"a": {"n": 8}, "all": {"n": 8}, "racks": {"r1": 8}}
    assert usages(places) == {"a": {}, "all": {}, "racks": {}}


@pytest.mark.parametrize(
    ("uses", "want"),
    [
        pytest.param([], True, id="nothing"),
        pytest.param([use("a", "n", 8), use("all", "n", 8)], True, id="each by itself"),
        pytest.param([use("a", "n", 8), use("all", "n", 9)], False, id="one is too large"),
        pytest.param([use("gone", "n", 1)], False, id="of a flavor that is gone"),
        pytest.param([use("a", "m", 1)], False, id="of a domain that is gone"),
    ],
)
def test_whether_placements_fit(uses, want):
    assert places_of(node("n")).fit(uses) is want


def test_flavors_are_built_anew_where_their_shape_changed():
    places = places_of(node("n"))
    before = places.placer("a")
    places.reshape(FLAVORS, [use("a", "n", 5)])
    assert places.placer("a") is before
    assert usages(places) == {"a": {}, "all": {}, "racks": {}}
    places.topologies["racks"] = ("pool",)
    places.reshape(FLAVORS, [use("a", "n", 5)])
    assert places.placer("a") is not before
    assert rests(places) == {"a": {"n": 3}, "all": {"n": 3}, "racks": {"a": 8}}
    places.topologies["hosts"] = ()
    places.reshape({**FLAVORS, "new": FlavorNodes("gone", {}, ())}, ())
    assert sorted(places._placers) == ["racks"]
    places.reshape({}, ())
    assert places._placers == {}


def test_without_topologies_in_the_gates_nothing_is_placed():
    places = places_of(node("n"), topology_aware_scheduling=False)
    assert places._placers == {}
    assert places.placer("a") is None


def test_a_copy_knows_nodes_and_pods_and_is_independent():
    places = places_of(node("n"), node("m"))
    places.set_pod("p", pod("p", "n", 3))
    places.commit([use("a", "n", 1)])
    copy = Places(places.gates)
    copy.adopt(places)
    copy.reshape(FLAVORS, ())
    assert (copy.topologies, copy.nodes, copy.pods) == (TOPOLOGIES, places.nodes, places.pods)
    assert rests(copy) == {"a": {"m": 8, "n": 5}, "all": {"m": 8, "n": 5}, "racks": {"r1": 13}}
    copy.set_pod("q", pod("q", "n", 1))
    copy.set_pod("p", None)
    copy.set_node("m", None)
    assert places._on_node == {"n": {"gpu": 3}}
    assert rests(places)["a"] == {"m": 8, "n": 4}


def test_what_a_workload_takes_of_the_topology():
    """Also what a pod set holds that its workload no longer names: a share of its amounts."""
    placed = Placement((HOST,), (PlacedPods(("n",), 2), PlacedPods(("m",), 1)))
    shape = PodShape("", "", PodRequests({}, of_pod={"gpu": 4}), NodeRules())
    holds = (
        PodSetHold("main", {"gpu": "f1", "cpu": "f0", "x": "f1"}, {"gpu": 99}, 3, placed),
        PodSetHold("plain", {"gpu": "f0"}, {"gpu": 1}, 1),
        PodSetHold("gone", {"gpu": "f0"}, {"gpu": 7, "cpu": 3}, 3, placed),
        PodSetHold("none", {"gpu": "f0"}, {"gpu": 7}, 0, placed),
    )
    at = datetime(2026, 1, 1, tzinfo=UTC)
    owner = Workload(
        key="ns/w",
        namespace="ns",
        name="w",
        uid="u",
        job_uid="",
        queue_name="q",
        priority=0,
        created_at=at,
        queued_at=at,
        pod_sets=(PodSet("main", 3, None, shape),),
        shape_hash="",
    )
    of_pod, of_gone, of_none = {"gpu": 4}, {"gpu": 2, "cpu": 1}, {"gpu": 7}
    want = (
        PlacedUse("f0", "n", 2, of_pod, {"gpu": 8, "pods": 2}),
        PlacedUse("f0", "m", 1, of_pod, {"gpu": 4, "pods": 1}),
        PlacedUse("f1", "n", 2, of_pod, {"gpu": 8, "pods": 2}),
        PlacedUse("f1", "m", 1, of_pod, {"gpu": 4, "pods": 1}),
        PlacedUse("f0", "n", 2, of_gone, {"gpu": 4, "cpu": 2, "pods": 2}),
        PlacedUse("f0", "m", 1, of_gone, {"gpu": 2, "cpu": 1, "pods": 1}),
        PlacedUse("f0", "n", 2, of_none, {"gpu": 14, "pods": 2}),
        PlacedUse("f0", "m", 1, of_none, {"gpu": 7, "pods": 1}),
    )
    reserved = Reservation("q", holds, at, is_admitted=True)
    assert held_uses(replace(owner, reservation=reserved)) == want
    assert held_uses(owner) == ()
    plain = Reservation("q", holds[1:2], at, is_admitted=True)
    assert held_uses(replace(owner, reservation=plain)) == ()
