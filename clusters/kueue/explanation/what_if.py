"""What if: change documents on a copy, run cycles until nothing moves, compare.

The engine that is asked stays as it is. Only the trees that a change touches are copied: the others
decide as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from budgets.plan import StopPolicy
from clusters.kueue.amounts import FlavorResource, whole
from clusters.kueue.cycle.decisions import Admit, CycleResult, Pending, Preempt
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.changes import AnyChange, make, touched_queues

_CYCLE: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long to go on.

    Attributes:
        most_cycles: upper bound of the work.
        is_over: asked before each cycle; true ends it.
    """

    most_cycles: int = 200
    is_over: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class Forecast:
    """What changes would lead to.

    Attributes:
        admitted: by workload key, the last admission of everything that got one.
        preempted: preemptions in order; what a drained queue stops comes first.
        pending: by workload key, what those say that still wait and were looked at.
        waiting: number of workloads that wait in the end, on the whole cluster.
        lost, gained: by ClusterQueue, potential capacity that changed.
        is_settled: false when the bounds ended it.
    """

    admitted: Mapping[str, Admit]
    preempted: tuple[Preempt, ...]
    pending: Mapping[str, Pending]
    waiting: int
    lost: Mapping[str, Mapping[FlavorResource, int]]
    gained: Mapping[str, Mapping[FlavorResource, int]]
    is_settled: bool


def what_if(
    engine: Engine, changes: Iterable[AnyChange], *, now: datetime, bounds: Bounds | None = None
) -> Forecast:
    """Say what changes would lead to, one after the other, without making them.

    Raises:
        Inapplicable: a change names what is not there.
        KeyError: an unknown kind, or a document that lacks a required field.
        ValueError: a malformed document.
    """
    asked = tuple(changes)
    engine.state.settle(now)
    copy = engine.fork(now=now, names=touched_queues(engine, asked))
    before = _potentials(copy, now)
    for change in asked:
        make(copy, change, now=now)
    stopped = _stop_drained(copy, now=now)
    results, is_settled = run_until_quiet(copy, now=now, bounds=bounds or Bounds())
    admitted, pending = _outcome(results)
    after = _potentials(copy, now)
    return Forecast(
        admitted=admitted,
        preempted=(*stopped, *(item for result in results for item in result.preempted)),
        pending=pending,
        waiting=sum(
            1
            for item in copy.state.workloads.values()
            if item.reservation is None and item.is_active
        ),
        lost=_differences(before, after),
        gained=_differences(after, before),
        is_settled=is_settled,
    )


def _stop_drained(engine: Engine, *, now: datetime) -> list[Preempt]:
    """Let everything stop that a drained queue holds, as its owner would be told."""
    engine.state.settle(now)
    stopped = [
        Preempt(
            key=key,
            reason="ClusterQueueStopped",
            message="The ClusterQueue is stopped",
            preemptor="",
            cluster_queue=name,
        )
        for name, queue in engine.state.snapshot.queues.items()
        if queue.spec.stop_policy is StopPolicy.HOLD_AND_DRAIN
        for key in sorted(queue.holdings)
    ]
    for item in stopped:
        engine.release_evicted(item.key, now=now)
    return stopped


def _outcome(results: Iterable[CycleResult]) -> tuple[dict[str, Admit], dict[str, Pending]]:
    """What each workload came to in the end."""
    admitted: dict[str, Admit] = {}
    pending: dict[str, Pending] = {}
    for result in results:
        pending.update((item.key, item) for item in result.pending)
        for victim in result.preempted:
            admitted.pop(victim.key, None)
        for item in result.admitted:
            admitted[item.key] = item
            pending.pop(item.key, None)
    return admitted, pending


def run_until_quiet(
    engine: Engine, *, now: datetime, bounds: Bounds, stops_victims: bool = True
) -> tuple[list[CycleResult], bool]:
    """Run cycles, the first at ``now``, until nothing moves; changes the engine.

    Preempted workloads stop at once, or else go on holding their quota.

    Returns:
        The cycles, and false when there would have been more.
    """
    results: list[CycleResult] = []
    before: object = None
    while len(results) < bounds.most_cycles and not bounds.is_over():
        result = engine.cycle(now)
        if not result.heads:
            return results, True
        results.append(result)
        for victim in result.preempted if stops_victims else ():
            engine.release_evicted(victim.key, now=now)
        engine.state.settle(now)
        waiting = None if result.has_moved else _waiting(engine, result)
        if not result.has_moved and waiting == before:
            return results, True
        before = waiting
        now += _CYCLE
    return results, False


def _waiting(engine: Engine, result: CycleResult) -> object:
    """What tells two idle cycles apart: how much waits where, and who was looked at."""
    counts = [(queue.name, queue.active_count) for queue in engine.state.queues.queues()]
    return counts, [item.key for item in result.pending]


def _potentials(engine: Engine, now: datetime) -> dict[str, dict[FlavorResource, int]]:
    engine.state.settle(now)
    return {
        name: {key: whole(queue.node.potential(key)) for key in queue.spec.quotas}
        for name, queue in engine.state.snapshot.queues.items()
    }


def _differences(
    larger: Mapping[str, Mapping[FlavorResource, int]],
    smaller: Mapping[str, Mapping[FlavorResource, int]],
) -> dict[str, dict[FlavorResource, int]]:
    """By how much amounts are larger, where they are."""
    above = {
        name: dict(Counter(amounts) - Counter(smaller.get(name, {})))
        for name, amounts in larger.items()
    }
    return {name: amounts for name, amounts in above.items() if amounts}
