"""Forecasts on a copy: what starts, what is lost, and that nothing changes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.kueue.reports import pending_order
from clusters.kueue.what_if import Change, what_if
from tests.kueue.builders import (
    GPU,
    World,
    cluster_queue,
    group,
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
    forecast = what_if(world.engine, [Change("ClusterQueue", raised)], now=world.now)
    assert list(forecast.admitted) == ["ns/w"]
    assert forecast.gained["b"] == {("f0", GPU): 8}
    assert forecast.is_settled


def test_lent_quota_that_goes_away_shows_as_lost():
    world = two_queues()
    forecast = what_if(world.engine, [Change("ClusterQueue", key="a")], now=world.now)
    assert forecast.lost == {"a": {("f0", GPU): 8}, "b": {("f0", GPU): 4}}
    assert set(forecast.pending) == {"ns/w"}


def test_owner_that_comes_back_preempts_the_borrower():
    world = two_queues()
    forecast = what_if(
        world.engine, [Change("Workload", workload("mine", "a", gpus=4))], now=world.now
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


@settings(max_examples=60, deadline=None)
@given(sizes, st.integers(0, 12))
def test_asking_leaves_the_engine_as_it_was(arrivals, nominal):
    world = two_queues()
    world.run(3)
    before = (world.usage(), [pending_order(world.engine, n, now=world.now) for n in "ab"])
    changes = [Change("ClusterQueue", cluster_queue("a", group(f0=quota(nominal)), in_cohort="x"))]
    changes += [
        Change("Workload", workload(f"n{index}", name, gpus=gpus, priority=index))
        for index, (gpus, name) in enumerate(arrivals)
    ]
    changes.append(Change("Workload", key="ns/borrower"))
    what_if(world.engine, changes, now=world.now)
    after = (world.usage(), [pending_order(world.engine, n, now=world.now) for n in "ab"])
    assert after == before
