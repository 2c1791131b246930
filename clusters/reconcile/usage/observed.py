"""What was told of Workloads, when, and until when all was told; times by the cluster's clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from clusters.documents.keys import uid_of, version_of
from clusters.kube.resources import Document
from clusters.kube.watch import Reflector
from clusters.models import WorkloadEvent
from clusters.reconcile.runtime.watches import Change, Seen

Type = WorkloadEvent.Type
GAP = timedelta(seconds=8)
REPLAY = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class Observation:
    """One state of one Workload as it was told.

    Attributes:
        at: When it was told.
        after_gap: It may have become true earlier, while nothing was watched.
        last_seen_at: Of a MISSING: until when the object was known to be there.
    """

    type: Type
    document: Document
    at: datetime
    after_gap: bool = False
    last_seen_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A whole list was told; of the first of a shift, what an earlier one knew and it lacks.

    Attributes:
        at: When.
        uids: All that it had; None for a later list, of which every difference was told.
        last_seen_at: Until when everything had been told before; None if nothing had.
    """

    at: datetime
    uids: frozenset[str] | None
    last_seen_at: datetime | None


class Completeness:
    """Until when the watch is known to have told everything.

    Args:
        now: The cluster's clock.
        until: What an earlier shift was sure of; None at the first.
    """

    def __init__(self, now: Callable[[], datetime], *, until: datetime | None = None) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._until = until
        self._replay_ends: datetime | None = None
        self.began_with = until

    @property
    def until(self) -> datetime | None:
        return self._until

    def sample(self, age_s: float | None) -> datetime | None:
        """Take the age of the watch's image (seconds); returns the newest time that is sure.

        A jump means that nothing was watched meanwhile: what comes right after it is late news.
        """
        if age_s is None:
            return self._until
        now = self._now()
        contact = now - timedelta(seconds=age_s)
        with self._lock:
            if self._until is None or contact > self._until:
                if self._until is not None and contact - self._until > GAP:
                    self._replay_ends = now + REPLAY
                self._until = contact.replace(microsecond=0)
            return self._until

    def is_late_news(self, at: datetime) -> bool:
        """Whether something told at that time may have happened in a gap before."""
        with self._lock:
            if self._until is None or at - self._until > GAP:
                return True
            return self._replay_ends is not None and at <= self._replay_ends


class Observer:
    """Notes of everything that the watch on Workloads tells when it was told, and how.

    Args:
        now: The cluster's clock, whole seconds.
        contact: Until when everything was told.
        watch: Gives the watch, once it runs.
        put: Takes what is noted, in order, from the watch's thread.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        contact: Completeness,
        *,
        watch: Callable[[], Reflector],
        put: Callable[[Observation | Listed], None],
    ) -> None:
        self._now, self._contact, self._watch, self._put = now, contact, watch, put
        self._told: dict[str, tuple[int, datetime]] = {}
        self._has_listed = False

    def tell(self, seen: Seen) -> None:
        """What the watch told; it is never kept waiting for the database."""
        if seen.change is Change.SYNCED:
            self._synced()
        elif seen.change is Change.DELETED:
            self._deleted(seen.document)
        else:
            self._upsert(seen.document)

    def _upsert(self, document: Document) -> None:
        at = self._now()
        self._told[uid_of(document)] = version_of(document), at
        after_gap = self._is_listing or self._contact.is_late_news(at)
        self._put(Observation(Type.SEEN, document, at, after_gap))

    def _deleted(self, document: Document) -> None:
        """A deletion has a resourceVersion of its own; without one a list just lacked the object.

        The contact is not sampled before the list is told, so it is still that before the gap.
        """
        at = self._now()
        version, told_at = self._told.pop(uid_of(document), (-1, at))
        if self._is_listing and version == version_of(document):
            seen_at = max(told_at, self._contact.until or told_at)
            self._put(Observation(Type.MISSING, document, at, True, min(at, seen_at)))
            return
        self._put(Observation(Type.DELETED, document, at, self._contact.is_late_news(at)))

    def _synced(self) -> None:
        at, uids, until = self._now(), None, self._contact.until
        if not self._has_listed:
            self._has_listed = True
            uids = frozenset(map(uid_of, self._watch().snapshot()))
            until = self._contact.began_with
        self._put(Listed(at, uids, until))

    @property
    def _is_listing(self) -> bool:
        return not self._watch().is_watching
