"""Forecasts on a copy: what starts, what is lost, and that nothing changes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.kueue.explanation.asking import answer_document, change_fault, read_changes
from clusters.kueue.explanation.changes import (
    Drain,
    Inapplicable,
    ObjectChange,
    Raise,
    touched_queues,
)
from clusters.kueue.explanation.what_if import Bounds, run_until_quiet, what_if
from tests.kueue.bench_engine import START, Shape, Share, load
from tests.kueue.builders import (
    GPU,
    World,
    cluster_queue,
    cohort,
    group,
    local_queue,
    preemption,
    quota,
    reserved,
    workload,
)


def two_queues() -> World:
    return World().feed(
        cluster_queue(
            "a", group(f0=quota(4)), in_cohort="pool", preemption=preemption("Never", "Any")
        ),
        cluster_queue("b", group(f0=quota(4)), in_cohort="pool"),
        reserved(workload("borrower", "b", gpus=4), "b"),
        reserved(workload("second", "b", gpus=4), "b", at="2026-01-01T00:00:09Z"),
        workload("w", "b", gpus=2),
    )


def test_more_quota_starts_what_waits():
    world = two_queues()
    raised = cluster_queue("a", group(f0=quota(12)), in_cohort="pool")
    forecast = what_if(world.engine, [ObjectChange("ClusterQueue", raised)], now=world.now)
    assert list(forecast.admitted) == ["ns/w"]
    assert forecast.gained["b"] == {("f0", GPU): 8}
    assert forecast.is_settled


def test_lent_quota_that_goes_away_shows_as_lost():
    world = two_queues()
    forecast = what_if(world.engine, [ObjectChange("ClusterQueue", key="a")], now=world.now)
    assert forecast.lost == {"a": {("f0", GPU): 8}, "b": {("f0", GPU): 4}}
    assert set(forecast.pending) == {"ns/w"}


def test_owner_that_comes_back_preempts_the_borrower():
    world = two_queues()
    forecast = what_if(
        world.engine, [ObjectChange("Workload", workload("mine", "a", gpus=4))], now=world.now
    )
    assert [item.key for item in forecast.preempted] == ["ns/second"]
    assert "ns/mine" in forecast.admitted


def test_strict_queue_that_cannot_move_settles():
    world = World().feed(
        cluster_queue("q", group(f0=quota(1)), queueingStrategy="StrictFIFO"),
        workload("w", "q", gpus=2),
    )
    forecast = what_if(world.engine, [], now=world.now)
    assert forecast.is_settled
    assert list(forecast.pending) == ["ns/w"]


sizes = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["a", "b"])), max_size=6)


@settings(max_examples=60)
@given(sizes, st.integers(0, 12))
def test_asking_leaves_the_engine_as_it_was(arrivals, nominal):
    world = two_queues()
    world.run(3)
    before = (world.usage(), [world.order(n) for n in "ab"])
    changes = [
        ObjectChange("ClusterQueue", cluster_queue("a", group(f0=quota(nominal)), in_cohort="x"))
    ]
    changes += [
        ObjectChange("Workload", workload(f"n{index}", name, gpus=gpus, priority=index))
        for index, (gpus, name) in enumerate(arrivals)
    ]
    changes.append(ObjectChange("Workload", key="ns/borrower"))
    what_if(world.engine, changes, now=world.now)
    after = (world.usage(), [world.order(n) for n in "ab"])
    assert after == before


def test_raised_quota_is_told_as_an_answer():
    world = two_queues()
    changes = read_changes(
        [{"kind": "Raise", "on": "ClusterQueue", "key": "b", "flavor": "f0", "amount": 2}]
    )
    forecast = what_if(world.engine, changes, now=world.now)
    assert answer_document(world.engine, forecast) == {
        "started": [
            {
                "key": "ns/w",
                "clusterQueue": "b",
                "flavors": {"main": {GPU: "f0"}},
                "amounts": {f"f0/{GPU}": 2},
            }
        ],
        "startedCount": 1,
        "preempted": [],
        "preemptedCount": 0,
        "stopped": [],
        "stoppedCount": 0,
        "barred": [],
        "barredCount": 0,
        "opened": [],
        "openedCount": 0,
        "pending": 0,
        "lost": {},
        "gained": {name: {f"f0/{GPU}": 2} for name in "ab"},
        "settled": True,
    }


def test_preempted_says_for_whom_and_what_it_held():
    world = two_queues()
    mine = {"kind": "Workload", "document": workload("mine", "a", gpus=4)}
    answer = answer_document(
        world.engine, what_if(world.engine, read_changes([mine]), now=world.now)
    )
    assert answer["preempted"] == [
        {
            "key": "ns/second",
            "clusterQueue": "b",
            "preemptor": "ns/mine",
            "reason": "InCohortReclamation",
            "amounts": {f"f0/{GPU}": 4},
            "restarts": False,
        }
    ]
    assert [item["key"] for item in answer["started"]] == ["ns/mine"]
    assert answer["pending"] == 2


def test_drained_cluster_stops_everything_and_loses_all_capacity():
    world = two_queues()
    answer = answer_document(world.engine, what_if(world.engine, [Drain()], now=world.now))
    assert {item["key"] for item in answer["stopped"]} == {"ns/borrower", "ns/second"}
    assert (answer["stoppedCount"], answer["preemptedCount"], answer["pending"]) == (2, 0, 3)
    assert answer["lost"] == {name: {f"f0/{GPU}": 8} for name in "ab"}


def test_node_pool_on_a_cohort_is_for_every_queue_below():
    world = two_queues().feed(cohort("pool"))
    forecast = what_if(world.engine, [Raise("Cohort", "pool", "f0", GPU, 16)], now=world.now)
    assert forecast.gained == {name: {("f0", GPU): 16} for name in "ab"}
    assert list(forecast.admitted) == ["ns/w"]


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(
            Raise("ClusterQueue", "x", "f0", "", 1), "no ClusterQueue x", id="unknown queue"
        ),
        pytest.param(Raise("Cohort", "x", "f0", "", 1), "no Cohort x", id="unknown cohort"),
        pytest.param(
            Raise("ClusterQueue", "a", "f9", GPU, 1), "in flavor f9: name one", id="unknown flavor"
        ),
        pytest.param(
            Raise("ClusterQueue", "a", "f9", "", 1), "quota of 0 resources", id="no resource"
        ),
    ],
)
def test_change_that_makes_no_sense_is_refused_with_what_is_wrong(change, want):
    world = two_queues()
    with pytest.raises(Inapplicable, match=want):
        what_if(world.engine, [change], now=world.now)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"kind": "Pod"}, "Kind 'Pod' is not one of", id="kind"),
        pytest.param({"kind": "Cohort"}, "as document, or its key", id="nothing"),
        pytest.param({"kind": "Cohort", "document": {}}, "no metadata.name", id="no name"),
        pytest.param({"kind": "Raise", "on": "Pod"}, "Quota is raised on", id="raise on what"),
        pytest.param({"kind": "Raise", "on": "Cohort"}, "needs key", id="raise what"),
        pytest.param(
            {"kind": "Raise", "on": "Cohort", "key": "a", "flavor": "f", "amount": 0.5},
            "whole number other than 0, not 0.5",
            id="raise by what",
        ),
        pytest.param({"kind": "Drain"}, "", id="drain"),
        pytest.param({"kind": "Cohort", "key": "a"}, "", id="delete"),
    ],
)
def test_malformed_change_is_named(change, want):
    assert want in change_fault(change)
    assert bool(want) == bool(change_fault(change))


def forest(engine_changes):
    """Three trees, some full, with workloads that wait in each."""
    world = World().feed(
        *(
            cluster_queue(
                f"{tree}{index}",
                group(f0=quota(4)),
                in_cohort="" if tree == "z" else tree,
                preemption=preemption("LowerPriority", "Any"),
            )
            for tree in "xyz"
            for index in range(2)
        )
    )
    for number, (name, gpus, priority) in enumerate(engine_changes):
        world.feed(workload(f"w{number}", name, gpus=gpus, priority=priority, age=number))
    run_until_quiet(world.engine, now=world.now, bounds=Bounds())
    return world


names = st.sampled_from([f"{tree}{index}" for tree in "xyz" for index in range(2)])


@settings(max_examples=40)
@given(
    st.lists(st.tuples(names, st.integers(1, 6), st.integers(0, 2)), max_size=12),
    names,
    st.integers(-4, 9).filter(bool),
)
def test_trees_that_a_change_touches_are_enough(waiting, name, amount):
    world = forest(waiting)
    change = Raise("ClusterQueue", name, "f0", GPU, amount)
    touched = touched_queues(world.engine, [change])
    assert touched is not None
    assert touched == {each for each in touched if each[0] == name[0]}
    some = what_if(world.engine, [change], now=world.now)
    # A namespace without a consequence makes it a question about everything.
    nothing = ObjectChange("Namespace", {"metadata": {"name": "ns"}})
    everything = what_if(world.engine, [change, nothing], now=world.now)
    assert (some.admitted, some.preempted) == (everything.admitted, everything.preempted)
    assert (some.lost, some.gained, some.waiting) == (
        everything.lost,
        everything.gained,
        everything.waiting,
    )


def test_what_is_drained_waits_until_its_time():
    document = reserved(workload("w", "q", gpus=2), "q")
    document["status"]["requeueState"] = {"requeueAt": "2026-01-01T05:00:00Z"}
    world = World().feed(cluster_queue("q", group(f0=quota(4))), document)
    forecast = what_if(world.engine, [Drain()], now=world.now)
    assert [(item.key, item.reason) for item in forecast.preempted] == [
        ("ns/w", "ClusterQueueStopped")
    ]
    assert forecast.admitted == {}
    assert world.usage()["q"] == {("f0", GPU): 2}


HELD = reserved(workload("held", "b", gpus=1), "b")
AT_C = reserved(workload("x", "gone", gpus=1), "c")


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(
            ObjectChange("ClusterQueue", cluster_queue("a", in_cohort="other")),
            "abc",
            id="a queue goes to another Cohort",
        ),
        pytest.param(ObjectChange("ClusterQueue", cluster_queue("d")), "d", id="a queue alone"),
        pytest.param(ObjectChange("ClusterQueue", key="a"), "ab", id="a queue goes"),
        pytest.param(ObjectChange("ClusterQueue", key="gone"), "", id="an unknown queue"),
        pytest.param(
            ObjectChange("Cohort", cohort("pool", "other")), "abc", id="a Cohort goes to another"
        ),
        pytest.param(ObjectChange("Cohort", key="other"), "c", id="a Cohort goes"),
        pytest.param(
            ObjectChange("LocalQueue", local_queue("a", "d")), "dab", id="a LocalQueue points anew"
        ),
        pytest.param(ObjectChange("LocalQueue", key="ns/c"), "c", id="a LocalQueue goes"),
        pytest.param(ObjectChange("Workload", workload("new", "c")), "c", id="a new workload"),
        pytest.param(
            ObjectChange("Workload", workload("held", "d")), "dab", id="one that held quota"
        ),
        pytest.param(
            ObjectChange("Workload", workload("waits", "d")), "cd", id="one that waited elsewhere"
        ),
        pytest.param(ObjectChange("Workload", AT_C), "c", id="one that holds quota now"),
        pytest.param(ObjectChange("Workload", key="ns/held"), "ab", id="one with quota goes"),
        pytest.param(ObjectChange("Workload", key="ns/waits"), "c", id="one that waits goes"),
        pytest.param(Raise("Cohort", "pool", "f0", GPU, 1), "ab", id="more for a Cohort"),
        pytest.param(Raise("ClusterQueue", "d", "f0", GPU, 1), "d", id="more for a queue"),
        pytest.param(ObjectChange("ResourceFlavor", key="f0"), None, id="a flavor goes"),
        pytest.param(Drain(), None, id="everything goes"),
    ],
)
def test_trees_that_a_change_is_about(change, want):
    world = World().feed(
        *(cluster_queue(name, group(f0=quota(2)), in_cohort="pool") for name in "ab"),
        cluster_queue("c", group(f0=quota(2)), in_cohort="other"),
        cluster_queue("d", group(f0=quota(2))),
        HELD,
        workload("waits", "c", gpus=9),
    )
    world.engine.state.settle(world.now)
    found = touched_queues(world.engine, [change])
    assert found == (None if want is None else set(want))


def test_answer_that_would_take_too_long_says_how_far_it_came():
    world = two_queues()
    bounds = Bounds(is_over=lambda: True)
    forecast = what_if(world.engine, [Drain()], now=world.now, bounds=bounds)
    assert not forecast.is_settled
    assert len(forecast.preempted) == 2


@pytest.mark.slow
@pytest.mark.parametrize("change", [Raise("ClusterQueue", "c0-q0", "default", "", 8000), Drain()])
def test_answer_of_a_thousand_queues_takes_less_than_a_second(change):
    """1,000 queues in 10 Cohorts, 10,000 workloads of which 1,000 run."""
    classes = (Share(7, 1, 200, 50), Share(2, 5, 500, 100), Share(1, 20, 1000, 200))
    engine, _ = load(Shape(10, 100, classes))
    run_until_quiet(engine, now=START, bounds=Bounds(1000))
    begun = time.process_time()
    forecast = what_if(engine, [change], now=START)
    assert time.process_time() - begun < 1
    assert forecast.is_settled
    assert forecast.admitted or forecast.preempted
