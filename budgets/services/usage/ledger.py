"""Storing intervals: what the watches saw, rebuilt as a whole per workload, written once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import Value
from django.db.models.functions import Coalesce, Greatest
from msgspec.structs import replace

from budgets import intervals as ledger
from budgets.models import Interval, MeterState, PendingSpan, Workspace
from budgets.selectors.clock import utc_now
from budgets.services.budget.versions import mark_dirty
from budgets.services.usage.rows import among, write_rows

NATURAL_KEY = ("cluster", "uid", "epoch", "pod_set", "flavor", "seq")
SAME = (
    "namespace",
    "workload",
    "cluster_queue",
    "job_kind",
    "job_name",
    "gpus",
    "admitted_at",
    "start",
    "end",
    "note",
    "ended_by",
)
"""What a stored interval and one of the core have alike, besides the key."""
CHANGING = (*SAME, "workspace_id", "state", "kind", "updated_at")
PENDING_KEY = ("cluster", "uid", "start")
PENDING_SAME = ("end", "gpus", "namespace", "workload", "requeued")
_key, _same = attrgetter(*NATURAL_KEY), attrgetter(*SAME)
_pending_key, _pending_same = attrgetter(*PENDING_KEY), attrgetter(*PENDING_SAME)
M = TypeVar("M", Interval, PendingSpan)
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
    stored = {_key(row): row for row in _stored(Interval, wanted)}
    found = ledger.changes([_as_plan(row) for row in stored.values()], rows)
    workspaces = dict(Workspace.objects.values_list("namespace", "pk"))
    rewritten = [*found.changed, *found.superseded]
    # What is not stored yet cannot come meanwhile: its builder holds the workload's lock.
    _write(found.new, workspaces, is_new=True)
    _write(rewritten, workspaces)
    edges = [
        (str(row.cluster), _earliest_change(stored.get(_key(row)), row))
        for row in (*found.new, *rewritten)
    ]
    edges += _store_pending(wanted, pending, workspaces)
    firsts: dict[str, datetime] = {}
    for cluster, edge in edges:
        firsts[cluster] = min(edge, firsts.get(cluster, edge))
    for cluster, first in sorted(firsts.items()):
        mark_dirty(first, cluster=cluster)
    return StoreSummary(len(found.new), len(found.changed), len(found.superseded))


def not_as_stored(
    rebuilt: Iterable[ledger.Interval],
    *,
    workloads: Collection[tuple[str, str]],
    pending: Iterable[ledger.PendingSpan],
) -> set[tuple[str, str]]:
    """Of some workloads those of which :func:`store_intervals` would write something. Writes not.

    Args:
        rebuilt: All their intervals.
        workloads: (cluster, uid) of each.
        pending: All their pending spans.
    """
    wanted = set(workloads)
    rows = [_cut(row) for row in rebuilt if (row.cluster, row.uid) in wanted]
    found = ledger.changes([_as_plan(row) for row in _stored(Interval, wanted)], rows)
    differing = {
        (str(row.cluster), str(row.uid)) for row in (*found.new, *found.changed, *found.superseded)
    }
    waited = {(*_pending_key(row), row.end, row.gpus) for row in _stored(PendingSpan, wanted)}
    waits = {
        (*_pending_key(row), row.end, row.gpus)
        for row in pending
        if (row.cluster, row.uid) in wanted
    }
    return differing | {(key[0], key[1]) for key in waited ^ waits}


def record_progress(
    *,
    cluster: str,
    complete_until: datetime | None = None,
    watched_version: str = "",
    last_event_id: int | None = None,
    message: str | None = None,
) -> None:
    """Say how far a cluster's events are known and turned into intervals; times never go back.

    Args:
        cluster: Cluster slug.
        complete_until: UTC: every event before it is stored.
        watched_version: Every event up to this resourceVersion is stored; empty leaves it.
        last_event_id: The newest event that intervals were built from.
        message: Why it is late, in words; empty when all is well; None leaves it.
    """
    changes: dict[str, Any] = {}
    if complete_until is not None:
        whole = Value(complete_until.replace(microsecond=0))
        changes["complete_until"] = Greatest(Coalesce("complete_until", whole), whole)
    if watched_version:
        changes["watched_version"] = watched_version
    if last_event_id is not None:
        changes["last_event_id"] = Greatest("last_event_id", Value(last_event_id))
    if message is not None:
        changes["message"] = message[:300]
    rows = MeterState.objects.filter(cluster=cluster)
    if not changes or not rows.update(**changes):
        MeterState.objects.get_or_create(cluster=cluster)
        rows.update(**changes)


def _stored(table: type[M], workloads: Collection[tuple[str, str]]) -> list[M]:
    """Rows of a table that are of these (cluster, uid)."""
    uids = sorted({uid for _, uid in workloads})
    here = table._default_manager.filter(cluster__in={cluster for cluster, _ in workloads})
    return [
        row
        for at in range(0, len(uids), BATCH)
        for row in here.filter(among("uid", uids[at : at + BATCH]))
        if (row.cluster, row.uid) in workloads
    ]


def _as_plan(row: Interval) -> ledger.Interval:
    """A stored row as the core knows it; an outside one was billable before it was placed."""
    alike = dict(zip((*NATURAL_KEY, *SAME), (*_key(row), *_same(row)), strict=True))
    kind = ledger.IntervalKind(row.kind)
    return ledger.Interval(
        **alike,
        state=ledger.IntervalState(row.state),
        role=ledger.IntervalKind.BILLABLE if kind is ledger.IntervalKind.OUTSIDE else kind,
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
        update=CHANGING,
        is_new=is_new,
    )


def _values(row: ledger.Interval, workspaces: dict[str, int], now: datetime) -> tuple[object, ...]:
    """Values of the natural key and of what may change, in the order of these names."""
    # A manager may have another queue for what it dispatches; whose it is says the namespace.
    is_waiting = row.role is ledger.IntervalKind.MANAGER_WAIT
    workspace = workspaces.get((not is_waiting and row.cluster_queue) or row.namespace)
    is_outside = row.role is ledger.IntervalKind.BILLABLE and workspace is None
    kind = ledger.IntervalKind.OUTSIDE if is_outside else row.role
    return (*_key(row), *_same(row), workspace, row.state.value, kind.value, now)


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
) -> list[tuple[str, datetime]]:
    """Replace the pending spans of some workloads; (cluster, start) of what changed."""
    stored = {_pending_key(row): row for row in _stored(PendingSpan, workloads)}
    wanted = {_pending_key(span): span for span in pending if (span.cluster, span.uid) in workloads}
    gone = [row for key, row in stored.items() if key not in wanted]
    new = [span for key, span in wanted.items() if key not in stored]
    changed = [
        span
        for key, span in wanted.items()
        if key in stored and (stored[key].end, stored[key].gpus) != (span.end, span.gpus)
    ]
    if gone:
        PendingSpan.objects.filter(pk__in=[row.pk for row in gone]).delete()
    # As with intervals, what is not stored yet cannot come meanwhile.
    for spans, is_new in ((new, True), (changed, False)):
        write_rows(
            PendingSpan,
            (*PENDING_KEY, *PENDING_SAME, "workspace_id"),
            [
                (*_pending_key(span), *_pending_same(span), workspaces.get(span.namespace))
                for span in spans
            ],
            update=(*PENDING_SAME, "workspace_id"),
            is_new=is_new,
        )
    touched: list[PendingSpan | ledger.PendingSpan] = [*gone, *new, *changed]
    return [(row.cluster, row.start) for row in touched]
