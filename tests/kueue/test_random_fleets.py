"""A year of random fleets: what holds whatever happens, looked at by a second book of accounts."""

from __future__ import annotations

import pytest

from clusters.kueue.explanation.what_if import Bounds, what_if
from tests.kueue.random_fleets import MONTHS, Life, changed, value_of

FEW, MANY = 200, 10_000


def live(seed: int) -> Life:
    """A year of one fleet; whoever asks what would be changes nothing by it."""
    life = Life(seed)
    asks_at = seed % MONTHS
    for month in range(MONTHS):
        life.month()
        if month == asks_at:
            life.engine.state.settle(life.now)
            before = value_of(life.engine)
            for changes in life.questions():
                what_if(life.engine, changes, now=life.now, bounds=Bounds(most_cycles=20))
            assert list(changed(before, value_of(life.engine))) == []
    end(life)
    return life


def end(life: Life) -> None:
    """Everything leaves; nothing is in use any more."""
    for key in sorted(life.book.workloads):
        life.delete("Workload", key)
    life.engine.state.settle(life.now)
    snapshot = life.engine.state.snapshot
    members = (*snapshot.queues.values(), *snapshot.cohorts.values())
    assert [item.node.name for item in members if any(item.node.usage.values())] == []
    assert list(snapshot.holdings()) == []
    for name in sorted(life.placed):
        placer = snapshot.places.placer(name)
        assert placer is not None
        for leaf in placer.tree.leaves.values():
            assert leaf.rest == leaf.free, leaf.name


def lives(seeds: range) -> tuple[int, int]:
    """How many were admitted and preempted in all."""
    admitted = preempted = 0
    for seed in seeds:
        try:
            life = live(seed)
        except Exception as error:
            raise AssertionError(f"fleet {seed}: {error}") from error
        admitted, preempted = admitted + life.admitted, preempted + life.preempted
    return admitted, preempted


def test_fleets_keep_quotas_and_nodes_for_a_year():
    admitted, preempted = lives(range(FEW))
    assert admitted > FEW
    assert preempted > FEW / 10


@pytest.mark.slow
def test_many_fleets_keep_quotas_and_nodes_for_a_year():
    admitted, preempted = lives(range(FEW, MANY))
    assert admitted > MANY
    assert preempted > MANY / 10
