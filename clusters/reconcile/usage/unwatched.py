"""What happened on a cluster while nobody watched it, as far as anybody can still tell.

Between two shifts a watch from where the last one ended tells all of it in order, also what came
and went meanwhile and is in no list any more. When it happened is not told: a state is taken to be
as old as the newest time in it, but no older than what the last shift was told, so that nothing
lasts longer than is proven. What happens while it is told is stamped as if it were watched.

Of a time that the cluster has forgotten the manager's Workloads tell of the copies that they named
this cluster for: those are written down as far as the manager saw them, and count as estimated.
That anything else may be missing is told to finance, for whom it blocks the close.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from budgets import intervals as ledger
from budgets.intervals.documents import telling_owners
from budgets.models import Discrepancy, MeterState
from budgets.models.reconciliation import UNSETTLED
from budgets.services.billing.discrepancies import note_discrepancy
from clusters.documents import labels
from clusters.documents.keys import Document, version_number, version_of
from clusters.errors import ClusterError, Gone, NotFound
from clusters.jobs.kind import JobKind
from clusters.jobs.table import KINDS
from clusters.kube.client import EVERYTHING, KubeClient, WatchOptions
from clusters.kube.resources import WORKLOAD
from clusters.kube.stream import WatchType
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.reconcile.usage.build import mark_of
from clusters.reconcile.usage.record import Observation, Type, store_events

log = structlog.stdlib.get_logger(__name__)

KIND: Final = Discrepancy.Kind.UNWATCHED
ASKED: Final = "manager asked"
MARGIN: Final = timedelta(seconds=30)
"""The manager hears of a copy's admission, and of its end, a little later than the copy is told."""
CLOCKS: Final = timedelta(seconds=1)
"""Two clocks that tell whole seconds may call one moment so differently: a start, and an end."""


def note_unwatched(cluster: str, *, start: datetime, end: datetime) -> None:
    """Tell finance that nothing is known of what came and went in [start, end)."""
    if end <= start:
        return
    note_discrepancy(
        Discrepancy(
            kind=KIND,
            cluster=cluster,
            start=start,
            end=end,
            subject=f"since {start:%Y-%m-%d %H:%M:%S}",
            amount=round((end - start).total_seconds()),
            message="The portal did not watch the cluster, and the cluster has forgotten what "
            "happened. Jobs that are still there are counted. Jobs that only the manager knows of "
            "are counted as estimated. Jobs that came and went unseen are missing.",
        )
    )
    log.warning("unwatched", cluster=cluster, start=start, end=end)


def back_fill(cluster: str, client_for: Callable[[str], KubeClient]) -> int:
    """Write down what the manager knows of the unwatched time of a worker; how many Workloads.

    Asked once for each such time, as soon as the manager's own history reaches beyond it.

    Args:
        cluster: Slug of the worker.
        client_for: Slug to client; the manager's Jobs tell when those on the worker ended.

    Raises:
        ClusterError: the manager has no credential, or cannot be asked; it is tried again.
    """
    gaps = Discrepancy.objects.filter(kind=KIND, cluster=cluster, state__in=UNSETTLED)
    waiting = [row for row in gaps if ASKED not in row.samples]
    if not waiting:
        return 0
    manager = Cluster.objects.registered().filter(role=Cluster.Role.MANAGER).first()
    if manager is None:
        return 0
    state = MeterState.objects.filter(cluster=manager.slug).first()
    told = 0
    for gap in waiting:
        assert gap.end is not None, "an unwatched time is over when it is noted"
        if state is None or state.complete_until is None or state.complete_until <= gap.end:
            continue
        client = client_for(manager.slug)
        told += _ask(cluster, manager, client, gap.start - MARGIN, gap.end + MARGIN)
        gap.samples = [*gap.samples, ASKED]
        gap.save(update_fields=["samples"])
    return told


