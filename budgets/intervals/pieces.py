"""An admission's steps, clock and roles → intervals, one per pod set, flavor and piece.

Source: spec money, sections 1.2 and 1.4 (2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct

from budgets.intervals.epochs import Epoch, WorkloadCopy
from budgets.intervals.model import (
    ClockSettings,
    ClockStart,
    Interval,
    IntervalKind,
    IntervalState,
    ProblemCode,
)
from budgets.intervals.roles import RoleSegment
from budgets.units import FlavorName


@dataclass(frozen=True, slots=True)
class Cut:
    """At ``at`` another object took these devices over; the rest is ``role`` or, None, nothing."""

    at: datetime
    role: IntervalKind | None
    note: str


class _Piece(Struct, frozen=True):
    start: datetime
    end: datetime | None
    gpus: int
    is_estimated: bool


def clock_start(
    epoch: Epoch, flavor: FlavorName, *, clock: ClockSettings
) -> tuple[datetime | None, datetime | None]:
    """Return (when the clock of a flavor starts, what orders the waterfall); None: not yet."""
    setting = clock.start_of(flavor, reserved_at=epoch.reserved_at)
    if setting is ClockStart.QUOTA_RESERVED:
        return epoch.reserved_at, epoch.reserved_at
    if setting is ClockStart.PODS_READY:
        return epoch.ready_at, epoch.admitted_at or epoch.reserved_at
    return epoch.admitted_at, epoch.admitted_at


def first_start(epoch: Epoch, *, clock: ClockSettings) -> datetime | None:
    """Return when the first clock of an admission starts, or None."""
    flavors = {flavor for step in epoch.steps for _, flavor in step.amounts}
    starts = [clock_start(epoch, flavor, clock=clock)[0] for flavor in flavors]
    return min((start for start in starts if start is not None), default=None)


def intervals_of(
    copy: WorkloadCopy,
    epoch: Epoch,
    *,
    segments: Sequence[RoleSegment],
    clock: ClockSettings,
    cut: Cut | None = None,
) -> list[Interval]:
    """Return everything that one admission held.

    A time that ends before it starts is refused and becomes a problem of the copy.
    """
    if epoch.end is not None and epoch.end < epoch.reserved_at:
        copy.problem(
            ProblemCode.NEGATIVE_DURATION,
            f"admission {epoch.number} ends {epoch.end.isoformat()}, before its quota was "
            f"reserved {epoch.reserved_at.isoformat()}",
        )
        return []
    keys = sorted({key for step in epoch.steps for key in step.amounts})
    found: list[Interval] = []
    for pod_set, flavor in keys:
        start, orders = clock_start(epoch, flavor, clock=clock)
        if start is not None and epoch.end is not None and epoch.end < start:
            copy.problem(
                ProblemCode.NEGATIVE_DURATION,
                f"admission {epoch.number} ends {epoch.end.isoformat()}, before its clock "
                f"started {start.isoformat()}",
            )
            continue
        if start is not None and epoch.end == start and _is_unproven(epoch, segments):
            copy.problem(
                ProblemCode.NOTHING_PROVEN,
                f"admission {epoch.number} began {start.isoformat()} and was over when the cluster "
                f"was watched again; no second of it is proven, so none is counted",
            )
        admitted_at = orders or epoch.reserved_at
        rows = _rows(epoch, (pod_set, flavor), segments, start, cut)
        for seq, (piece, role, note) in enumerate(rows, start=1):
            found.append(
                _interval(copy, epoch, piece, role, note, (pod_set, flavor), seq, admitted_at)
            )
    return found


def _is_unproven(epoch: Epoch, segments: Sequence[RoleSegment]) -> bool:
    is_billed = any(segment.role is IntervalKind.BILLABLE for segment in segments)
    return epoch.is_estimated and is_billed


def _rows(
    epoch: Epoch,
    key: tuple[str, FlavorName],
    segments: Sequence[RoleSegment],
    start: datetime | None,
    cut: Cut | None,
) -> Iterator[tuple[_Piece, IntervalKind, str]]:
    """Cut the steps at the clock's start, at role changes and where others take over."""
    spans = list(_with_cut(_with_clock(segments, epoch, start), cut))
    for piece in _pieces(epoch, key):
        for span in spans:
            begin = max(piece.start, span.start)
            ends = [end for end in (piece.end, span.end) if end is not None]
            end = min(ends, default=None)
            if (end is None or begin < end) and piece.gpus:
                is_whole = end == piece.end
                shown = _Piece(begin, end, piece.gpus, piece.is_estimated and is_whole)
                yield shown, span.role, span.note


