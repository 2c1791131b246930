"""From recorded events to states and intervals, under a lock per job.

Everything is rebuilt from the events as a whole, so it does not matter who builds, or how often.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Q
from django.utils.dateparse import parse_datetime

from budgets import intervals as ledger
from budgets.selectors import clock_settings
from budgets.services import store_intervals
from budgets.units import ClusterName, WorkloadUid
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.reconcile.usage.record import AFTER_GAP, COMPLETED_AT
from clusters.reconcile.usage.states import WRITTEN, Recorded, state_of

log = logging.getLogger(__name__)

BATCH = 200
SLICE_REPLACED = "WorkloadSliceReplaced"

Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """Whose events are built: a cluster and the device resources that flavors count."""

    cluster_id: int
    slug: str
    gpu_resources: frozenset[str]


def build(source: Source, uids: Collection[str]) -> tuple[ledger.Problem, ...]:
    """Bring states and intervals of some Workloads of one cluster up to their events.

    Args:
        source: The cluster.
        uids: Workloads with new events.

    Returns:
        What of their history could not be counted as it was seen.

    Numbered, because the order is what keeps two builders (the manager's and a worker's) from
    storing a history that lacks the other's half:
        1. every Workload gets its state row, committed, so that others can find and lock it;
        2. all state rows of the jobs concerned are locked, on whichever cluster;
        3. only then are the events read, and states and intervals are written from them.
    """
    wanted = sorted(set(uids))
    _make_states(source, wanted)
    with transaction.atomic():
        own = WorkloadState.objects.filter(cluster_id=source.cluster_id, uid__in=wanted)
        family = _locked_family(own)
        events = _events({(row.cluster.slug, row.uid) for row in family}, source.gpu_resources)
        _write_states(source, wanted, family, events)
        return _write_intervals({(row.cluster.slug, row.uid) for row in family}, events)


def _make_states(source: Source, uids: Collection[str]) -> None:
    known = WorkloadState.objects.filter(cluster_id=source.cluster_id, uid__in=uids)
    missing = set(uids) - set(known.values_list("uid", flat=True))
    if not missing:
        return
    events = _events({(source.slug, uid) for uid in missing}, source.gpu_resources)
    rows = [state_of(found, cluster_id=source.cluster_id) for found in _by_place(events).values()]
    WorkloadState.objects.bulk_create(rows, ignore_conflicts=True)


def _locked_family(own: Iterable[WorkloadState]) -> list[WorkloadState]:
    """The rows of all Workloads whose history hangs together with these, locked in one order.

    A manager's Workload and its copies share namespace and name; slices of an elastic job and
    variants of one job share the job.
    """
    rows = list(own)
    keys = {(row.namespace, row.name) for row in rows}
    if not keys:
        return []
    jobs = _jobs_of_several(rows)
    condition = Q(
        namespace__in={namespace for namespace, _ in keys}, name__in={name for _, name in keys}
    )
    if jobs:
        condition |= Q(
            namespace__in={namespace for namespace, _, _ in jobs},
            job_name__in={name for _, _, name in jobs},
        )
    found = (
        WorkloadState.objects.select_for_update(of=("self",))
        .select_related("cluster")
        .filter(condition)
        .order_by("pk")
    )
    return [
        row
        for row in found
        if (row.namespace, row.name) in keys or (row.namespace, row.job_kind, row.job_name) in jobs
    ]


def _jobs_of_several(rows: Collection[WorkloadState]) -> set[tuple[str, str, str]]:
    """Of the jobs of these rows those with several Workloads: slices, and variants of a parent."""
    jobs = {(row.namespace, row.job_kind, row.job_name) for row in rows if row.job_name}
    replaced = WorkloadState.objects.filter(
        namespace__in={namespace for namespace, _, _ in jobs},
        job_name__in={name for _, _, name in jobs},
        reason=SLICE_REPLACED,
    ).values_list("namespace", "job_kind", "job_name")
    return jobs & {*replaced, *(job for job in jobs if job[1] == "Workload")}


def _events(places: Collection[Place], gpu_resources: frozenset[str]) -> list[Recorded]:
    """All events of some Workloads, read; what cannot be read is reported and left out."""
    uids = sorted({uid for _, uid in places})
    found: list[Recorded] = []
    for at in range(0, len(uids), BATCH):
        rows = WorkloadEvent.objects.filter(kind="Workload", uid__in=uids[at : at + BATCH])
        for row in rows.order_by("pk"):
            if (row.cluster, row.uid) not in places:
                continue
            try:
                facts = ledger.read_facts(row.payload, gpu_resources=gpu_resources)
            except ledger.BadDocument as error:
                log.error(
                    "workload_unreadable cluster=%s workload=%s/%s uid=%s event=%s error=%s",
                    row.cluster, row.namespace, row.name, row.uid, row.pk, error,
                )  # fmt: skip
                continue
            found.append(
                Recorded(
                    pk=row.pk,
                    cluster=row.cluster,
                    uid=row.uid,
                    resource_version=row.resource_version,
                    type=WorkloadEvent.Type(row.type),
                    observed_at=row.observed_at,
                    last_seen_at=row.last_seen_at,
                    payload=row.payload,
                    facts=facts,
                )
            )
    return found


def _write_states(
    source: Source,
    uids: Collection[str],
    family: Iterable[WorkloadState],
    events: Iterable[Recorded],
) -> None:
    stored = {row.uid: row for row in family if row.cluster_id == source.cluster_id}
    histories = _by_place(events)
    changed = []
    for uid in uids:
        history, row = histories.get((source.slug, uid)), stored.get(uid)
        if history is None or row is None:
            continue
        newest = state_of(history, cluster_id=source.cluster_id)
        if any(getattr(row, name) != getattr(newest, name) for name in WRITTEN):
            changed.append(newest)
    # The rows are there and locked; an upsert is one plain statement where an update is a CASE
    # per field and row.
    WorkloadState.objects.bulk_create(
        changed,
        batch_size=BATCH,
        update_conflicts=True,
        unique_fields=["cluster", "uid"],
        update_fields=[*WRITTEN, "updated_at"],
    )


def _write_intervals(
    places: Collection[Place], events: Iterable[Recorded]
) -> tuple[ledger.Problem, ...]:
    if not places:
        return ()
    history = ledger.intervals(
        [_as_ledger(event) for event in events], manager=_manager(), clock=clock_settings()
    )
    store_intervals(history.intervals, workloads=places, pending=history.pending)
    return history.problems


def _as_ledger(event: Recorded) -> ledger.WorkloadEvent:
    completed = event.payload.get(COMPLETED_AT)
    return ledger.WorkloadEvent(
        cluster=ClusterName(event.cluster),
        uid=WorkloadUid(event.uid),
        resource_version=event.resource_version,
        observed_at=event.observed_at,
        type=ledger.EventType(event.type.value),
        facts=event.facts,
        last_seen_at=event.last_seen_at,
        completed_at=_time(completed),
        after_gap=bool(event.payload.get(AFTER_GAP)),
    )


def _time(text: str | None) -> datetime | None:
    return parse_datetime(text) if text else None


def _manager() -> ClusterName | None:
    """The manager in office, or the last one: its history must not change when it is removed."""
    rows = Cluster.objects.filter(role=Cluster.Role.MANAGER).values_list("slug", "state", "pk")
    ranked = sorted(rows, key=lambda row: (row[1] == Cluster.State.REMOVED, -row[2]))
    return ClusterName(ranked[0][0]) if ranked else None


def _by_place(events: Iterable[Recorded]) -> dict[Place, list[Recorded]]:
    found: dict[Place, list[Recorded]] = {}
    for event in events:
        found.setdefault((event.cluster, event.uid), []).append(event)
    return found
