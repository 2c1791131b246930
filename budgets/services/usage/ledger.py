"""Storing intervals: what the watches saw, rebuilt as a whole per workload, written once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Q
from msgspec.structs import replace

from budgets import intervals as ledger
from budgets.models import Interval, MeterState, PendingSpan, Workspace
from budgets.selectors.clock import utc_now
from budgets.services.budget.dirty import mark_dirty
from budgets.services.usage.rows import among, write_rows
from budgets.units import ClusterName, FlavorName, WorkloadUid

NATURAL_KEY = ("cluster", "uid", "epoch", "pod_set", "flavor", "seq")
CHANGING = (
    "workspace_id",
    "namespace",
    "workload",
    "cluster_queue",
    "job_kind",
    "job_name",
    "gpus",
    "admitted_at",
    "start",
    "end",
    "state",
    "kind",
    "note",
    "ended_by",
    "updated_at",
)
PENDING_KEY = ("cluster", "uid", "start")
PENDING_CHANGING = ("end", "gpus", "workspace_id", "namespace", "workload", "requeued")
BATCH = 5_000
NOTE_LENGTH = 300
REASON_LENGTH = 63


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """How many rows a store wrote."""

    new: int
    changed: int
    superseded: int


@transaction.atomic
def store_intervals(
    rebuilt: Iterable[ledger.Interval],
    *,
    workloads: Collection[tuple[str, str]],
    pending: Sequence[ledger.PendingSpan] = (),
) -> StoreSummary:
    """Store what the events of some workloads come to; storing it again writes nothing.

    Args:
        rebuilt: All intervals of these workloads, from ``intervals.intervals``.
        workloads: (cluster, uid) of every workload that was rebuilt; their stored intervals that
            are not in ``rebuilt`` any more are superseded, never deleted.
        pending: All their pending spans; stored ones that are gone are deleted, for they are
            never billed.

    Returns:
        Counts. The meter is told from when it has to look again. A queue that is no workspace's
        makes its intervals ``outside``: shown, billed to nobody.
    """
    wanted = set(workloads)
    # Cut before comparing, or a long note would be new every time.
    rows = [_cut(row) for row in rebuilt if (row.cluster, row.uid) in wanted]
    stored = {_key(row): row for row in _stored(wanted)}
    found = ledger.changes([_as_plan(row) for row in stored.values()], rows)
    workspaces = dict(Workspace.objects.values_list("namespace", "pk"))
    written = [*found.new, *found.changed, *found.superseded]
    # What is not stored yet cannot come meanwhile: its builder holds the workload's lock.
    _write(found.new, workspaces, is_new=True)
    _write([*found.changed, *found.superseded], workspaces)
    edges: dict[str, datetime] = {}
    for row in written:
        edge = _earliest_change(stored.get(_key(row)), row)
        edges[row.cluster] = min(edge, edges.get(row.cluster, edge))
    for cluster, edge in _store_pending(wanted, pending, workspaces).items():
        edges[cluster] = min(edge, edges.get(cluster, edge))
    for cluster, edge in sorted(edges.items()):
        mark_dirty(edge, cluster=cluster)
    return StoreSummary(len(found.new), len(found.changed), len(found.superseded))


def record_progress(
    *,
    cluster: str,
    complete_until: datetime | None = None,
    last_event_id: int | None = None,
    message: str | None = None,
) -> None:
    """Say how far a cluster's events are known and turned into intervals; times never go back.

    Args:
        cluster: Cluster slug.
        complete_until: UTC: every event before it is stored.
        last_event_id: The newest event that intervals were built from.
        message: Why it is late, in words; empty when all is well; None leaves it.
    """
    MeterState.objects.get_or_create(cluster=cluster)
    rows = MeterState.objects.filter(cluster=cluster)
    if complete_until is not None:
        whole = complete_until.replace(microsecond=0)
        rows.filter(Q(complete_until__isnull=True) | Q(complete_until__lt=whole)).update(
            complete_until=whole
        )
    if last_event_id is not None:
        rows.filter(last_event_id__lt=last_event_id).update(last_event_id=last_event_id)
    if message is not None:
        rows.update(message=message[:300])


def _stored(workloads: Collection[tuple[str, str]]) -> list[Interval]:
    uids = sorted({uid for _, uid in workloads})
    clusters = {cluster for cluster, _ in workloads}
    found: list[Interval] = []
    for at in range(0, len(uids), BATCH):
        found += [
            row
            for row in Interval.objects.filter(
                among("uid", uids[at : at + BATCH]), cluster__in=clusters
            )
            if (row.cluster, row.uid) in workloads
        ]
    return found


def _key(row: Interval | ledger.Interval) -> tuple[object, ...]:
    return (row.cluster, row.uid, row.epoch, row.pod_set, row.flavor, row.seq)


def _as_plan(row: Interval) -> ledger.Interval:
    """A stored row as the core knows it; an outside one was billable before it was placed."""
    is_outside = row.kind == Interval.Kind.OUTSIDE
    return ledger.Interval(
        cluster=ClusterName(row.cluster),
        uid=WorkloadUid(row.uid),
        epoch=row.epoch,
        pod_set=row.pod_set,
        flavor=FlavorName(row.flavor),
        seq=row.seq,
        gpus=row.gpus,
        admitted_at=row.admitted_at,
        start=row.start,
        end=row.end,
        state=ledger.IntervalState(row.state),
        role=ledger.Role.BILLABLE if is_outside else ledger.Role(row.kind),
        namespace=row.namespace,
        workload=row.workload,
        cluster_queue=row.cluster_queue,
        job_kind=row.job_kind,
        job_name=row.job_name,
        note=row.note,
        ended_by=row.ended_by,
    )


def _cut(row: ledger.Interval) -> ledger.Interval:
    if len(row.note) <= NOTE_LENGTH and len(row.ended_by) <= REASON_LENGTH:
        return row
    return replace(row, note=row.note[:NOTE_LENGTH], ended_by=row.ended_by[:REASON_LENGTH])


def _write(
    rows: Iterable[ledger.Interval], workspaces: dict[str, int], *, is_new: bool = False
) -> None:
    now = utc_now()
    write_rows(
        Interval,
        (*NATURAL_KEY, *CHANGING),
        [_values(row, workspaces, now) for row in rows],
        unique=NATURAL_KEY,
        update=CHANGING,
        is_new=is_new,
    )


def _values(row: ledger.Interval, workspaces: dict[str, int], now: datetime) -> tuple[object, ...]:
    """Values of the natural key and of what may change, in the order of these names."""
    workspace = workspaces.get(row.cluster_queue or row.namespace)
    is_outside = row.role is ledger.Role.BILLABLE and workspace is None
    return (
        row.cluster,
        row.uid,
        row.epoch,
        row.pod_set,
        row.flavor,
        row.seq,
        workspace,
        row.namespace,
        row.workload,
        row.cluster_queue,
        row.job_kind,
        row.job_name,
        row.gpus,
        row.admitted_at,
        row.start,
        row.end,
        row.state.value,
        (Interval.Kind.OUTSIDE if is_outside else row.role).value,
        row.note,
        row.ended_by,
        now,
    )


def _earliest_change(before: Interval | None, after: ledger.Interval) -> datetime:
    """The first instant whose usage the change touches.

    A job that ends after days dirties the hour of its end, not the days that it ran.
    """
    if before is None:
        return after.start
    is_same_until_end = (
        before.start == after.start
        and before.gpus == after.gpus
        and before.admitted_at == after.admitted_at
        and (before.kind in (after.role.value, Interval.Kind.OUTSIDE))
        and ledger.IntervalState.SUPERSEDED not in (before.state, after.state)
    )
    if not is_same_until_end:
        return min(before.start, after.start)
    ends = [end for end in (before.end, after.end) if end is not None]
    return min(ends, default=after.start)


def _store_pending(
    workloads: Collection[tuple[str, str]],
    pending: Sequence[ledger.PendingSpan],
    workspaces: dict[str, int],
) -> dict[str, datetime]:
    """Replace the pending spans of some workloads; cluster -> earliest change."""
    uids = sorted({uid for _, uid in workloads})
    clusters = {cluster for cluster, _ in workloads}
    stored: dict[tuple[str, str, datetime], PendingSpan] = {}
    for at in range(0, len(uids), BATCH):
        part = PendingSpan.objects.filter(among("uid", uids[at : at + BATCH]), cluster__in=clusters)
        for row in part:
            if (row.cluster, row.uid) in workloads:
                stored[row.cluster, row.uid, row.start] = row
    wanted = {
        (span.cluster, span.uid, span.start): span
        for span in pending
        if (span.cluster, span.uid) in workloads
    }
    gone = [row for key, row in stored.items() if key not in wanted]
    changed = [
        span
        for key, span in wanted.items()
        if key not in stored or (stored[key].end, stored[key].gpus) != (span.end, span.gpus)
    ]
    if gone:
        PendingSpan.objects.filter(pk__in=[row.pk for row in gone]).delete()
    # As with intervals, what is not stored yet cannot come meanwhile.
    for is_new in (True, False):
        write_rows(
            PendingSpan,
            (*PENDING_KEY, *PENDING_CHANGING),
            [
                (
                    span.cluster,
                    span.uid,
                    span.start,
                    span.end,
                    span.gpus,
                    workspaces.get(span.namespace),
                    span.namespace,
                    span.workload,
                    span.requeued,
                )
                for span in changed
                if is_new is ((span.cluster, span.uid, span.start) not in stored)
            ],
            unique=PENDING_KEY,
            update=PENDING_CHANGING,
            is_new=is_new,
        )
    edges: dict[str, datetime] = {}
    touched = [(row.cluster, row.start) for row in gone]
    touched += [(str(span.cluster), span.start) for span in changed]
    for cluster, start in touched:
        edges[cluster] = min(start, edges.get(cluster, start))
    return edges
