"""What if there were more nodes, or some took no pods any more: told on a copy, nothing is left."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from clusters.kueue.explanation.asking import (
    MOST_LISTED,
    answer_document,
    change_fault,
    read_changes,
)
from clusters.kueue.explanation.changes import MOST_NODES, AnyChange, Inapplicable
from clusters.kueue.explanation.what_if import Bounds, Forecast, what_if
from tests.kueue.builders import GPU, World, cluster_queue, flavor, group, quota, workload
from tests.kueue.test_topology import BLOCK, RACK, asking, fleet, node, racks
from tests.kueue.test_topology_fleets import picture, random_fleet, random_workload


def add(**more: Any) -> dict[str, Any]:
    return {"kind": "AddNodes", "flavor": "f0", "count": 2, "resource": GPU, "gpus": 8, **more}


def taint(**more: Any) -> dict[str, Any]:
    return {"kind": "TaintNodes", **more}


def read(*asked: dict[str, Any]) -> list[AnyChange]:
    return read_changes(asked)


def ask(world: World, *asked: dict[str, Any]) -> Forecast:
    return what_if(world.engine, read(*asked), now=world.now)


def full(*more: dict[str, Any], **spec: Any) -> World:
    """Two racks of two nodes, one job on each; ``more`` waits."""
    world = fleet(*racks(b1_r1=2, b1_r2=2), **spec)
    world.feed(
        workload("one", "q", asking(2, required=RACK)),
        workload("two", "q", asking(2, required=RACK), age=1),
    )
    world.run()
    assert held(world) == {"ns/one", "ns/two"}
    world.feed(*more)
    world.run()
    return world


def held(world: World) -> set[str]:
    return {holding.workload.key for holding in world.engine.state.snapshot.holdings()}


def first_of(world: World) -> tuple[str, str]:
    """The rack of job one, and the other one."""
    tree = world.engine.state.snapshot.places.placer("f0")
    assert tree is not None
    holding = world.engine.state.snapshot.holding("ns/one")
    assert holding is not None
    rack = holding.places[0].domain.rpartition("-")[0]
    return rack, {"b1-r1": "b1-r2", "b1-r2": "b1-r1"}[rack]


def test_a_new_rack_starts_what_fits_into_one():
    world = full(workload("three", "q", asking(2, required=RACK)))
    found = ask(world, add())
    assert list(found.admitted) == ["ns/three"]
    assert found.is_settled and not found.preempted
    assert not found.opened and not found.barred


def test_nodes_that_join_a_rack_count_in_it():
    wide = workload("wide", "q", asking(4, required=RACK))
    world = full(wide)
    apart, joined = ask(world, add()), ask(world, add(within=["b1", "b1-r1"]))
    assert not apart.admitted and not apart.opened
    assert not joined.admitted and joined.opened == {"ns/wide": "q"}
    world.engine.delete("Workload", key="ns/one", now=world.now)
    world.engine.delete("Workload", key="ns/two", now=world.now)
    world.run()
    assert list(ask(world, add(within=["b1", "b1-r1"])).admitted) == ["ns/wide"]
    assert list(ask(world, add(count=4)).admitted) == ["ns/wide"]


def test_a_new_rack_of_a_block_is_in_that_block():
    world = full(workload("block", "q", asking(6, required=BLOCK)))
    assert ask(world, add(within=["b1"])).opened == {"ns/block": "q"}
    assert not ask(world, add()).opened


def test_nodes_without_quota_start_nothing():
    world = fleet(*racks(b1_r1=1))
    world.feed(workload("w", "q", asking(200, gpus=8, required=RACK)))
    world.run()
    assert not ask(world, add(count=300)).admitted
    raised = {"kind": "Raise", "on": "ClusterQueue", "key": "q", "flavor": "f0", "amount": 1000}
    assert list(ask(world, raised, add(count=300)).admitted) == ["ns/w"]


def test_a_new_node_has_the_other_resources_of_the_largest_of_its_flavor():
    small = {**asking(1, required=RACK)}
    small["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "65"
    world = fleet(*racks(b1_r1=1))
    world.feed(
        {**world_queue(cpu=1000)},
        workload("w", "q", small),
    )
    world.run()
    assert not ask(world, add()).admitted
    assert not ask(world, add()).opened
    # Where no node of the flavor is known, nothing but GPUs is short.
    empty = fleet().feed({**world_queue(cpu=1000)}, workload("w", "q", small))
    empty.run()
    assert list(ask(empty, add()).admitted) == ["ns/w"]


def world_queue(*, cpu: int) -> dict[str, Any]:
    """The queue with quota of CPUs too."""
    amounts = [
        {"name": GPU, "nominalQuota": "1000"},
        {"name": "cpu", "nominalQuota": str(cpu)},
    ]
    group = {
        "coveredResources": [GPU, "cpu"],
        "flavors": [{"name": "f0", "resources": amounts}],
    }
    return {
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    }


def test_a_cordoned_rack_bars_what_fits_nowhere_else_and_stops_nothing():
    world = fleet(*racks(b1_r1=2, b1_r2=4))
    world.feed(workload("runs", "q", asking(4, required=RACK)))
    world.run()
    world.feed(
        workload("wide", "q", asking(4, required=RACK)),
        workload("small", "q", asking(3, required=RACK), age=1),
    )
    world.run()
    found = ask(world, taint(flavor="f0", within=["b1", "b1-r2"]))
    assert found.barred == {"ns/wide": "q", "ns/small": "q"}
    assert not found.preempted and not found.admitted
    none = ask(world, taint(flavor="f0", within=["b1", "b1-r1"]))
    assert not none.barred


def test_a_drained_rack_stops_what_runs_there_and_it_starts_again_where_there_is_room():
    world = full()
    rack, other = first_of(world)
    found = ask(world, taint(flavor="f0", within=["b1", rack], drains=True))
    assert [(item.key, item.preemptor) for item in found.preempted] == [("ns/one", "")]
    assert not found.admitted and found.waiting == 1
    assert not found.barred, "it fits into the other rack once that is free"
    both = ask(world, taint(flavor="f0", within=["b1"], drains=True))
    assert both.barred == {"ns/one": "q", "ns/two": "q"}
    again = ask(world, taint(flavor="f0", within=["b1", rack], drains=True), add())
    assert list(again.admitted) == ["ns/one"]
    answer = answer_document(world.engine, again)
    [stopped] = answer["stopped"]
    assert (stopped["key"], stopped["restarts"]) == ("ns/one", True)
    assert other != rack


def test_nodes_are_tainted_by_their_names_and_those_who_tolerate_it_stay():
    tolerant = asking(
        2, required=RACK, pods={"tolerations": [{"key": "repair", "operator": "Exists"}]}
    )
    world = fleet(*racks(b1_r1=2))
    world.feed(workload("runs", "q", tolerant))
    world.run()
    names = ["b1-r1-n1", "b1-r1-n2"]
    assert not ask(world, taint(names=names, taint="repair=today", drains=True)).preempted
    cordoned = ask(world, taint(names=names, drains=True))
    assert [item.key for item in cordoned.preempted] == ["ns/runs"]
    assert cordoned.barred == {"ns/runs": "q"}
    world.feed(workload("later", "q", tolerant), workload("plain", "q", asking(2, required=RACK)))
    world.run()
    assert ask(world, taint(names=names, taint="repair=today")).barred == {"ns/plain": "q"}


def test_one_node_of_a_job_is_enough_for_it_to_stop():
    world = full()
    rack, _ = first_of(world)
    found = ask(world, taint(names=[f"{rack}-n1"], drains=True))
    assert [item.key for item in found.preempted] == ["ns/one"]
    assert not ask(world, taint(names=[f"{rack}-n1"])).preempted


def test_where_racks_are_the_smallest_domain_a_part_of_one_cannot_be_drained():
    world = fleet(*racks(b1_r1=2), levels=(BLOCK, RACK))
    world.feed(workload("one", "q", asking(2, required=RACK)))
    world.run()
    with pytest.raises(Inapplicable, match="which of them run on b1-r1-n1 is not known"):
        ask(world, taint(names=["b1-r1-n1"], drains=True))
    whole = ask(world, taint(flavor="f0", within=["b1", "b1-r1"], drains=True))
    assert [item.key for item in whole.preempted] == ["ns/one"]
    assert not ask(world, taint(names=["b1-r1-n1"])).preempted
    world.feed(workload("wide", "q", asking(4, required=RACK)))
    world.run()
    assert ask(world, add(within=["b1", "b1-r1"])).opened == {"ns/wide": "q"}


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(add(flavor="f9"), "has no topology on this cluster. .* f0", id="flavor"),
        pytest.param(
            add(within=["b1", "r", "n"]), "deeper than the levels of flavor f0", id="depth"
        ),
        pytest.param(
            taint(names=["b1-r1-n1", "x", "y"]), "has a node x, y on this cluster", id="names"
        ),
        pytest.param(
            taint(names=[f"n{index}" for index in range(5)]), "n0, n1, n2 and 2 more", id="many"
        ),
        pytest.param(
            taint(flavor="f0", within=["b1", "r9"]), "no node in b1/r9", id="no such domain"
        ),
    ],
)
def test_nodes_that_make_no_sense_are_refused_with_what_is_wrong(change, want):
    with pytest.raises(Inapplicable, match=want):
        ask(full(), change)


@pytest.mark.parametrize("change", [add(), taint(names=["n"]), taint(flavor="f0")])
def test_a_cluster_that_knows_no_nodes_says_so(change):
    world = World().feed(workload("w", "q", gpus=2))
    with pytest.raises(Inapplicable, match="no node is known to what decides there"):
        ask(world, change)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(add(flavor=""), "AddNodes needs flavor, a name", id="no flavor"),
        pytest.param(add(resource=None), "AddNodes needs resource", id="no resource"),
        pytest.param(add(count=0), "count, a whole number from 1 to 1,000, not 0", id="none"),
        pytest.param(add(count=MOST_NODES + 1), "from 1 to 1,000, not 1001", id="too many"),
        pytest.param(add(gpus=1001), "gpus, a whole number from 1 to 1,000", id="no machine"),
        pytest.param(add(gpus=True), "gpus, a whole number", id="a truth"),
        pytest.param(add(within=["x"] * 17), "at most 16 names", id="too deep"),
        pytest.param(add(within="rack"), "as a list", id="within is no list"),
        pytest.param(add(within=["x" * 254]), "at most 16 names", id="a long name"),
        pytest.param(taint(), "names of nodes, or a flavor", id="nothing named"),
        pytest.param(taint(names=["a"], flavor="f0"), "not both", id="both"),
        pytest.param(taint(names=["a"], within=["r"]), "beside a flavor", id="within names"),
        pytest.param(
            taint(names=["n"] * (MOST_NODES + 1)), "at most 1,000 names", id="too many names"
        ),
        pytest.param(taint(flavor="f0", within=[""]), "at most 16 names", id="an empty name"),
        pytest.param(taint(names=["a"], taint=7), "taint as KEY=VALUE", id="taint is no text"),
        pytest.param(taint(names=["a"], taint="x" * 507), "taint as KEY", id="a long taint"),
        pytest.param(taint(names=["a"], drains="yes"), "true or false, not 'yes'", id="drains"),
    ],
)
def test_malformed_change_of_nodes_is_named(change, want):
    assert want in change_fault(change)
    with pytest.raises(ValueError, match=r"AddNodes|TaintNodes"):
        read(change)


@pytest.mark.parametrize("change", [add(), add(within=[]), taint(names=["n"]), taint(flavor="f")])
def test_sound_change_of_nodes_has_no_fault(change):
    assert change_fault(change) == ""


def test_asking_about_nodes_leaves_the_engine_as_it_was():
    """Whatever is asked of whatever fleet, also where it is refused."""
    told = 0
    for seed in range(30):
        rng = Random(seed)
        world = random_fleet(rng)
        for index in range(rng.randint(1, 6)):
            world.feed(random_workload(rng, f"w{index}"))
        world.run()
        placer = world.engine.state.snapshot.places.placer("f0")
        assert placer is not None
        names = sorted(world.engine.state.snapshot.places.nodes)
        before = (picture(placer.tree), names, world.usage(), world.order("q"), held(world))
        for change in (
            add(count=rng.randint(1, 5), within=[["b1"], []][seed % 2]),
            taint(names=rng.sample(names, 1), drains=True),
            taint(names=names, taint="broken=", drains=bool(seed % 2)),
            taint(flavor="f0", within=["b1"], drains=True),
        ):
            try:
                found = ask(world, change)
            except Inapplicable:
                continue
            told += bool(found.admitted or found.preempted or found.barred or found.opened)
            assert (
                picture(placer.tree),
                sorted(world.engine.state.snapshot.places.nodes),
                world.usage(),
                world.order("q"),
                held(world),
            ) == before
    assert told > 30


def test_what_is_told_of_a_rack_is_what_happens_when_it_comes():
    """The same nodes fed to the fleet itself admit the same workloads."""
    for seed in range(20):
        rng = Random(seed)
        world = random_fleet(rng)
        for index in range(8):
            world.feed(random_workload(rng, f"w{index}"))
        world.run()
        before = held(world)
        told = ask(world, add(count=3, within=["b1"]))
        world.feed(*(node(f"new{index}", "b1-new", pods=4) for index in range(3)))
        world.run()
        lost = {item.key for item in told.preempted}
        assert held(world) == (before - lost) | told.admitted.keys(), seed


def test_what_is_barred_does_not_start_even_alone_and_the_rest_is_as_told():
    """The nodes are cordoned in the fleet itself; then those that are barred have it alone."""
    barred = 0
    for seed in range(60):
        rng = Random(seed)
        world = random_fleet(rng)
        for index in range(8):
            world.feed(random_workload(rng, f"w{index}"))
        world.run()
        before = held(world)
        nodes = world.engine.state.snapshot.places.nodes
        names = sorted(rng.sample(sorted(nodes), (len(nodes) + 1) // 2))
        told = ask(world, taint(names=names))
        assert not told.preempted
        for name in names:
            spec = nodes[name]
            gpus, rack = spec.allocatable[GPU], spec.labels[RACK]
            taints = [{"key": each.key, "effect": each.effect} for each in spec.taints]
            world.feed(node(name, rack, gpus=gpus, pods=4, unschedulable=True, taints=taints))
        world.run()
        assert held(world) == before | told.admitted.keys(), seed
        for key in [*held(world), *world.order("q")]:
            if key not in told.barred:
                world.engine.delete("Workload", key=key, now=world.now)
        for key in told.barred:
            barred += 1
            world.engine.wake("q")
            world.run()
            assert key not in held(world), (seed, key)
    assert barred > 10


def test_an_answer_that_would_take_too_long_says_so_and_bars_nothing_it_did_not_look_at():
    world = full(workload("wide", "q", asking(4, required=RACK)))
    found = what_if(
        world.engine,
        read(taint(flavor="f0", within=["b1"])),
        now=world.now,
        bounds=Bounds(is_over=lambda: True),
    )
    assert not found.is_settled
    assert not found.barred and not found.opened


def test_lists_of_an_answer_are_bounded_and_counted():
    waiting = [
        workload(f"w{index:04}", "q", asking(2, required=RACK), age=index)
        for index in range(MOST_LISTED + 3)
    ]
    world = full(*waiting)
    found = ask(world, taint(flavor="f0", within=["b1"]))
    answer = answer_document(world.engine, found)
    assert answer["barredCount"] == MOST_LISTED + 3
    assert len(answer["barred"]) == MOST_LISTED
    assert answer["barred"][0] == {"key": "ns/w0000", "clusterQueue": "q"}
    assert (answer["opened"], answer["openedCount"]) == ([], 0)


def test_a_job_that_asks_for_no_domain_is_not_barred():
    world = full(
        flavor("plain"),
        cluster_queue("other", group(plain=quota(1))),
        workload("waits", "other", gpus=2),
    )
    found = ask(world, taint(flavor="f0"))
    assert found.waiting == 1
    assert not found.barred and not found.opened
