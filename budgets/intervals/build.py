"""All events → all intervals: the one function that the ledger is rebuilt with.

Elastic slices: a slice is finished as soon as its successor has quota, while its pods run on; the
successor's clock may start later, with its admission or its pods. In between the older one is what
is held. A workload waits from creation or requeue to its admission on a worker.

Source: spec money, sections 1.2 to 1.5 and 3.5 (pending); spec admission 3.4.7 (slices).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from budgets.intervals.epochs import Epoch, WorkloadCopy, build_copy
from budgets.intervals.model import (
    ClockSettings,
    ClockStart,
    History,
    Interval,
    IntervalKind,
    IntervalState,
    PendingSpan,
    WorkloadEvent,
)
from budgets.intervals.pieces import Cut, first_start, intervals_of
from budgets.intervals.roles import Managers, RoleSegment
from budgets.units import ClusterName, WorkloadUid

NATURAL_KEY = attrgetter("cluster", "uid", "epoch", "pod_set", "flavor", "seq")
DEFAULT_CLOCK = ClockSettings()
MANAGER_CLOCK = ClockSettings(default=ClockStart.QUOTA_RESERVED)
ByName = Mapping[tuple[ClusterName, str], Sequence[WorkloadCopy]]


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
    on_workers = [copy for copy in copies if copy.cluster != manager]
    of_manager = [copy for copy in copies if copy.cluster == manager]
    managers = Managers(of_manager, origins, copies=on_workers)
    by_name = _by_name(on_workers)
    hold_until_taken_over(on_workers, by_name, clock=clock)
    cuts = _cuts(copies, manager=manager, clock=clock)
    found: list[Interval] = []
    for copy in copies:
        for epoch in copy.epochs:
            if _is_known_by_itself(copy, epoch, by_name):
                continue
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


def _is_known_by_itself(copy: WorkloadCopy, epoch: Epoch, by_name: ByName) -> bool:
    """Whether an admission that only the manager told of is one that the copy itself tells of.

    What the manager knows of a time that nobody watched stands under the manager's UID; the copy
    may come to be known all the same, earlier or later. It was admitted under that reservation.
    """
    if copy.uid != copy.facts.manager_uid:
        return False
    return any(
        (row.end is None or row.end > epoch.reserved_at)
        and (epoch.end is None or row.reserved_at < epoch.end)
        for other in by_name.get((copy.cluster, f"{copy.facts.namespace}/{copy.facts.name}"), ())
        if other is not copy
        for row in other.epochs
    )


def _waiting(epoch: Epoch) -> list[RoleSegment]:
    """The manager's reservation is dispatch time until a worker has taken the workload."""
    return [RoleSegment(epoch.reserved_at, epoch.admitted_at, IntervalKind.MANAGER_WAIT)]


def _cuts(
    copies: Sequence[WorkloadCopy], *, manager: ClusterName | None, clock: ClockSettings
) -> dict[tuple[ClusterName, WorkloadUid, int], Cut]:
    """Where an elastic slice or a variant takes over from the one before, so none counts twice."""
    found: dict[tuple[ClusterName, WorkloadUid, int], Cut] = {}
    by_name = _by_name(copies)
    variants: dict[tuple[ClusterName, str], list[tuple[datetime, WorkloadCopy, Epoch]]] = {}
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
            cut = Cut(after, IntervalKind.RACE, "another variant of the job was admitted")
            found[copy.cluster, copy.uid, epoch.number] = cut
    return found


def _by_name(copies: Iterable[WorkloadCopy]) -> dict[tuple[ClusterName, str], list[WorkloadCopy]]:
    found: dict[tuple[ClusterName, str], list[WorkloadCopy]] = {}
    for copy in copies:
        key = (copy.cluster, f"{copy.facts.namespace}/{copy.facts.name}")
        found.setdefault(key, []).append(copy)
    return found


def _first_clock(copy: WorkloadCopy, clock: ClockSettings) -> datetime | None:
    starts = [first_start(epoch, clock=clock) for epoch in copy.epochs]
    return min((start for start in starts if start is not None), default=None)