def _ask(cluster: str, manager: Cluster, client: KubeClient, start: datetime, end: datetime) -> int:
    """Write down the manager's Workloads that ran here then, their copies unseen."""
    over = WorkloadState.objects.filter(
        Q(finished_at__gt=start),
        cluster=manager,
        worker=cluster,
        admitted_at__lt=end,
        finished_at__lt=end,
    )
    rows = list(over.exclude(Exists(_copies_here(cluster))))
    events = WorkloadEvent.objects.filter(
        cluster=manager.slug, kind="Workload", uid__in=[row.uid for row in rows]
    )
    newest = {event.uid: event for event in events.order_by("pk")}
    for row in rows:
        if row.uid in newest:
            completed = ended_at(client, newest[row.uid].payload)
            store_events(_as_copy(newest[row.uid], row, cluster, mark_of(manager), completed))
    return len(rows)


def _copies_here(cluster: str) -> QuerySet[WorkloadState]:
    """Of an outer row of the manager: what the worker told of that held GPUs under it."""
    reserved = Coalesce(OuterRef("reserved_at"), OuterRef("admitted_at"))
    return WorkloadState.objects.filter(
        Q(finished_at__isnull=True) | Q(finished_at__gt=reserved),
        cluster__slug=cluster,
        namespace=OuterRef("namespace"),
        name=OuterRef("name"),
        admitted_at__isnull=False,
    )


def _as_copy(
    seen: WorkloadEvent, row: WorkloadState, cluster: str, origin: str, completed: str | None
) -> list[WorkloadEvent]:
    """The copy as it must have been, never longer than it was; nothing where that is no time.

    The manager says that it is admitted after the worker did, and its Job ended, by the time that
    the worker's told, before the worker said that it is finished.
    """
    assert row.admitted_at is not None and row.finished_at is not None, "asked for by both"
    start, end = row.admitted_at, row.finished_at
    if completed is not None:
        end = min(end, datetime.fromisoformat(completed))
    end -= 2 * CLOCKS
    if end <= start:
        return []
    payload: dict[str, Any] = seen.payload
    metadata = dict(payload["metadata"])
    metadata["labels"] = (metadata.get("labels") or {}) | {labels.ORIGIN: origin}
    metadata["annotations"] = (metadata.get("annotations") or {}) | {labels.ORIGIN_UID: row.uid}
    status = dict(payload["status"])
    status["conditions"] = [
        entry for entry in status.get("conditions") or [] if entry["type"] != "Finished"
    ]
    copy = payload | {"metadata": metadata, "status": status, ledger.AFTER_GAP: True}

    def event(kind: str, **changes: Any) -> WorkloadEvent:
        fields = {
            "cluster": cluster,
            "uid": row.uid,
            "resource_version": seen.resource_version,
            "type": kind,
            "namespace": seen.namespace,
            "name": seen.name,
            "digest": ledger.digest_of(copy),
        }
        return WorkloadEvent(**fields, **changes)

    ended = copy | {ledger.COMPLETED_AT: end.isoformat()}
    return [
        event(WorkloadEvent.Type.SEEN, observed_at=start, payload=copy),
        event(WorkloadEvent.Type.MISSING, observed_at=end, last_seen_at=end, payload=ended),
    ]


_ENDED = (WorkloadState.Phase.FINISHED, WorkloadState.Phase.FAILED, WorkloadState.Phase.GONE)
# By the name alone: no more is kept of a Workload's owner.
_TELLING = {kind.resource.kind: kind for kind in KINDS.values() if kind.tells_when}


def newest_of_missing(cluster_id: int, slug: str, uids: Collection[str]) -> list[WorkloadEvent]:
    """The newest event of every Workload that an earlier shift saw alive and a list lacks.

    Finished ones are left out: their end is known. Two queries.
    """
    alive = WorkloadState.objects.filter(cluster_id=cluster_id).exclude(phase__in=_ENDED)
    gone = sorted(set(alive.values_list("uid", flat=True)).difference(uids))
    newest: dict[str, WorkloadEvent] = {}
    for at in range(0, len(gone), 500):
        rows = WorkloadEvent.objects.filter(
            cluster=slug, kind="Workload", uid__in=gone[at : at + 500]
        )
        for row in rows.order_by("pk"):
            known = newest.get(row.uid)
            if known is None or version_number(row.resource_version) >= version_number(
                known.resource_version
            ):
                newest[row.uid] = row
    return [newest[uid] for uid in gone if uid in newest]