def _with_clock(
    segments: Sequence[RoleSegment], epoch: Epoch, start: datetime | None
) -> Iterator[RoleSegment]:
    """Before the clock starts quota is only withheld, whoever it is for."""
    if start is None or start > epoch.reserved_at:
        yield RoleSegment(epoch.reserved_at, start, IntervalKind.RESERVED)
    if start is None:
        return
    for segment in segments:
        begin = max(segment.start, start)
        if segment.end is None or begin < segment.end:
            yield RoleSegment(begin, segment.end, segment.role, segment.note)


def _with_cut(segments: Iterator[RoleSegment], cut: Cut | None) -> Iterator[RoleSegment]:
    for segment in segments:
        if cut is None or (segment.end is not None and segment.end <= cut.at):
            yield segment
            continue
        if segment.start < cut.at:
            yield RoleSegment(segment.start, cut.at, segment.role, segment.note)
        if cut.role is not None:
            role = cut.role if segment.role is not IntervalKind.RESERVED else IntervalKind.RESERVED
            yield RoleSegment(max(segment.start, cut.at), segment.end, role, cut.note)


def _pieces(epoch: Epoch, key: tuple[str, FlavorName]) -> Iterator[_Piece]:
    """One piece per quantity of a pod set and flavor, within the admission."""
    edges: list[tuple[datetime, int, bool]] = []
    for step in epoch.steps:
        gpus = step.amounts.get(key, 0)
        since = epoch.reserved_at if step.since is None else max(step.since, epoch.reserved_at)
        if not edges or edges[-1][1] != gpus:
            edges.append((since, gpus, key in step.estimated))
    for at, (since, gpus, is_estimated) in enumerate(edges):
        is_last = at == len(edges) - 1
        end = epoch.end if is_last else edges[at + 1][0]
        is_end_estimated = epoch.is_estimated if is_last else edges[at + 1][2]
        if epoch.end is not None and end is not None and end >= epoch.end:
            end, is_end_estimated = epoch.end, epoch.is_estimated
        if end is None or since < end:
            yield _Piece(since, end, gpus, is_estimated or is_end_estimated)


def _interval(
    copy: WorkloadCopy,
    epoch: Epoch,
    piece: _Piece,
    role: IntervalKind,
    note: str,
    key: tuple[str, FlavorName],
    seq: int,
    admitted_at: datetime,
) -> Interval:
    state = IntervalState.OPEN if piece.end is None else IntervalState.CLOSED
    if piece.is_estimated:
        state = IntervalState.ESTIMATED
    is_last = piece.end is not None and piece.end == epoch.end
    notes = [part for part in (note, epoch.note if is_last else "") if part]
    facts = copy.facts
    return Interval(
        cluster=copy.cluster,
        uid=copy.uid,
        epoch=epoch.number,
        pod_set=key[0],
        flavor=key[1],
        seq=seq,
        gpus=piece.gpus,
        admitted_at=admitted_at,
        start=piece.start,
        end=piece.end,
        state=state,
        role=role,
        namespace=facts.namespace,
        workload=facts.name,
        cluster_queue=epoch.cluster_queue,
        job_kind=facts.job_kind,
        job_name=facts.job_name,
        note="; ".join(notes),
        ended_by=epoch.ended_by if is_last else "",
    )
