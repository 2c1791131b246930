"""What if: change documents on a copy, run cycles until nothing moves, compare.

The engine that is asked stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from clusters.kueue.amounts import FlavorResource
from clusters.kueue.decisions import Admit, CycleResult, Pending, Preempt
from clusters.kueue.engine import Engine

_CYCLE: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Change:
    """One change: a document to take in, or the key of an object to delete.

    Attributes:
        kind: as in documents.
        document: its new version; ``None`` deletes ``key``.
    """

    kind: str
    document: Mapping[str, Any] | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What changes would lead to.

    Attributes:
        admitted: by workload key, the last admission of everything that got one.
        preempted: preemptions in order.
        pending: by workload key, what those say that still wait.
        lost, gained: by ClusterQueue, potential capacity that changed.
        is_settled: false when ``most_cycles`` ended it.
    """

    admitted: Mapping[str, Admit]
    preempted: tuple[Preempt, ...]
    pending: Mapping[str, Pending]
    lost: Mapping[str, Mapping[FlavorResource, int]]
    gained: Mapping[str, Mapping[FlavorResource, int]]
    is_settled: bool


def what_if(
    engine: Engine, changes: Iterable[Change], *, now: datetime, most_cycles: int = 200
) -> Forecast:
    """Say what changes would lead to, without making them.

    Args:
        engine: is not changed.
        changes: in order.
        now: time at which the first virtual cycle runs.
        most_cycles: upper bound of the work.

    Raises:
        KeyError: an unknown kind, or a document that lacks a required field.
        ValueError: a malformed document.
    """
    copy = engine.fork(now=now)
    before = _potentials(copy, now)
    for change in changes:
        if change.document is None:
            copy.delete(change.kind, key=change.key, now=now)
        else:
            copy.upsert(change.document, kind=change.kind, now=now)
    results, is_settled = run_until_quiet(copy, now=now, most_cycles=most_cycles)
    admitted, pending = _outcome(results)
    after = _potentials(copy, now)
    return Forecast(
        admitted=admitted,
        preempted=tuple(item for result in results for item in result.preempted),
        pending=pending,
        lost=_differences(before, after),
        gained=_differences(after, before),
        is_settled=is_settled,
    )


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
    engine: Engine, *, now: datetime, most_cycles: int
) -> tuple[list[CycleResult], bool]:
    """Run cycles, preempted workloads stopping at once, until nothing moves.

    Returns:
        The cycles, and false when there would have been more.
    """
    results: list[CycleResult] = []
    before: object = None
    while len(results) < most_cycles:
        result = engine.cycle(now)
        if not result.heads:
            return results, True
        results.append(result)
        for victim in result.preempted:
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
        name: {key: queue.node.potential(key) for key in queue.spec.quotas}
        for name, queue in engine.state.snapshot.queues.items()
    }


def _differences(
    larger: Mapping[str, Mapping[FlavorResource, int]],
    smaller: Mapping[str, Mapping[FlavorResource, int]],
) -> dict[str, dict[FlavorResource, int]]:
    result: dict[str, dict[FlavorResource, int]] = {}
    for name, amounts in larger.items():
        other = smaller.get(name, {})
        above = {
            key: amount - other.get(key, 0)
            for key, amount in amounts.items()
            if amount > other.get(key, 0)
        }
        if above:
            result[name] = above
    return result
