"""From recorded events to states and intervals, under a lock per job.

Everything is rebuilt from the events as a whole, so it does not matter who builds, or how often.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import Q
from django.utils.dateparse import parse_datetime

from budgets import intervals as ledger
from budgets.selectors import clock_settings
from budgets.selectors.clock import utc_now
from budgets.services import store_intervals
from budgets.services.rows import among, write_rows
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
UIDS_AT_ONCE = 5_000
"""Keys in one question; SQLite bounds its parameters."""
TYPES = {kind.value: kind for kind in WorkloadEvent.Type}
LEDGER_TYPES = {kind.value: kind for kind in ledger.EventType}
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
    reader = EventReader(source.gpu_resources)
    _make_states(source, wanted, reader)
    with transaction.atomic():
        places = _locked_family(source.cluster_id, wanted)
        events = _events(places, reader)
        _write_states(source, wanted, events)
        return _write_intervals(places, events)


def _make_states(source: Source, uids: Collection[str], reader: EventReader) -> None:
    known = WorkloadState.objects.filter(among("uid", uids), cluster_id=source.cluster_id)
    missing = set(uids) - set(known.values_list("uid", flat=True))
    # Mostly they are right at once, and need not be written again below.
    events = reader.all_of({(source.slug, uid) for uid in missing})
    found = {uid: state_of(history) for (_, uid), history in _by_place(events).items()}
    _store_states(source, found, update=())


def _store_states(
    source: Source, states: Mapping[str, tuple[Any, ...]], *, update: Sequence[str]
) -> None:
    now = utc_now()
    write_rows(
        WorkloadState,
        ("cluster_id", "uid", *WRITTEN, "updated_at"),
        [(source.cluster_id, uid, *values, now) for uid, values in sorted(states.items())],
        unique=("cluster_id", "uid"),
        update=update,
    )


def _locked_family(cluster_id: int, uids: Collection[str]) -> set[Place]:
    """All Workloads whose history hangs together with some of a cluster, locked in one order.

    A manager's Workload and its copies share namespace and name; slices of an elastic job and
    variants of one job share the job.
    """
    own = WorkloadState.objects.filter(among("uid", uids), cluster_id=cluster_id)
    rows = list(own.values_list("namespace", "name", "job_kind", "job_name"))
    keys = {(namespace, name) for namespace, name, _, _ in rows}
    if not keys:
        return set()
    jobs = _jobs_of_several({(namespace, kind, job) for namespace, _, kind, job in rows if job})
    found = _keys_of("name", keys) | _keys_of("job_name", {(job[0], job[2]) for job in jobs})
    # Found first and locked then, or two builders would wait for each other's rows.
    locked = WorkloadState.objects.select_for_update(of=("self",)).filter(among("pk", found))
    return {
        (cluster, uid)
        for cluster, uid, namespace, name, kind, job in locked.order_by("pk").values_list(
            "cluster__slug", "uid", "namespace", "name", "job_kind", "job_name"
        )
        if (namespace, name) in keys or (namespace, kind, job) in jobs
    }


def _keys_of(column: str, pairs: Collection[tuple[str, str]]) -> set[int]:
    """Keys of the rows of some (namespace, name), pair by pair: each is one look at an index."""
    wanted = sorted(pairs)
    if connection.vendor == "postgresql" and wanted:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT s.id FROM clusters_workloadstate AS s "  # noqa: S608  column: of two
                "JOIN unnest(%s::text[], %s::text[]) AS w(namespace, name) "
                f"ON s.namespace = w.namespace AND s.{column} = w.name",
                [[namespace for namespace, _ in wanted], [name for _, name in wanted]],
            )
            return {key for (key,) in cursor.fetchall()}
    found: set[int] = set()
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


def _events(places: Collection[Place], reader: EventReader) -> list[Recorded]:
    return reader.all_of(places)


class EventReader:
    """Reads recorded events, each once: an event never changes, so what was read stays true.

    Args:
        gpu_resources: Device resources that flavors count.
    """

    def __init__(self, gpu_resources: frozenset[str]) -> None:
        self._gpu_resources = gpu_resources
        self._read: dict[int, Recorded | None] = {}
        self._before: dict[Place, ledger.Read] = {}

    def all_of(self, places: Collection[Place]) -> list[Recorded]:
        """All events of some Workloads, oldest first, as they stand in the table now.

        What cannot be read is reported and left out.
        """
        by_cluster: dict[str, list[str]] = {}
        for cluster, uid in sorted(places):
            by_cluster.setdefault(cluster, []).append(uid)
        keys: list[int] = []
        for cluster, uids in by_cluster.items():
            for at in range(0, len(uids), UIDS_AT_ONCE):
                keys += self._keys_of(cluster, uids[at : at + UIDS_AT_ONCE])
        found = (self._read[key] for key in sorted(keys))
        return [event for event in found if event is not None]

    def _keys_of(self, cluster: str, uids: Collection[str]) -> list[int]:
        # Both columns, or the index is of no use.
        rows = WorkloadEvent.objects.filter(among("uid", uids), cluster=cluster, kind="Workload")
        if not self._read:
            return [self._take(row) for row in rows.order_by("pk").values_list(*EVENT_FIELDS)]
        keys = list(rows.order_by().values_list("pk", flat=True))
        new = [key for key in keys if key not in self._read]
        for at in range(0, len(new), UIDS_AT_ONCE):
            part = WorkloadEvent.objects.filter(among("pk", new[at : at + UIDS_AT_ONCE]))
            for row in part.order_by("pk").values_list(*EVENT_FIELDS):
                self._take(row)
        return keys

    def _take(self, row: tuple[Any, ...]) -> int:
        pk, cluster, uid, namespace, name, version, kind, observed, last, payload = row
        place = cluster, uid
        try:
            facts = ledger.read_facts(
                payload, gpu_resources=self._gpu_resources, before=self._before.get(place)
            )
        except ledger.BadDocument as error:
            log.error(
                "workload_unreadable cluster=%s workload=%s/%s uid=%s event=%s error=%s",
                cluster, namespace, name, uid, pk, error,
            )  # fmt: skip
            self._read[pk] = None
            return int(pk)
        self._before[place] = ledger.Read(payload, facts)
        seen = ledger.WorkloadEvent(
            cluster=ClusterName(cluster),
            uid=WorkloadUid(uid),
            resource_version=version,
            observed_at=observed,
            type=LEDGER_TYPES[kind],
            facts=facts,
            last_seen_at=last,
            completed_at=_time(payload.get(COMPLETED_AT)),
            after_gap=bool(payload.get(AFTER_GAP)),
        )
        self._read[pk] = Recorded(pk=pk, type=TYPES[kind], payload=payload, seen=seen)
        return int(pk)


def _write_states(source: Source, uids: Collection[str], events: Iterable[Recorded]) -> None:
    rows = WorkloadState.objects.filter(among("uid", uids), cluster_id=source.cluster_id)
    stored = {uid: values for uid, *values in rows.values_list("uid", *WRITTEN)}
    histories = _by_place(events)
    changed = {}
    for uid in uids:
        history = histories.get((source.slug, uid))
        if history is None or uid not in stored:
            continue
        newest = state_of(history)
        if list(newest) != stored[uid]:
            changed[uid] = newest
    # The rows are there and locked; an upsert is one plain statement where an update is a CASE
    # per field and row.
    _store_states(source, changed, update=(*WRITTEN, "updated_at"))


def _write_intervals(
    places: Collection[Place], events: Iterable[Recorded]
) -> tuple[ledger.Problem, ...]:
    if not places:
        return ()
    history = ledger.intervals(
        [event.seen for event in events], manager=_manager(), clock=clock_settings()
    )
    store_intervals(history.intervals, workloads=places, pending=history.pending)
    return history.problems


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
        found.setdefault((event.seen.cluster, event.seen.uid), []).append(event)
    return found
