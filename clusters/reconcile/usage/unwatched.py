"""Time in which nobody watched a cluster and of which it has forgotten what happened.

What came and went in it is in no list. The manager's Workloads tell of the copies that they named
this cluster for: those are written down as far as the manager saw them, and count as estimated.
That anything else may be missing is told to finance, for whom it blocks the close.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from django.conf import settings
from django.db.models import Q

from budgets import intervals as ledger
from budgets.models import Discrepancy, MeterState
from budgets.services.billing.discrepancies import UNSETTLED, note_discrepancy
from clusters.documents import labels
from clusters.kube.client import KubeClient
from clusters.kueue.multikueue.settings import origin_of
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.reconcile.usage.missing import ended_at
from clusters.reconcile.usage.record import store_events

log = structlog.stdlib.get_logger(__name__)

KIND: Final = Discrepancy.Kind.UNWATCHED
ASKED: Final = "manager asked"
MARGIN: Final = timedelta(seconds=30)
"""The manager hears of a copy's admission, and of its end, a little later than the copy is told."""


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
            message="Nothing was watched, and the cluster has forgotten what happened. Jobs that "
            "are still there are counted, those that the manager knows of as estimated; what came "
            "and went unseen is missing.",
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
    known = WorkloadState.objects.filter(cluster__slug=cluster, admitted_at__isnull=False)
    here = set(known.filter(finished_at__isnull=True).values_list("namespace", "name"))
    here |= set(known.filter(finished_at__gt=start).values_list("namespace", "name"))
    rows = [row for row in over if (row.namespace, row.name) not in here]
    origin = (
        settings.PORTAL_INSTALLATION
        if manager.mode == Cluster.Mode.PORTAL
        else origin_of(manager.kueue_configuration)
    )
    events = WorkloadEvent.objects.filter(
        cluster=manager.slug, kind="Workload", uid__in=[row.uid for row in rows]
    )
    newest = {event.uid: event for event in events.order_by("pk")}
    for row in rows:
        if row.uid in newest:
            completed = ended_at(client, newest[row.uid].payload)
            store_events(_as_copy(newest[row.uid], row, cluster, origin, completed))
    return len(rows)


def _as_copy(
    seen: WorkloadEvent, row: WorkloadState, cluster: str, origin: str, completed: str | None
) -> list[WorkloadEvent]:
    """The copy as it must have been, never longer than it was.

    The manager says that it is admitted after the worker did, and its Job ended, by the time that
    the worker's told, before the worker said that it is finished.
    """
    payload: dict[str, Any] = seen.payload
    metadata = dict(payload["metadata"])
    metadata["labels"] = (metadata.get("labels") or {}) | {labels.ORIGIN: origin}
    metadata["annotations"] = (metadata.get("annotations") or {}) | {labels.ORIGIN_UID: row.uid}
    status = dict(payload["status"])
    status["conditions"] = [
        entry for entry in status.get("conditions") or [] if entry["type"] != "Finished"
    ]
    copy = payload | {"metadata": metadata, "status": status, ledger.AFTER_GAP: True}
    assert row.admitted_at is not None and row.finished_at is not None, "asked for by both"

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

    end = row.finished_at
    if completed is not None:
        end = max(row.admitted_at, min(end, datetime.fromisoformat(completed)))
    ended = copy | {ledger.COMPLETED_AT: end.isoformat()}
    return [
        event(WorkloadEvent.Type.SEEN, observed_at=row.admitted_at, payload=copy),
        event(WorkloadEvent.Type.MISSING, observed_at=end, last_seen_at=end, payload=ended),
    ]