def _pending(
    copies: Sequence[WorkloadCopy], managers: Managers, *, manager: ClusterName | None
) -> list[PendingSpan]:
    admitted: dict[WorkloadUid, list[tuple[datetime, datetime | None]]] = {}
    for copy in copies:
        if copy.cluster == manager or not managers.is_copy(copy):
            continue
        owner = managers.manager_of(copy)
        for epoch in copy.epochs:
            roles = {segment.role for segment in managers.segments(copy, epoch)}
            if (
                owner is not None
                and epoch.admitted_at is not None
                and IntervalKind.BILLABLE in roles
            ):
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
class IntervalChanges:
    """What a store has to write after a rebuild; nothing is ever deleted."""

    new: tuple[Interval, ...]
    changed: tuple[Interval, ...]
    superseded: tuple[Interval, ...]


def changes(stored: Iterable[Interval], rebuilt: Iterable[Interval]) -> IntervalChanges:
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
    return IntervalChanges(
        new=tuple(row for key, row in sorted(after.items()) if key not in before),
        changed=tuple(
            row for key, row in sorted(after.items()) if key in before and before[key] != row
        ),
        superseded=tuple(
            replace(row, state=IntervalState.SUPERSEDED)
            for key, row in sorted(before.items())
            if key not in after and row.state is not IntervalState.SUPERSEDED
        ),
    )


def pending_of(
    copy: WorkloadCopy, *, admitted: Iterable[tuple[datetime, datetime | None]]
) -> Iterator[PendingSpan]:
    """Yield the times in which an object waited for its devices.

    Args:
        copy: The object that its owner made: the manager's, or a worker's local one.
        admitted: When it was admitted on a worker, [start, end), any order.
    """
    facts = copy.facts
    gpus = facts.requested_gpus
    if not gpus:
        return
    span = partial(
        PendingSpan,
        cluster=copy.cluster,
        uid=copy.uid,
        gpus=gpus,
        namespace=facts.namespace,
        workload=facts.name,
        queue=facts.queue,
    )
    over_at = _over_at(copy)
    since: datetime | None = facts.created_at
    is_requeued = False
    for start, end in sorted(admitted, key=lambda span: span[0]):
        if since is not None and since < start:
            yield span(start=since, end=start, requeued=is_requeued)
        if end is None:
            return
        since, is_requeued = (end if since is None else max(since, end)), True
    if since is not None and (over_at is None or since < over_at):
        yield span(start=since, end=over_at, requeued=is_requeued)


def _over_at(copy: WorkloadCopy) -> datetime | None:
    """When it stopped waiting without being admitted: over, or deactivated by its owner."""
    if copy.over_at is not None:
        return copy.over_at
    stopped: datetime | None = None
    for event in copy.events:
        stopped = None if event.facts.is_active else stopped or event.observed_at
    return stopped


REPLACED: Final = "WorkloadSliceReplaced"
_NOTE: Final = "held on until its next slice's clock started"


def hold_until_taken_over(
    copies: Sequence[WorkloadCopy], by_name: ByName, *, clock: ClockSettings
) -> None:
    """Let replaced slices last until the next one's clock starts, or its admission ends.

    Args:
        copies: Of workers; their last admissions are changed where they were replaced.
        by_name: The same by (cluster, ``namespace/name``).
        clock: When each flavor's clock starts.
    """
    # The newest first: one that was replaced before its clock started lasts longer by then.
    for copy in sorted(copies, key=lambda row: (row.facts.created_at, row.uid), reverse=True):
        if not copy.facts.replaces or not copy.epochs:
            continue
        first = copy.epochs[0]
        until = first_start(first, clock=clock) or first.end
        for before in by_name.get((copy.cluster, copy.facts.replaces), ()):
            if before is not copy and before.facts.created_at <= copy.facts.created_at:
                _hold(before, first, until)


def _hold(before: WorkloadCopy, first: Epoch, until: datetime | None) -> None:
    ended = before.facts.condition("Finished")
    if ended is None or ended.reason != REPLACED or not before.epochs:
        return
    last = before.epochs[-1]
    # Without quota at its end it held nothing that could be taken over.
    if last.end != ended.since or first.reserved_at > ended.since:
        return
    if until is None or until > last.end:
        last.end, last.note = until, _NOTE
