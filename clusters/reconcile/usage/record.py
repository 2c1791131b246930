"""Writes what was seen, before anybody thinks about it: insert or ignore, never anything else.

And knows which of it nothing was built from yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

import structlog
from django.db.models import Max, Min

from budgets import intervals as ledger
from clusters.documents.conditions import conditions_of
from clusters.kube.resources import Document
from clusters.models import WorkloadEvent
from clusters.reconcile.usage.observed import Observation

log = structlog.stdlib.get_logger(__name__)

BATCH = 200
AT_ONCE = 10_000
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
    """What the meter needs of a Workload, and the messages of its conditions for pages.

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
    return payload | {"status": payload["status"] | {"conditions": kept}}


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
    WorkloadEvent.objects.bulk_create(events, ignore_conflicts=True, batch_size=BATCH)


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
