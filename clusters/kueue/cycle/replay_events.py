"""What the events of a recorded scenario do to an engine.

One function for each kind of event, found by its key in the record. Pure: the scenario's documents
in, the engine changed.

Where the recordings say more than their description: the status of a finished workload still shows
its reservation, so finishing it a second time wakes its tree again.

Source: recordings of Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from clusters.kueue.cycle.engine import Engine

NAMESPACE: Final = "ns"
"""Where the workloads are that an event names without their namespace."""
_CLOCK: Final = "advanceSeconds"


@dataclass(slots=True)
class Replay:
    """A scenario under way.

    Attributes:
        now: its clock.
        messages: pending message by workload key.
        finished: ClusterQueue by key of workloads that held quota in it to their end.
    """

    engine: Engine
    now: datetime
    messages: dict[str, str] = field(default_factory=dict)
    finished: dict[str, str] = field(default_factory=dict)


def take_in(replay: Replay, documents: Iterable[Mapping[str, Any]], *, kind: str) -> None:
    """Feed documents of one kind."""
    for document in documents:
        replay.engine.upsert(document, now=replay.now, kind=kind)


def elapsed(event: Mapping[str, Any], *, otherwise: timedelta) -> timedelta:
    """How far the clock goes before an event."""
    seconds = event.get(_CLOCK)
    return otherwise if seconds is None else timedelta(seconds=seconds)


def unknown_in(event: Mapping[str, Any]) -> list[str]:
    """Keys of an event that are not understood."""
    return sorted(event.keys() - _EVENTS.keys() - {_CLOCK})


def happen(replay: Replay, event: Mapping[str, Any]) -> None:
    """Let an event happen that is understood."""
    for what in event.keys() - {_CLOCK}:
        _EVENTS[what](replay, event[what])


def _arrive(replay: Replay, documents: Iterable[Mapping[str, Any]]) -> None:
    take_in(replay, documents, kind="Workload")


def _finish(replay: Replay, names: Iterable[str]) -> None:
    engine = replay.engine
    for name in names:
        key = f"{NAMESPACE}/{name}"
        holding = engine.state.snapshot.holding(key)
        if holding is not None:
            replay.finished[key] = holding.cluster_queue
            engine.delete("Workload", key=key, now=replay.now)
        elif key in replay.finished:
            engine.wake(replay.finished[key])


def _tick(replay: Replay, detail: object) -> None:
    """Nothing but time passes."""


_EVENTS: Final[Mapping[str, Callable[[Replay, Any], None]]] = {
    "arrive": _arrive,
    "given": _arrive,
    "finish": _finish,
    "tick": _tick,
}
