"""When another cycle is worth its time: what a caller goes by that does not cycle all the time."""

from __future__ import annotations

import pytest

from tests.kueue.builders import (
    World,
    cluster_queue,
    group,
    quota,
    reserved,
    workload,
)


def queue_of(gpus: int, **spec: object) -> World:
    return World().feed(cluster_queue("q", group(f0=quota(gpus)), **spec))


def test_cycle_that_only_parks_its_head_is_not_the_last():
    world = queue_of(4).feed(workload("big", "q", gpus=8), workload("small", "q", gpus=2, age=9))
    first = world.cycle()
    assert (first.admitted, first.is_settled) == ((), False)
    second = world.cycle()
    assert [item.key for item in second.admitted] == ["ns/small"]
    assert not second.is_settled
    assert world.cycle().is_settled


def test_head_that_stays_first_is_not_tried_again_for_nothing():
    world = queue_of(4, queueingStrategy="StrictFIFO").feed(workload("big", "q", gpus=8))
    assert world.cycle().is_settled
    assert world.cycle().is_settled


@pytest.mark.parametrize(
    ("change", "is_news"),
    [
        pytest.param(
            lambda world: world.feed(reserved(workload("w", "q", gpus=2), "q")),
            False,
            id="the write of what was decided",
        ),
        pytest.param(
            lambda world: world.feed(
                reserved(
                    workload("w", "q", gpus=2),
                    "q",
                    conditions=({"type": "Evicted", "status": "True"},),
                )
            ),
            True,
            id="an eviction",
        ),
        pytest.param(
            lambda world: world.feed(
                {
                    **workload("waits", "q", gpus=4, age=1),
                    "status": {"conditions": [{"type": "QuotaReserved", "status": "False"}]},
                }
            ),
            False,
            id="the explanation of a wait",
        ),
        pytest.param(
            lambda world: world.feed(workload("waits", "q", gpus=3, age=1)),
            True,
            id="a smaller request",
        ),
        pytest.param(lambda world: world.feed(workload("new", "q")), True, id="a new workload"),
        pytest.param(
            lambda world: world.engine.delete("Workload", key="ns/w", now=world.now),
            True,
            id="a deletion",
        ),
        pytest.param(
            lambda world: world.engine.forget("ns/w", now=world.now),
            True,
            id="a decision that was taken back",
        ),
    ],
)
def test_revision_grows_with_what_the_next_cycle_may_decide(change, is_news):
    world = queue_of(4).feed(workload("w", "q", gpus=2), workload("waits", "q", gpus=4, age=1))
    world.run(4)
    before = world.engine.state.revision
    change(world)
    assert (world.engine.state.revision != before) == is_news
