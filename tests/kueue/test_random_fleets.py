"""A year of random fleets: what holds whatever happens, looked at by a second book of accounts."""

from __future__ import annotations

from collections import defaultdict

import pytest

from clusters.kueue.amounts import Amount, FlavorResource, add_usage
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.what_if import Bounds, what_if
from clusters.kueue.quota.tree import Held, Holding
from tests.kueue.random_fleets import MONTHS, Life, changed, value_of

FEW, MANY = 200, 10_000


def live(seed: int) -> Life:
    """A year of one fleet; whoever asks what would be changes nothing by it."""
    life = Life(seed)
    asks_at = seed % MONTHS
    for month in range(MONTHS):
        life.month()
        check_tallies(life.engine)
        if month == asks_at:
            life.engine.state.settle(life.now)
            before = value_of(life.engine)
            for changes in life.questions():
                what_if(life.engine, changes, now=life.now, bounds=Bounds(most_cycles=20))
            assert list(changed(before, value_of(life.engine))) == []
    end(life)
    return life


def check_tallies(engine: Engine) -> None:
    """What queues show that they hold is what their workloads hold, added up."""
    for name, queue in engine.state.snapshot.queues.items():
        holdings = list(queue.holdings.values())
        assert_adds_up(queue.held, holdings, name)
        by_local = defaultdict(list)
        for holding in holdings:
            by_local[holding.workload.local_queue].append(holding)
        assert queue.held_of.keys() == by_local.keys(), name
        for key, mine in by_local.items():
            assert_adds_up(queue.held_of[key], mine, f"{name} through {key}")


def assert_adds_up(held: Held, holdings: list[Holding], where: str) -> None:
    """Reserving and admitted, in number and in amounts."""
    admitted = [holding for holding in holdings if holding.workload.is_admitted]
    for tally, those in ((held.reserving, holdings), (held.admitted, admitted)):
        total: dict[FlavorResource, Amount] = {}
        for holding in those:
            add_usage(total, holding.usage)
        assert (tally.count, tally.amounts()) == (len(those), total), where


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