def ended_at(client: KubeClient, owned: Mapping[str, Any]) -> str | None:
    """When the Job or Pod behind a Workload ended, RFC 3339, by the cluster's clock.

    Args:
        client: Of the cluster that the Workload was on.
        owned: The Workload, or what was kept of it.

    Returns:
        None when it runs, is gone itself, is another object of that name, or cannot be read.
    """
    metadata = owned["metadata"]
    for owner in telling_owners(metadata):
        kind = _TELLING.get(str(owner.get("kind")))
        if kind is None:
            continue
        try:
            found = client.get(kind.resource, str(owner["name"]), namespace=metadata["namespace"])
        except NotFound:
            continue
        except ClusterError as error:
            log.warning(
                "end_not_readable",
                workload=f"{metadata['namespace']}/{metadata['name']}",
                reason=error.reason,
            )
            continue
        if str(found["metadata"].get("uid")) == str(owner.get("uid")):
            return _time_told(kind, found)
    return None


def _time_told(kind: JobKind, job: Mapping[str, Any]) -> str | None:
    """When a job says that it ended; None for what nobody can read as a time."""
    try:
        told = kind.ended_at(dict(job))
        return told if told and datetime.fromisoformat(told).tzinfo else None
    except Exception as error:  # the status of a job is whatever its controller writes
        metadata = job["metadata"]
        log.warning(
            "end_not_readable",
            workload=f"{metadata.get('namespace')}/{metadata.get('name')}",
            reason=type(error).__name__,
        )
        return None


READ_S: Final = 1
"""The server ends the watch after so long; what it remembers comes first, and at once."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What a cluster remembers of the time since the last shift.

    Attributes:
        states: In order.
        until: By now everything was told; the cluster's clock, whole seconds.
    """

    states: list[Observation]
    until: datetime


def replay(
    client: KubeClient, *, since: str, floor: datetime | None, now: Callable[[], datetime]
) -> Replay | None:
    """Every state since a resourceVersion; None where that is forgotten, or undone.

    Args:
        client: The cluster.
        since: Up to here all was told.
        floor: Until then all was told: what is told now happened later. None: not known.
        now: The cluster's clock, whole seconds.

    Raises:
        ClusterError: the cluster did not tell.
    """
    newest = client.newest_version(WORKLOAD, EVERYTHING)
    began = now()
    if version_number(newest) < version_number(since):
        return None
    known = () if floor is None else (floor,)
    options = WatchOptions(resource_version=since, timeout_s=READ_S, idle_timeout_s=READ_S + 10)
    found: list[Observation] = []
    try:
        with client.watch(WORKLOAD, options=options) as stream:
            for event in stream:
                if event.type is WatchType.BOOKMARK:
                    continue
                kind = Type.DELETED if event.type is WatchType.DELETED else Type.SEEN
                document = event.document
                if version_of(document) > version_number(newest):
                    found.append(Observation(kind, document, now()))
                    continue
                proven = max((*known, *_times(document)), default=began)
                found.append(Observation(kind, document, min(began, proven), after_gap=True))
    except Gone:
        return None
    return Replay(found, began)


def _times(document: Document) -> Iterator[datetime]:
    metadata, status = document["metadata"], document.get("status") or {}
    for text in (
        metadata.get("creationTimestamp"),
        metadata.get("deletionTimestamp"),
        *(row.get("time") for row in _rows(metadata.get("managedFields"))),
        *(row.get("lastTransitionTime") for row in _rows(status.get("conditions"))),
    ):
        try:
            at = datetime.fromisoformat(str(text))
        except ValueError:
            continue
        if at.tzinfo is not None:
            yield at.astimezone(UTC).replace(microsecond=0)


def _rows(value: object) -> Iterator[Document]:
    yield from (row for row in value if isinstance(row, dict)) if isinstance(value, list) else ()
