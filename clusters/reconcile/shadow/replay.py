"""The engine decides the same events: facts are fed, decisions of Kueue are left out.

A watch tells in which order things were written, not when Kueue looked at them. So events are run
through in several ways that Kueue may have seen them in; what all ways agree on does not depend on
timing. Works on copies only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from clusters.documents.conditions import is_true
from clusters.kueue.cycle.decisions import CycleResult
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.asking import flavors_of
from clusters.kueue.explanation.changes import ObjectChange, touched_queues
from clusters.kueue.explanation.what_if import Bounds, run_until_quiet
from clusters.kueue.explanation.why import CHECKS_PENDING, Explainer
from clusters.reconcile.shadow.events import (
    Fate,
    Said,
    WatchedEvent,
    holds_quota,
    was_preempted,
    without_reservation,
)

BOUNDS: Final = Bounds(most_cycles=100)


@dataclass(frozen=True, slots=True)
class ReplayWay:
    """How the engine's cycles run while events come in.

    Attributes:
        is_eager: after every event; else right before every decision of Kueue, and at the end.
        lingers: victims of preemption stop when they did on the cluster; else at once.
        knows_quota_first: everything but workloads is known from the beginning: its watch was
            quicker than that of the workloads.
    """

    is_eager: bool = False
    lingers: bool = True
    knows_quota_first: bool = False


@dataclass(slots=True)
class ReplayOutcome:
    """What the engine decided, one way.

    Attributes:
        admitted: first admission of each workload.
        preempted: first preemption of each workload.
        waiting: what it says of those that wait in the end and were asked about.
        doubles: of those, the ones that the scheduler cannot tell from another that waits: Kueue
            tries one for all, and what it said of the others before stays.
    """

    admitted: dict[str, Said] = field(default_factory=dict)
    preempted: dict[str, Said] = field(default_factory=dict)
    waiting: dict[str, Said] = field(default_factory=dict)
    doubles: set[str] = field(default_factory=set)


def replays(base: Engine, events: Sequence[WatchedEvent], *, now: datetime) -> list[ReplayOutcome]:
    """What the engine decides about events, one outcome for each way that makes a difference.

    Args:
        base: the state before them; is not changed.
        events: in the order in which they were told.
        now: current time, of the last cycles.
    """
    base.state.settle(now)
    names = touched_queues(base, [_change(event) for event in events])
    return [
        _Replay(base.fork(now=now, names=names), way).run(events, now=now) for way in _ways(events)
    ]


def at_rest(
    engine: Engine, queues: Collection[str] | None, asked: Iterable[str], *, now: datetime
) -> ReplayOutcome:
    """What the engine would do with a state as it is; victims do not stop.

    Args:
        engine: is not changed.
        queues: ClusterQueues of the trees in question, ``None`` for all.
        asked: workloads of which to say why they wait.
        now: current time.
    """
    return _Replay(engine.fork(now=now, names=queues), ReplayWay()).look(asked, now=now)


def _ways(events: Sequence[WatchedEvent]) -> list[ReplayWay]:
    """Those that may make a difference."""
    ways = [ReplayWay(is_eager=True, lingers=False), ReplayWay()]
    if any(item.said and item.said.decision is Fate.PREEMPTED for item in events):
        ways.append(ReplayWay(is_eager=True))
    if {event.kind == "Workload" for event in events} == {True, False}:
        ways.append(ReplayWay(knows_quota_first=True))
    return ways


class _Replay:
    """One way through the events, on an engine of its own."""

    def __init__(self, engine: Engine, way: ReplayWay) -> None:
        self._engine, self._way = engine, way
        self._held_before = {holding.workload.key for holding in engine.state.snapshot.holdings()}
        self._kueue_holds: set[str] = set()
        self._victims: set[str] = set()
        self._outcome = ReplayOutcome()

    def run(self, events: Sequence[WatchedEvent], *, now: datetime) -> ReplayOutcome:
        if self._way.knows_quota_first:
            events = sorted(events, key=lambda event: event.kind == "Workload")
        for event in events:
            is_decision = event.said is not None and event.said.decision is not Fate.PENDING
            if is_decision and not self._way.is_eager:
                self._decide(event.at)
            self._feed(event)
            if self._way.is_eager:
                self._decide(event.at)
        for holding in [item for item in self._engine.state.snapshot.holdings() if item.is_evicted]:
            self._engine.release_evicted(holding.workload.key, now=now)
        return self.look((event.key for event in events), now=now)

    def look(self, asked: Iterable[str], *, now: datetime) -> ReplayOutcome:
        """Run the last cycles and say why workloads wait."""
        self._decide(now)
        outcome, queues = self._outcome, self._engine.state.queues
        shapes = Counter(
            (queue.name, item.workload.shape_hash)
            for queue in queues.queues()
            for item in queue.items()
        )
        explainer = Explainer(self._engine, now=now)
        for key in asked:
            found = explainer.explain(key)
            if found is not None and found.reason and found.reason != CHECKS_PENDING:
                outcome.waiting[key] = Said(
                    Fate.PENDING, found.cluster_queue, None, found.reason, found.message
                )
            item = queues.item(key)
            if item and shapes[queues.queue_of(key), item.workload.shape_hash] > 1:
                outcome.doubles.add(key)
        return outcome

    def _decide(self, now: datetime) -> None:
        """Run cycles until nothing moves."""
        results, _ = run_until_quiet(
            self._engine, now=now, bounds=BOUNDS, stops_victims=not self._way.lingers
        )
        for result in results:
            self._note(result)

    def _note(self, result: CycleResult) -> None:
        for victim in result.preempted:
            self._outcome.preempted.setdefault(
                victim.key,
                Said(
                    Fate.PREEMPTED,
                    victim.cluster_queue,
                    None,
                    victim.reason,
                    victim.message,
                ),
            )
        for item in result.admitted:
            queue = str(item.admission["clusterQueue"])
            said = Said(Fate.ADMITTED, queue, flavors_of(item.admission))
            self._outcome.admitted.setdefault(item.key, said)

    def _feed(self, event: WatchedEvent) -> None:
        engine = self._engine
        if event.is_gone:
            engine.delete(event.kind, key=event.key, now=event.at)
        elif event.kind != "Workload" or is_true(event.document, "Finished"):
            engine.upsert(event.document, kind=event.kind, now=event.at)
        else:
            self._feed_workload(event)

    def _feed_workload(self, event: WatchedEvent) -> None:
        """Take in what the world did to a workload, and leave out what Kueue decided about it."""
        engine, key, document = self._engine, event.key, event.document
        is_held = engine.state.snapshot.holding(key) is not None
        if was_preempted(document) and key in self._held_before | self._kueue_holds:
            self._victims.add(key)
            if not holds_quota(document) and key in self._outcome.preempted:
                # The engine preempts it, too: it stopped, and waits from when it was told to.
                engine.upsert(document, kind="Workload", now=event.at)
            return
        if holds_quota(document):
            if key in self._victims:
                return
            if key not in self._held_before:
                self._kueue_holds.add(key)
                engine.upsert(without_reservation(document), kind="Workload", now=event.at)
            elif is_held:
                engine.upsert(document, kind="Workload", now=event.at)
            return
        if key in self._held_before or key in self._kueue_holds:
            # It was evicted, but not by a decision of the scheduler.
            self._held_before.discard(key)
            self._kueue_holds.discard(key)
            if is_held:
                engine.release_evicted(key, now=event.at)
        engine.upsert(document, kind="Workload", now=event.at)


def _change(event: WatchedEvent) -> ObjectChange:
    return ObjectChange(event.kind, None if event.is_gone else event.document, event.key)
