"""All events → all intervals: the one function that the ledger is rebuilt with.

Source: spec money, sections 1.2 to 1.5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from operator import attrgetter

from msgspec.structs import replace

from budgets.intervals.epochs import Copy, Epoch, build_copy
from budgets.intervals.model import (
    ClockSettings,
    ClockStart,
    History,
    Interval,
    PendingSpan,
    Role,
    State,
    WorkloadEvent,
)
from budgets.intervals.pieces import Cut, first_start, intervals_of
from budgets.intervals.roles import Managers, Segment
from budgets.intervals.slices import hold_until_taken_over
from budgets.intervals.waiting import pending_of
from budgets.units import ClusterName, WorkloadUid

NATURAL_KEY = attrgetter("cluster", "uid", "epoch", "pod_set", "flavor", "seq")
DEFAULT_CLOCK = ClockSettings()
MANAGER_CLOCK = ClockSettings(default=ClockStart.QUOTA_RESERVED)


def intervals(
    events: Iterable[WorkloadEvent],
    *,
    manager: ClusterName | None = None,
    origins: Collection[str] | None = None,
    clock: ClockSettings = DEFAULT_CLOCK,
) -> History:
    """Work out who held what from when to when.

    Args:
        events: Any order, repeats allowed. Of a dispatched workload the manager's object and its
            copies on every worker belong together; so do the slices or variants of one job.
        manager: The cluster that dispatches; what it holds is waiting time, never billed.
        origins: Values of the origin label that mark its copies; None where any does.
        clock: When each flavor's clock starts.

    Returns:
        The same bytes for any order of the same events. What contradicts itself is left out and
        named in ``problems``. O(n log n) in events.
    """
    by_object: dict[tuple[ClusterName, WorkloadUid], list[WorkloadEvent]] = {}
    for event in events:
        by_object.setdefault((event.cluster, event.uid), []).append(event)
    copies = [build_copy(*key, rows) for key, rows in sorted(by_object.items())]
    copies = [copy for copy in copies if copy.events]
    managers = Managers([copy for copy in copies if copy.cluster == manager], origins)
    on_workers = [copy for copy in copies if copy.cluster != manager]
    hold_until_taken_over(on_workers, _by_name(on_workers), clock=clock)
    cuts = _cuts(copies, manager=manager, clock=clock)
    found: list[Interval] = []
    for copy in copies:
        for epoch in copy.epochs:
            is_manager = copy.cluster == manager
            segments = _waiting(epoch) if is_manager else managers.segments(copy, epoch)
            found += intervals_of(
                copy,
                epoch,
                segments=segments,
                clock=MANAGER_CLOCK if is_manager else clock,
                cut=cuts.get((copy.cluster, copy.uid, epoch.number)),
            )
    return History(
        intervals=tuple(sorted(found, key=NATURAL_KEY)),
        pending=tuple(_pending(copies, managers, manager=manager)),
        problems=tuple(sorted({problem for copy in copies for problem in copy.problems})),
    )


def _waiting(epoch: Epoch) -> list[Segment]:
    """The manager's reservation is dispatch time until a worker has taken the workload."""
    return [Segment(epoch.reserved_at, epoch.admitted_at, Role.MANAGER_WAIT)]


def _cuts(
    copies: Sequence[Copy], *, manager: ClusterName | None, clock: ClockSettings
) -> dict[tuple[ClusterName, WorkloadUid, int], Cut]:
    """Where an elastic slice or a variant takes over from the one before, so none counts twice."""
    found: dict[tuple[ClusterName, WorkloadUid, int], Cut] = {}
    by_name = _by_name(copies)
    variants: dict[tuple[ClusterName, str], list[tuple[datetime, Copy, Epoch]]] = {}
    for copy in copies:
        facts = copy.facts
        if facts.variant_of and copy.cluster != manager:
            family = variants.setdefault((copy.cluster, facts.variant_of), [])
            for epoch in copy.epochs:
                start = first_start(epoch, clock=clock)
                if start is not None:
                    family.append((start, copy, epoch))
    for copy in copies:
        start = _first_clock(copy, clock) if copy.facts.replaces else None
        if start is None:
            continue
        for before in by_name.get((copy.cluster, copy.facts.replaces), ()):
            for epoch in before.epochs:
                if before is not copy and before.facts.created_at <= copy.facts.created_at:
                    cut = Cut(start, None, "its next slice took over")
                    found[before.cluster, before.uid, epoch.number] = cut
    for family in variants.values():
        family.sort(key=lambda row: (row[0], row[1].uid, row[2].number))
        for (_, copy, epoch), (after, _, _) in pairwise(family):
            cut = Cut(after, Role.RACE, "another variant of the job was admitted")
            found[copy.cluster, copy.uid, epoch.number] = cut
    return found


def _by_name(copies: Iterable[Copy]) -> dict[tuple[ClusterName, str], list[Copy]]:
    found: dict[tuple[ClusterName, str], list[Copy]] = {}
    for copy in copies:
        key = (copy.cluster, f"{copy.facts.namespace}/{copy.facts.name}")
        found.setdefault(key, []).append(copy)
    return found


def _first_clock(copy: Copy, clock: ClockSettings) -> datetime | None:
    starts = [first_start(epoch, clock=clock) for epoch in copy.epochs]
    return min((start for start in starts if start is not None), default=None)


def _pending(
    copies: Sequence[Copy], managers: Managers, *, manager: ClusterName | None
) -> list[PendingSpan]:
    admitted: dict[WorkloadUid, list[tuple[datetime, datetime | None]]] = {}
    for copy in copies:
        if copy.cluster == manager or not managers.is_copy(copy):
            continue
        owner = managers.manager_of(copy)
        for epoch in copy.epochs:
            roles = {segment.role for segment in managers.segments(copy, epoch)}
            if owner is not None and epoch.admitted_at is not None and Role.BILLABLE in roles:
                admitted.setdefault(owner.uid, []).append((epoch.admitted_at, epoch.end))
    spans: list[PendingSpan] = []
    for copy in copies:
        if copy.cluster == manager:
            spans += pending_of(copy, admitted=admitted.get(copy.uid, ()))
        elif not managers.is_copy(copy):
            own = [(row.admitted_at, row.end) for row in copy.epochs if row.admitted_at]
            spans += pending_of(copy, admitted=own)
    return spans


@dataclass(frozen=True, slots=True)
class Changes:
    """What a store has to write after a rebuild; nothing is ever deleted."""

    new: tuple[Interval, ...]
    changed: tuple[Interval, ...]
    superseded: tuple[Interval, ...]


def changes(stored: Iterable[Interval], rebuilt: Iterable[Interval]) -> Changes:
    """Compare stored intervals with rebuilt ones of the same workloads.

    Args:
        stored: Every stored interval of these workloads, superseded ones too.
        rebuilt: Every interval that their events come to now.

    Returns:
        Rows to insert, rows whose content differs, and stored rows that are true no more (as
        SUPERSEDED). All empty when the stored ones are the rebuilt ones.
    """
    before = {NATURAL_KEY(row): row for row in stored}
    after = {NATURAL_KEY(row): row for row in rebuilt}
    return Changes(
        new=tuple(row for key, row in sorted(after.items()) if key not in before),
        changed=tuple(
            row for key, row in sorted(after.items()) if key in before and before[key] != row
        ),
        superseded=tuple(
            replace(row, state=State.SUPERSEDED)
            for key, row in sorted(before.items())
            if key not in after and row.state is not State.SUPERSEDED
        ),
    )
