"""What was told of Workloads, when, and until when all was told; times by the cluster's clock.

It is written before anybody thinks about it: insert or ignore, never anything else; and what
nothing was built from yet is known.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final

import structlog
from django.db import connection
from django.db.models import Max, Min

from budgets import intervals as ledger
from budgets.services.usage.rows import COPIED, could_copy
from clusters.documents.conditions import conditions_of
from clusters.documents.keys import uid_of, version_of
from clusters.jobs.workloads import assignments_of
from clusters.kube.resources import Document
from clusters.kube.watch import Reflector
from clusters.kueue.workload.placement import parse_placement, placement_document
from clusters.models import WorkloadEvent
from clusters.reconcile.runtime.watches import Change, Seen

Type = WorkloadEvent.Type
GAP = timedelta(seconds=8)
REPLAY = timedelta(seconds=3)
DOMAINS_MOST = 500
PLACEMENT_LONGEST = 100_000
"""Of where the pods of one pod set are, what is kept for pages: domains, and bytes of JSON."""


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

    Attributes:
        began_with: Until then all was told before the first list: ``until``, or later where the
            cluster told what happened since.
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


log = structlog.stdlib.get_logger(__name__)

BATCH = 200
AT_ONCE = 10_000
EVENT_KEY: Final = ("cluster", "kind", "uid", "resource_version", "type")
EVENT_COLUMNS: Final = (
    *EVENT_KEY,
    "namespace",
    "name",
    "observed_at",
    "last_seen_at",
    "digest",
    "payload",
)
_EVENT_VALUES: Final = attrgetter(*EVENT_COLUMNS)
_MESSAGE_LENGTH = 2000
_CONDITION_FIELDS = ("type", "status", "reason", "message", "lastTransitionTime")


def event_of(
    seen: Observation,
    *,
    cluster: str,
    gpu_resources: Collection[str],
    completed_at: str | None = None,
) -> WorkloadEvent:
    """The row of an observation.

    Args:
        seen: What the watch told.
        cluster: Slug.
        gpu_resources: Device resources that flavors count.
        completed_at: RFC 3339: when the job behind a missing Workload ended, if still readable.
    """
    metadata = seen.document["metadata"]
    payload = payload_of(seen.document, gpu_resources=gpu_resources)
    digest = ledger.digest_of(payload)
    if seen.after_gap:
        payload[ledger.AFTER_GAP] = True
    if completed_at is not None:
        payload[ledger.COMPLETED_AT] = completed_at
    return WorkloadEvent(
        cluster=cluster,
        uid=str(metadata["uid"]),
        resource_version=str(metadata["resourceVersion"]),
        type=seen.type,
        namespace=metadata["namespace"],
        name=metadata["name"],
        observed_at=seen.at,
        last_seen_at=seen.last_seen_at,
        digest=digest,
        payload=payload,
    )


def payload_of(document: Document, *, gpu_resources: Collection[str]) -> dict[str, Any]:
    """What the meter needs of a Workload; for pages, messages of conditions and where pods are.

    One whose device counts cannot be read is stored without them: the event is kept, and the
    build reports it.
    """
    try:
        payload = ledger.needed_fields(document, gpu_resources=gpu_resources)
    except ledger.BadDocument as error:
        metadata = document["metadata"]
        log.error(
            "workload_unreadable",
            workload=f"{metadata.get('namespace')}/{metadata.get('name')}",
            uid=metadata.get("uid"),
            error=error,
        )
        payload = ledger.needed_fields(document, gpu_resources=())
    kept = [_condition(entry) for entry in conditions_of(document)]
    status = payload["status"] | {"conditions": kept}
    placed = [_placed(each.get("topologyAssignment")) for each in assignments_of(document)]
    if any(placed):
        rows = [
            {**row, "topologyAssignment": found} if found else row
            for row, found in zip(assignments_of(payload), placed, strict=True)
        ]
        status["admission"] = {**status["admission"], "podSetAssignments": rows}
    return payload | {"status": status}


def _placed(assignment: Document | None) -> Document | None:
    """Where the pods of a pod set are, in its first domains; None where that cannot be read."""
    if assignment is None:  # as nearly always, and this is asked for each event
        return None
    try:
        placement = parse_placement(assignment)
        if placement is None or len(placement.domains) <= DOMAINS_MOST:
            found = assignment
        else:
            first = replace(placement, domains=placement.domains[:DOMAINS_MOST])
            found = placement_document(first, splits_by_prefix=True)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    return found if len(json.dumps(found)) <= PLACEMENT_LONGEST else None


def missing_event(
    last: WorkloadEvent,
    *,
    at: datetime,
    last_seen_at: datetime | None,
    completed_at: str | None = None,
) -> WorkloadEvent:
    """The row that says that a Workload of an earlier shift is gone.

    Args:
        last: Its newest event; never before it was the Workload last seen.
        at: When a list lacked it.
        last_seen_at: Until when an earlier shift was told everything.
        completed_at: RFC 3339: when its job ended, if still readable.
    """
    known = [last.observed_at] if last_seen_at is None else [last.observed_at, last_seen_at]
    payload = {**last.payload, ledger.AFTER_GAP: True}
    if completed_at is not None:
        payload[ledger.COMPLETED_AT] = completed_at
    return WorkloadEvent(
        cluster=last.cluster,
        uid=last.uid,
        resource_version=last.resource_version,
        type=WorkloadEvent.Type.MISSING,
        namespace=last.namespace,
        name=last.name,
        observed_at=at,
        last_seen_at=min(at, max(known)),
        digest=last.digest,
        payload=payload,
    )


def store_events(events: Iterable[WorkloadEvent]) -> None:
    """Insert what is new; what is known, by whichever list, retry or second watch, is ignored."""
    rows = list(events)
    if not _is_streamed(rows):
        WorkloadEvent.objects.bulk_create(rows, ignore_conflicts=True, batch_size=BATCH)


def _is_streamed(rows: Sequence[WorkloadEvent]) -> bool:
    """Insert many new events at once as a stream, where that works; in their order, as ever.

    A shift begins with a list of what is mostly known: then the first of them is.
    """
    if len(rows) < COPIED or connection.vendor != "postgresql":
        return False
    first = {name: getattr(rows[0], name) for name in EVENT_KEY}
    if WorkloadEvent.objects.filter(**first).exists():
        return False
    return could_copy(WorkloadEvent, EVENT_COLUMNS, [_EVENT_VALUES(row) for row in rows])


def seen_spans(cluster: str, uids: Collection[str]) -> dict[str, tuple[datetime, datetime]]:
    """Uid → (first, last) time at which a Workload of a cluster was seen. One query, or none."""
    if not uids:
        return {}
    rows = WorkloadEvent.objects.filter(cluster=cluster, kind="Workload", uid__in=uids)
    seen = rows.order_by().values("uid").annotate(first=Min("observed_at"), last=Max("observed_at"))
    return {row["uid"]: (row["first"], row["last"]) for row in seen}


class Backlog:
    """A cluster's events that nothing was built from yet, some at a time, oldest first.

    A Workload is built from everything that is known of it. What lies beyond the mark of that is
    kept in mind until the mark has passed it, so that a backlog is built once and not once for
    every part of it in which a Workload turns up.

    Args:
        cluster: Slug.
        mark: Key of the newest event up to which everything is built.
    """

    def __init__(self, cluster: str, mark: int) -> None:
        self.mark = mark
        self._cluster = cluster
        self._ahead = mark
        self._built: set[int] = set()

    def take(self) -> frozenset[str] | None:
        """Workloads with something new among the next events; None when there are no events.

        The more events lie there the more are taken at once: a job whose states lie near each
        other is built once for all of them.
        """
        rows = list(
            WorkloadEvent.objects.filter(cluster=self._cluster, pk__gt=self.mark)
            .order_by("pk")
            .values_list("pk", "uid")[:AT_ONCE]
        )
        if not rows:
            return None
        self._ahead = rows[-1][0]
        return frozenset(uid for key, uid in rows if key not in self._built)

    def note(self, events: Collection[int]) -> None:
        """Something was built from these events, and that is committed."""
        self._built.update(events)

    def advance(self) -> None:
        """What was taken last is built, or was refused for good."""
        self.mark = self._ahead
        self._built = {key for key in self._built if key > self.mark}


def _condition(entry: Document) -> Document:
    kept = {name: entry[name] for name in _CONDITION_FIELDS if name in entry}
    if "message" in kept:
        kept["message"] = kept["message"][:_MESSAGE_LENGTH]
    return kept
