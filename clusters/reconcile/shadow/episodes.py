"""Cuts the stream of events into episodes: from one rest of a tree of queues to the next.

Trees do not influence each other, so each has episodes of its own; an event that concerns all of
them makes one episode of everything. An episode is compared when nothing has changed in its trees
for some seconds, nothing there is still being stopped, and the disagreement, if it is that Kueue
has not done something, has stood for longer. One that never comes to rest is passed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from clusters.documents.keys import key_of
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.changes import ObjectChange, queues_by_tree, trees_of
from clusters.kueue.workload.workloads import Workload
from clusters.reconcile.shadow.compare import EpisodeVerdict, compare
from clusters.reconcile.shadow.events import WatchedEvent, decision_in
from clusters.reconcile.shadow.replay import at_rest, replays

EVERYTHING: Final = "*"
TEMPLATE: Final = "ResourceClaimTemplate"
SETTLE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Patience:
    """When to compare.

    Attributes:
        rest: nothing has changed for so long.
        omission: Kueue has not done something for so long.
        longest: an episode that is older is passed over.
        most_events: one that has more is passed over as well.
    """

    rest: timedelta = timedelta(seconds=5)
    omission: timedelta = timedelta(seconds=15)
    longest: timedelta = timedelta(minutes=10)
    most_events: int = 2000


@dataclass(slots=True)
class _Episode:
    trees: set[str]
    began: datetime
    last: datetime
    look_at: datetime
    events: list[WatchedEvent] = field(default_factory=list)


class Episodes:
    """Follows a cluster with one engine and stays behind with another until a tree is at rest.

    Args:
        engine: Follows every event at once; read by others, changed only here.
        patience: When to compare.
    """

    def __init__(self, engine: Engine, *, patience: Patience | None = None) -> None:
        self.engine = engine
        self._patience = patience or Patience()
        self._base: Engine | None = None
        self._workloads: dict[str, Mapping[str, Any]] = {}
        self._episodes: list[_Episode] = []
        # Templates that are gone; episodes that began before may still be replayed with them.
        self._gone: list[WatchedEvent] = []

    @property
    def workloads(self) -> Mapping[str, Mapping[str, Any]]:
        """Documents by key."""
        return self._workloads

    def begin(self, now: datetime) -> None:
        """Everything that is there was fed: from now on, events are kept and compared."""
        self._base = self.engine.fork(now=now)
        look_at = now + self._patience.rest
        self._episodes = [
            _Episode({tree}, now, now, look_at) for tree in queues_by_tree(self.engine)
        ]

    def take(self, kind: str, document: Mapping[str, Any], *, is_gone: bool, now: datetime) -> bool:
        """Take in the current version of an object, or its last; true when it is news.

        Raises:
            KeyError: a required field is missing.
            ValueError: a malformed document.
        """
        key = key_of(document)
        before = self._workloads.get(key) if kind == "Workload" else None
        change = ObjectChange(kind, None if is_gone else document, key)
        trees = trees_of(self.engine, change)
        said = None if is_gone or kind != "Workload" else decision_in(before, document)
        known = self.engine.state.workloads.get(key)
        self._feed(kind, key, document, is_gone=is_gone, now=now)
        found = self.engine.state.workloads.get(key)
        is_news = kind != "Workload" or found != known or said is not None
        if self._base is None or not is_news:
            return is_news
        is_fact = said is None and (kind != "Workload" or _bearing(found) != _bearing(known))
        if kind != "Workload":
            self.engine.state.settle(now)
            after = trees_of(self.engine, change)
            trees = None if trees is None or after is None else trees | after
        event = WatchedEvent(kind, key, document, now, is_gone, said, is_fact)
        if kind == TEMPLATE and trees is not None and not trees:
            self._take_unclaimed(event)
            return True
        self._keep(event, {EVERYTHING} if trees is None else set(trees))
        return True

    def settle(
        self, now: datetime, *, failed: Callable[[Iterable[str], Exception], None]
    ) -> list[EpisodeVerdict]:
        """Compare and close episodes that are due, as many as a short while allows.

        Args:
            now: Current time.
            failed: Told of trees that could not be compared, and why; they are passed over.
        """
        verdicts = []
        ends = time.monotonic() + SETTLE_S
        for episode in [item for item in self._episodes if item.look_at <= now]:
            if time.monotonic() > ends:
                break
            try:
                verdict = self._look(episode, now)
            except Exception as error:
                failed(episode.trees, error)
                verdict = _passed_over(episode)
            else:
                if verdict is None:
                    continue
                verdict = replace(verdict, trees=frozenset(episode.trees))
            self._episodes.remove(episode)
            self._catch_up(episode)
            verdicts.append(verdict)
        self._forget_gone()
        return verdicts

    def _feed(
        self, kind: str, key: str, document: Mapping[str, Any], *, is_gone: bool, now: datetime
    ) -> None:
        if is_gone:
            self.engine.delete(kind, key=key, now=now)
            self._workloads.pop(key if kind == "Workload" else "", None)
            return
        self.engine.upsert(document, kind=kind, now=now)
        if kind == "Workload":
            self._workloads[key] = document

    def _take_unclaimed(self, event: WatchedEvent) -> None:
        """A template that nobody claims by decides nothing: it is there for what comes after it."""
        assert self._base is not None
        if event.is_gone:
            self._gone.append(event)
        else:
            self._base.upsert(event.document, kind=event.kind, now=event.at)

    def _forget_gone(self) -> None:
        """What is gone since before every open episode, and did not come back."""
        if not self._gone or self._base is None:
            return
        oldest = min((item.began for item in self._episodes), default=None)
        gone, self._gone = self._gone, []
        for event in gone:
            if oldest is not None and oldest <= event.at:
                self._gone.append(event)
            elif not self.engine.state.devices.has_template(event.key):
                self._base.delete(event.kind, key=event.key, now=event.at)

    def _keep(self, event: WatchedEvent, trees: set[str]) -> None:
        joined = [
            item
            for item in self._episodes
            if EVERYTHING in trees | item.trees or not trees.isdisjoint(item.trees)
        ]
        if joined:
            episode = joined[0]
            for other in joined[1:]:
                self._episodes.remove(other)
                episode.trees |= other.trees
                episode.began = min(episode.began, other.began)
                episode.events.extend(other.events)
            # Stable: events of one moment keep the order in which they were told.
            episode.events.sort(key=lambda item: item.at)
            episode.trees |= trees
        else:
            episode = _Episode(set(trees), event.at, event.at, event.at)
            self._episodes.append(episode)
        episode.events.append(event)
        episode.last = event.at
        patience = self._patience
        episode.look_at = min(event.at + patience.rest, episode.began + patience.longest)
        if len(episode.events) > patience.most_events:
            episode.look_at = event.at

    def _look(self, episode: _Episode, now: datetime) -> EpisodeVerdict | None:
        """The verdict on an episode; ``None`` when it is too early for one."""
        patience = self._patience
        is_large = len(episode.events) > patience.most_events
        if is_large or now - episode.began > patience.longest:
            return _passed_over(episode)
        if now - episode.last < patience.rest or self._is_stopping(episode):
            episode.look_at = now + patience.rest
            return None
        assert self._base is not None
        events, queues = episode.events, self._queues_of(episode)
        asked = [event.key for event in events if event.kind == "Workload"]
        verdict = compare(
            events,
            replays(self._base, events, now=now) if events else [],
            rest=at_rest(self.engine, queues, asked, now=now),
            workloads=self._workloads,
        )
        omits = any(item.is_omission for item in verdict.differences)
        if omits and now - episode.last < patience.omission:
            episode.look_at = episode.last + patience.omission
            return None
        return verdict

    def _queues_of(self, episode: _Episode) -> set[str] | None:
        if EVERYTHING in episode.trees:
            return None
        by_tree = queues_by_tree(self.engine)
        return {name for tree in episode.trees for name in by_tree.get(tree, ())}

    def _is_stopping(self, episode: _Episode) -> bool:
        """Whether something in its trees was told to stop and still holds quota."""
        queues = self._queues_of(episode)
        return any(
            holding.is_evicted and (queues is None or holding.cluster_queue in queues)
            for holding in self.engine.state.snapshot.holdings()
        )

    def _catch_up(self, episode: _Episode) -> None:
        assert self._base is not None
        for event in episode.events:
            if event.is_gone:
                self._base.delete(event.kind, key=event.key, now=event.at)
            else:
                self._base.upsert(event.document, kind=event.kind, now=event.at)


def _passed_over(episode: _Episode) -> EpisodeVerdict:
    return EpisodeVerdict(passed_over=sum(event.said is not None for event in episode.events))


def _bearing(workload: Workload | None) -> tuple[object, ...]:
    """What of a workload other decisions may depend on."""
    if workload is None:
        return ()
    return (
        workload.reservation is None,
        workload.usage(),
        workload.is_active,
        workload.is_evicted,
        workload.priority,
        workload.queue_name,
        workload.gated_by,
        workload.requeue_at,
    )
