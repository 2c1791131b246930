"""What the events of a recorded scenario do to an engine.

One function for each kind of event, found by its key in the record. Pure: the scenario's documents
in, the engine changed.

Where the recordings say more than their description: the status of a finished workload still shows
its reservation, so finishing it a second time wakes its tree again.

Source: recordings of Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
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
        confirms: what was admitted is seen to be, after its cycle.
        ends_precedence: what got a reservation is no preemptor any more, after its cycle.
        messages: pending message by workload key.
        finished: ClusterQueue by key of workloads that held quota in it to their end.
    """

    engine: Engine
    now: datetime
    confirms: bool = False
    ends_precedence: bool = False
    messages: dict[str, str] = field(default_factory=dict)
    finished: dict[str, str] = field(default_factory=dict)

    @property
    def follows_usage(self) -> bool:
        """Whether the ledger of admission fair sharing is kept."""
        return self.engine.state.ledger.rules is not None


def take_in(replay: Replay, documents: Iterable[Mapping[str, Any]], *, kind: str) -> None:
    """Feed documents of one kind."""
    for document in documents:
        replay.engine.upsert(document, now=replay.now, kind=kind)


def elapsed(event: Mapping[str, Any], *, otherwise: timedelta) -> timedelta:
    """How far the clock goes before an event."""
    seconds = event.get(_CLOCK)
    return otherwise if seconds is None else timedelta(seconds=seconds)


def end(replay: Replay, key: str) -> None:
    """End a workload that holds quota."""
    holding = replay.engine.state.snapshot.holding(key)
    if holding is not None:
        replay.finished[key] = holding.cluster_queue
        replay.engine.delete("Workload", key=key, now=replay.now)


def unknown_in(event: Mapping[str, Any]) -> list[str]:
    """Keys of an event that are not understood."""
    return sorted(event.keys() - _EVENTS.keys() - {_CLOCK})


def happen(replay: Replay, event: Mapping[str, Any]) -> None:
    """Let an event happen that is understood."""
    for what in event.keys() - {_CLOCK}:
        _EVENTS[what](replay, event[what])


def _finish(replay: Replay, names: Iterable[str]) -> None:
    for name in names:
        key = f"{NAMESPACE}/{name}"
        if replay.engine.state.snapshot.holding(key) is not None:
            end(replay, key)
        elif key in replay.finished:
            replay.engine.wake(replay.finished[key])


def _checks_ready(replay: Replay, names: Iterable[str]) -> None:
    """Let all checks of workloads pass that hold quota and are not admitted."""
    for name in names:
        holding = replay.engine.state.snapshot.holding(f"{NAMESPACE}/{name}")
        if holding is not None and not holding.workload.is_admitted:
            replay.engine.confirm_admitted(holding.workload.key, now=replay.now)


def _scale_down(replay: Replay, changes: Iterable[Mapping[str, Any]]) -> None:
    """Lower the counts of workloads that hold quota; their admissions stay as they are."""
    state = replay.engine.state
    for change in changes:
        workload = state.workloads.get(f"{NAMESPACE}/{change['name']}")
        if workload is None or workload.reservation is None:
            continue
        lowered = tuple(
            replace(item, count=min(item.count, change["counts"].get(item.name, item.count)))
            for item in workload.pod_sets
        )
        if lowered == workload.pod_sets:
            continue
        around = state.surroundings.of(workload.namespace)
        state.wake(workload.reservation.cluster_queue)
        workload = state.parser.reshape(replace(workload, pod_sets=lowered), surroundings=around)
        state.place(workload, now=replay.now)


def _set_nodes(replay: Replay, documents: Iterable[Mapping[str, Any]]) -> None:
    """A node that is set as it was wakes its flavors' workloads all the same."""
    state = replay.engine.state
    for document in documents:
        take_in(replay, (document,), kind="Node")
        if state.snapshot.places.flavors_of(document["metadata"]["name"]):
            state.wake_active()


def _set(kind: str) -> Callable[[Replay, Any], None]:
    return lambda replay, documents: take_in(replay, documents, kind=kind)


def _delete(kind: str) -> Callable[[Replay, Any], None]:
    def delete(replay: Replay, keys: Iterable[str]) -> None:
        for key in keys:
            replay.engine.delete(kind, key=key, now=replay.now)

    return delete


def _tick(replay: Replay, detail: object) -> None:
    """Nothing but time passes."""


_EVENTS: Final[Mapping[str, Callable[[Replay, Any], None]]] = {
    "arrive": _set("Workload"),
    "given": _set("Workload"),
    "finish": _finish,
    "checksReady": _checks_ready,
    "scaleDown": _scale_down,
    "nodesSet": _set_nodes,
    "nodesDelete": _delete("Node"),
    "podsSet": _set("Pod"),
    "podsDelete": _delete("Pod"),
    "tick": _tick,
}
