"""From recorded events to states and intervals, under a lock per job.

Everything is rebuilt from the events as a whole, so it does not matter who builds, or how often.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Max, Q, QuerySet
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
AT_ONCE = 10_000
EVENT_FIELDS = (
    "pk",
    "cluster",
    "uid",
    "namespace",
    "name",
    "resource_version",
    "type",
    "observed_at",
    "last_seen_at",
    "payload",
)
SLICE_REPLACED = "WorkloadSliceReplaced"

Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """Whose events are built: a cluster and the device resources that flavors count."""

    cluster_id: int
    slug: str
    gpu_resources: frozenset[str]


@dataclass(frozen=True, slots=True)
class Built:
    """What one look at the table of events came to.

    Attributes:
        mark: Key of the newest event that was looked at.
        uids: Workloads that were built.
        problems: What of their history could not be counted as it was seen.
    """

    mark: int
    uids: frozenset[str]
    problems: tuple[ledger.Problem, ...]


def build_from(source: Source, mark: int) -> Built | None:
    """Build every Workload with an event among the next ones beyond a mark.

    Returns:
        None when there is no event beyond it.
    """
    found = next_events(source.slug, mark)
    if found is None:
        return None
    return Built(found[0], found[1], build(source, found[1]))


def next_events(cluster: str, mark: int) -> tuple[int, frozenset[str]] | None:
    """(key of the newest, uids) of the next events beyond a mark; None when there is none.

    The more lie there the more are taken at once: a job whose states lie near each other is
    built once for all of them.
    """
    rows = list(
        WorkloadEvent.objects.filter(cluster=cluster, pk__gt=mark)
        .order_by("pk")
        .values_list("pk", "uid")[:AT_ONCE]
    )
    return (rows[-1][0], frozenset(uid for _, uid in rows)) if rows else None


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
        places = _locked_family(source.cluster_id, wanted)
        events = _events(places, source.gpu_resources)
        _write_states(source, wanted, events)
        return _write_intervals(places, events)


def _make_states(source: Source, uids: Collection[str]) -> None:
    known = WorkloadState.objects.filter(cluster_id=source.cluster_id, uid__in=uids)
    missing = set(uids) - set(known.values_list("uid", flat=True))
    if not missing:
        return
    # The newest event of each is enough for a row to be found by; it is written anew below.
    newest = _stored_events(source.slug, missing).values("uid").annotate(newest=Max("pk"))
    rows_of_newest = WorkloadEvent.objects.filter(pk__in=newest.values_list("newest", flat=True))
    events = [*_read(rows_of_newest, source.gpu_resources)]
    if unread := missing - {event.uid for event in events}:
        events += _events({(source.slug, uid) for uid in unread}, source.gpu_resources)
    rows = [state_of(found, cluster_id=source.cluster_id) for found in _by_place(events).values()]
    WorkloadState.objects.bulk_create(rows, ignore_conflicts=True, batch_size=BATCH)


def _locked_family(cluster_id: int, uids: Collection[str]) -> set[Place]:
    """All Workloads whose history hangs together with some of a cluster, locked in one order.

    A manager's Workload and its copies share namespace and name; slices of an elastic job and
    variants of one job share the job.
    """
    own = WorkloadState.objects.filter(cluster_id=cluster_id, uid__in=uids)
    rows = list(own.values_list("namespace", "name", "job_kind", "job_name"))
    keys = {(namespace, name) for namespace, name, _, _ in rows}
    if not keys:
        return set()
    jobs = _jobs_of_several({(namespace, kind, job) for namespace, _, kind, job in rows if job})
    found = _keys_of("name", keys) | _keys_of("job_name", {(job[0], job[2]) for job in jobs})
    # Found first and locked then, or two builders would wait for each other's rows.
    locked = WorkloadState.objects.select_for_update(of=("self",)).filter(pk__in=found)
    return {
        (cluster, uid)
        for cluster, uid, namespace, name, kind, job in locked.order_by("pk").values_list(
            "cluster__slug", "uid", "namespace", "name", "job_kind", "job_name"
        )
        if (namespace, name) in keys or (namespace, kind, job) in jobs
    }


def _keys_of(column: str, pairs: Collection[tuple[str, str]]) -> set[int]:
    """Keys of the rows of some (namespace, name), pair by pair: each is one look at an index."""
    found: set[int] = set()
    wanted = sorted(pairs)
    for at in range(0, len(wanted), BATCH):
        condition = Q()
        for namespace, name in wanted[at : at + BATCH]:
            condition |= Q(namespace=namespace, **{column: name})
        found.update(WorkloadState.objects.filter(condition).values_list("pk", flat=True))
    return found


def _jobs_of_several(jobs: Collection[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """Of some jobs those with several Workloads: slices, and variants of a parent."""
    replaced = WorkloadState.objects.filter(
        namespace__in={namespace for namespace, _, _ in jobs}, reason=SLICE_REPLACED
    ).values_list("namespace", "job_kind", "job_name")
    return set(jobs) & {*replaced, *(job for job in jobs if job[1] == "Workload")}


def _events(places: Collection[Place], gpu_resources: frozenset[str]) -> list[Recorded]:
    """All events of some Workloads, read; what cannot be read is reported and left out."""
    by_cluster: dict[str, list[str]] = {}
    for cluster, uid in sorted(places):
        by_cluster.setdefault(cluster, []).append(uid)
    found: list[Recorded] = []
    for cluster, uids in by_cluster.items():
        for at in range(0, len(uids), BATCH):
            rows = _stored_events(cluster, uids[at : at + BATCH])
            found += _read(rows.order_by("pk"), gpu_resources)
    found.sort(key=lambda event: event.pk)
    return found


def _stored_events(cluster: str, uids: Collection[str]) -> QuerySet[WorkloadEvent]:
    # Both columns, or the index is of no use.
    return WorkloadEvent.objects.filter(cluster=cluster, kind="Workload", uid__in=uids).order_by()


def _read(rows: QuerySet[WorkloadEvent], gpu_resources: frozenset[str]) -> Iterator[Recorded]:
    """Stored events, read; what cannot be read is reported and left out."""
    for row in rows.values_list(*EVENT_FIELDS):
        pk, cluster, uid, namespace, name, version, kind, observed, last, payload = row
        try:
            facts = ledger.read_facts(payload, gpu_resources=gpu_resources)
        except ledger.BadDocument as error:
            log.error(
                "workload_unreadable cluster=%s workload=%s/%s uid=%s event=%s error=%s",
                cluster, namespace, name, uid, pk, error,
            )  # fmt: skip
            continue
        yield Recorded(
            pk=pk,
            cluster=cluster,
            uid=uid,
            resource_version=version,
            type=WorkloadEvent.Type(kind),
            observed_at=observed,
            last_seen_at=last,
            payload=payload,
            facts=facts,
        )


def _write_states(source: Source, uids: Collection[str], events: Iterable[Recorded]) -> None:
    rows = WorkloadState.objects.filter(cluster_id=source.cluster_id, uid__in=uids)
    stored = {uid: values for uid, *values in rows.values_list("uid", *WRITTEN)}
    histories = _by_place(events)
    changed = []
    for uid in uids:
        history = histories.get((source.slug, uid))
        if history is None or uid not in stored:
            continue
        newest = state_of(history, cluster_id=source.cluster_id)
        if [getattr(newest, name) for name in WRITTEN] != stored[uid]:
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
