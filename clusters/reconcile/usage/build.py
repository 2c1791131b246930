"""From recorded events to states and intervals, under a lock per job.

Everything is rebuilt from the events as a whole, so it does not matter who builds, or how often.
Where the events were taken away (:mod:`clusters.reconcile.usage.retention`) nothing is rebuilt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q

from budgets import intervals as ledger
from budgets.models.reading import read_rows
from budgets.selectors import clock_settings
from budgets.selectors.clock import utc_now
from budgets.services import store_intervals
from budgets.services.usage.batches import uncollected
from budgets.services.usage.rows import among, write_rows
from budgets.units import ClusterName, WorkloadUid
from clusters.documents.queues import FLEET_QUEUE, dispatched_queue
from clusters.kueue.multikueue.settings import origin_of
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.reconcile.usage.reading import EventReader, Place
from clusters.reconcile.usage.states import WRITTEN, Recorded, state_of

log = structlog.stdlib.get_logger(__name__)

BATCH = 200
SLICE_REPLACED = "WorkloadSliceReplaced"


@dataclass(frozen=True, slots=True)
class Source:
    """Whose events are built: a cluster and the device resources that flavors count."""

    cluster_id: int
    slug: str
    gpu_resources: frozenset[str]


@dataclass(frozen=True, slots=True)
class Built:
    """What building some Workloads came to.

    Attributes:
        events: Keys of the cluster's events that they were built from.
        problems: What of their history could not be counted as it was seen.
    """

    events: frozenset[int]
    problems: tuple[ledger.Problem, ...]


@uncollected
def build(source: Source, uids: Collection[str]) -> Built:
    """Bring states and intervals of some Workloads of one cluster up to their events.

    Args:
        source: The cluster.
        uids: Workloads with new events.

    Numbered, because the order is what keeps two builders (the manager's and a worker's) from
    storing a history that lacks the other's half:
        1. every Workload gets its state row, committed, so that others can find and lock it;
        2. all state rows of the jobs concerned are locked, on whichever cluster;
        3. only then are the events read, and states and intervals are written from them;
        4. those whose events were taken away stay as they are.
    """
    wanted = sorted(set(uids))
    clusters = all_clusters()
    reader = reader_of(source.gpu_resources, clusters)
    origins = origins_of(clusters)
    made = _make_states(source, wanted, reader, origins)
    with transaction.atomic():
        family = _locked_family(source.cluster_id, wanted, {row.pk: row.slug for row in clusters})
        whole = [place for place, row in family.items() if not row.is_retired]
        histories = reader.all_of(whole)
        managers = managers_of(histories, clusters)
        own = {
            uid: histories[source.slug, uid] for uid in wanted if (source.slug, uid) in histories
        }
        _write_states(
            source,
            {
                uid: history
                for uid, history in own.items()
                if not made.stands(history, written_at=family[source.slug, uid].written_at)
            },
            origins,
            owned={_key(rows) for place, rows in histories.items() if place[0] == managers[place]},
        )
        problems = _write_intervals(whole, histories, managers, origins)
    retired = {place for place, row in family.items() if row.is_retired}
    after = reader.all_of(retired & {(source.slug, uid) for uid in wanted})
    late = [problem for rows in after.values() for problem in _late_news(rows)]
    # Whoever else is in the family was read too, but its states were not written here.
    unread = (
        ledger.Problem(ClusterName(slug), WorkloadUid(uid), ledger.ProblemCode.BAD_DOCUMENT, words)
        for (slug, uid), words in sorted(reader.unreadable.items())
    )
    return Built(
        frozenset(event.pk for rows in (*own.values(), *after.values()) for event in rows),
        (*problems, *unread, *late),
    )


def _late_news(history: Sequence[Recorded]) -> Iterator[ledger.Problem]:
    """Of what came after the events were taken away: what says more than that it is over."""
    for event in history:
        seen = event.seen
        is_over = event.type != WorkloadEvent.Type.SEEN or seen.facts.true_since("Finished")
        if not is_over:
            words = (
                f"version {seen.resource_version} was seen at {seen.observed_at.isoformat()}, "
                "after the events of the job were taken away; its history stays as it was"
            )
            code = ledger.ProblemCode.EVENTS_RETIRED
            yield ledger.Problem(seen.cluster, seen.uid, code, words)


def all_clusters() -> list[Cluster]:
    """Those that are there and those that were, with what histories depend on."""
    return list(
        Cluster.objects.only("slug", "role", "own_queue", "state", "mode", "kueue_configuration")
    )


def reader_of(gpu_resources: frozenset[str], clusters: Collection[Cluster]) -> EventReader:
    """A reader of all clusters' events.

    Args:
        gpu_resources: Device resources that flavors count.
        clusters: All.
    """
    alone = frozenset(row.slug for row in clusters if row.is_single or row.own_queue)
    return EventReader(gpu_resources, alone=alone)


@dataclass(frozen=True, slots=True)
class _Made:
    """State rows that were put there, and what from: (cluster, uid) → keys of events."""

    at: datetime
    events: Mapping[Place, Sequence[int]]

    def stands(self, history: Sequence[Recorded], *, written_at: datetime) -> bool:
        """Whether a state row is still the one that was made, of the very same events."""
        seen = history[0].seen
        keys = self.events.get((seen.cluster, seen.uid))
        return written_at == self.at and keys == [event.pk for event in history]


def _make_states(
    source: Source, uids: Collection[str], reader: EventReader, origins: Collection[str]
) -> _Made:
    known = WorkloadState.objects.filter(among("uid", uids), cluster_id=source.cluster_id)
    missing = set(uids) - set(known.values_list("uid", flat=True))
    # Mostly they are right at once, and need not be written again below.
    histories = reader.all_of({(source.slug, uid) for uid in missing})
    states = {uid: state_of(history, origins) for (_, uid), history in histories.items()}
    at = _store_states(source, states, update=())
    # Whose a strange mark is shows only beside the manager's Workloads.
    return _Made(
        at,
        {
            place: [event.pk for event in history]
            for place, history in histories.items()
            if history[0].facts.origin in ("", *origins)
        },
    )


def _store_states(
    source: Source, states: Mapping[str, tuple[Any, ...]], *, update: Sequence[str]
) -> datetime:
    """Returns when, which stands in every row that was written."""
    now = utc_now()
    write_rows(
        WorkloadState,
        ("cluster_id", "uid", *WRITTEN, "updated_at"),
        [(source.cluster_id, uid, *values, now) for uid, values in sorted(states.items())],
        update=update,
    )
    return now


class _State(NamedTuple):
    """Of a locked state row: when it was written, and whether its events were taken away."""

    written_at: datetime
    is_retired: bool


def _locked_family(
    cluster_id: int, uids: Collection[str], slugs: Mapping[int, str]
) -> dict[Place, _State]:
    """All Workloads whose history hangs together with some of a cluster, locked in one order.

    A manager's Workload and its copies share namespace and name; slices of an elastic job and
    variants of one job share the job.

    Returns:
        (cluster, uid) → what stands in its row.
    """
    own = WorkloadState.objects.filter(among("uid", uids), cluster_id=cluster_id)
    rows = list(own.values_list("namespace", "name", "job_kind", "job_name"))
    if not rows:
        return {}
    found, keys, jobs = related(rows)
    # Found first and locked then, or two builders would wait for each other's rows. By nothing but
    # their keys: joined with clusters, they were all read where statistics were out of date.
    locked = WorkloadState.objects.select_for_update().filter(among("pk", found))
    return {
        (slugs[cluster], uid): _State(written_at, retired_at is not None)
        for cluster, uid, written_at, retired_at, namespace, name, kind, job in read_rows(
            locked.order_by("pk").values_list(
                "cluster_id",
                "uid",
                "updated_at",
                "events_retired_at",
                "namespace",
                "name",
                "job_kind",
                "job_name",
            )
        )
        if (namespace, name) in keys or (namespace, kind, job) in jobs
    }


def related(
    rows: Collection[tuple[str, str, str, str]],
) -> tuple[set[int], set[tuple[str, str]], set[tuple[str, str, str]]]:
    """What hangs together with some Workloads, on whichever cluster.

    Args:
        rows: Namespace, name, kind and name of the job of each.

    Returns:
        Keys of state rows, and by what they were found: (namespace, name), and (namespace, kind,
        name) of jobs with several Workloads. A key may be that of a job of another kind.
    """
    keys = {(namespace, name) for namespace, name, _, _ in rows}
    jobs = _jobs_of_several({(namespace, kind, job) for namespace, _, kind, job in rows if job})
    found = _keys_of("name", keys) | _keys_of("job_name", {(job[0], job[2]) for job in jobs})
    return found, keys, jobs


def _keys_of(column: str, pairs: Collection[tuple[str, str]]) -> set[int]:
    """Keys of the rows of some (namespace, name), pair by pair: each is one look at an index."""
    wanted = sorted(pairs)
    if connection.vendor == "postgresql" and wanted:
        with connection.cursor() as cursor:
            # OFFSET: pair by pair, even where the planner takes the table for small.
            cursor.execute(
                "SELECT s.id FROM unnest(%s::text[], %s::text[]) AS w(namespace, name) "  # noqa: S608  column: of two
                "CROSS JOIN LATERAL (SELECT id FROM clusters_workloadstate "
                f"WHERE namespace = w.namespace AND {column} = w.name OFFSET 0) AS s",
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


def _write_states(
    source: Source,
    histories: Mapping[str, Sequence[Recorded]],
    origins: Collection[str],
    *,
    owned: Collection[tuple[str, str]],
) -> None:
    """Write the states of some Workloads, which are there and locked, where they changed."""
    if not histories:
        return
    rows = WorkloadState.objects.filter(among("uid", histories), cluster_id=source.cluster_id)
    stored = {row[0]: row[1:] for row in read_rows(rows.values_list("uid", *WRITTEN))}
    newest = {
        uid: state_of(histories[uid], origins, is_owned=_key(histories[uid]) in owned)
        for uid in stored
    }
    changed = {uid: values for uid, values in newest.items() if values != stored[uid]}
    # An upsert is one plain statement where an update is a CASE per field and row.
    _store_states(source, changed, update=(*WRITTEN, "updated_at"))


def _write_intervals(
    places: Collection[Place],
    histories: Mapping[Place, Sequence[Recorded]],
    managers: Mapping[Place, ClusterName | None],
    origins: Collection[str],
) -> tuple[ledger.Problem, ...]:
    if not places:
        return ()
    found = work_out(histories, managers, origins)
    store_intervals(found.intervals, workloads=places, pending=found.pending)
    return found.problems


def work_out(
    histories: Mapping[Place, Sequence[Recorded]],
    managers: Mapping[Place, ClusterName | None],
    origins: Collection[str],
) -> ledger.History:
    """What the events of some Workloads come to.

    Args:
        histories: All events of each; with a Workload comes whatever hangs together with it.
        managers: From :func:`managers_of`.
        origins: From :func:`origins_of`.
    """
    clock = clock_settings()
    groups: dict[ClusterName | None, list[ledger.WorkloadEvent]] = {}
    for place, rows in histories.items():
        groups.setdefault(managers[place], []).extend(event.seen for event in rows)
    parts = [
        ledger.intervals(events, manager=manager, origins=origins, clock=clock)
        for manager, events in groups.items()
    ]
    return ledger.History(
        intervals=tuple(row for part in parts for row in part.intervals),
        pending=tuple(row for part in parts for row in part.pending),
        problems=tuple(problem for part in parts for problem in part.problems),
    )


def managers_of(
    histories: Mapping[Place, Sequence[Recorded]],
    clusters: Collection[Cluster],
) -> dict[Place, ClusterName | None]:
    """Workload → the manager that dispatched it, or would; None where it runs by itself.

    On a cluster that runs jobs itself and dispatches others, each Workload tells it, not the
    cluster's role, which may be another one by now.
    """
    grown = {row.slug for row in clusters if row.own_queue}
    manager = _manager(clusters)
    sent = {
        _key(rows): ClusterName(slug)
        for (slug, _), rows in histories.items()
        if slug in grown and _is_for_workers(rows)
    }
    return {
        place: None
        if place[0] in grown and not _is_for_workers(rows)
        else sent.get(_key(rows), manager)
        for place, rows in histories.items()
    }


def _is_for_workers(history: Sequence[Recorded]) -> bool:
    """Whether its quota is, or was, of the queue for workers; before it has any, its queue is."""
    reserved = {event.facts.cluster_queue for event in history} - {""}
    if reserved:
        return dispatched_queue(history[0].facts.namespace) in reserved
    return history[-1].facts.queue == FLEET_QUEUE


def _key(history: Sequence[Recorded]) -> tuple[str, str]:
    facts = history[0].facts
    return facts.namespace, facts.name


def origins_of(clusters: Collection[Cluster]) -> frozenset[str]:
    """Marks of the copies that managers of this fleet make or made."""
    return frozenset(mark_of(row) for row in clusters if row.is_manager or row.own_queue)


def mark_of(manager: Cluster) -> str:
    """Mark of the copies that a manager makes: the portal's, or its Kueue's."""
    if manager.mode == Cluster.Mode.PORTAL:
        return str(settings.PORTAL_INSTALLATION)
    return origin_of(manager.kueue_configuration)


def _manager(clusters: Collection[Cluster]) -> ClusterName | None:
    """The manager in office, or the last one: its history must not change when it is removed."""
    managers = [row for row in clusters if row.is_manager or row.own_queue]
    managers.sort(key=lambda row: (not row.is_manager, row.state == Cluster.State.REMOVED, -row.pk))
    return ClusterName(managers[0].slug) if managers else None
