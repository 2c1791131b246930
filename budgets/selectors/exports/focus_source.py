"""Charge rows with what FOCUS asks of them besides: commitment, workloads, spot, words.

Read in step with the charge rows, one workspace and flavor at a time, so that memory holds the
workloads of one hour.

Source: spec money, section 2.3.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from operator import itemgetter

from django.db.models import Q

from budgets.charging import ChargeRow, RowKind
from budgets.exports.focus import Commitment, FocusInput, FocusNames, WorkloadShare
from budgets.models import (
    Account,
    Adjustment,
    BillingPeriod,
    Interval,
    RatePrice,
    WorkloadUsage,
    Workspace,
)
from budgets.plan import FleetTimeline, RevisionSpan, edges, in_force_at
from budgets.selectors.budget.timeline import live_revisions
from budgets.selectors.fleet.places import facts_in

CHUNK = 5_000
HELD = (RowKind.FLOOR, RowKind.BURST)
OF_A_FLOOR = (RowKind.FLOOR, RowKind.LENDING_CREDIT)


def focus_names(period: BillingPeriod, *, provider: str) -> FocusNames:
    """Display names and the bounds of the period. Two queries."""
    return FocusNames(
        provider=provider,
        periods={period.name: (period.start, period.end)},
        accounts=dict(Account.objects.values_list("slug", "name")),
        workspaces=dict(Workspace.objects.values_list("namespace", "name")),
    )


def focus_inputs(
    rows: Iterable[ChargeRow], period: BillingPeriod, *, complete_until: datetime | None
) -> Iterator[FocusInput]:
    """Yield each charge row with what stands around it.

    Args:
        rows: In the order of :func:`budgets.selectors.billing.charge_lines`.
        period: The rows' billing period.
        complete_until: Up to when all facts are complete; None: nothing is.
    """
    commitments = _Commitments(period)
    shares = _Shares(period)
    words = _Words(period)
    dynamic = frozenset(
        RatePrice.objects.filter(is_dynamic=True).values_list("card_id", "flavor__slug")
    )
    for row in rows:
        kind = row.class_of or row.kind
        note, is_goodwill = words.of(row) if row.kind is RowKind.ADJUSTMENT else ("", False)
        yield FocusInput(
            row,
            shares=shares.of(row) if row.kind in HELD and row.gpu_seconds > 0 else (),
            commitment=commitments.of(row) if kind in OF_A_FLOOR and row.flavor else None,
            is_dynamic=kind is RowKind.BURST and (row.rate_card, row.flavor) in dynamic,
            note=note,
            is_goodwill=is_goodwill,
            is_complete=complete_until is not None and row.end <= complete_until,
        )


class _Commitments:
    """Which revision was in force: one line of it is the commitment."""

    def __init__(self, period: BillingPeriod) -> None:
        self._steps: dict[str, tuple[Sequence[datetime], list[RevisionSpan | None]]] = {}
        self._made: dict[tuple[str, int, str], Commitment] = {}
        # Corrections reach back before the period: all that was ever live is looked at.
        spans: dict[str, list[RevisionSpan]] = {}
        for span in live_revisions(datetime.min.replace(tzinfo=period.start.tzinfo)):
            spans.setdefault(span.namespace, []).append(span)
        for namespace, own in spans.items():
            first = min(span.valid_from for span in own)
            ordered = edges(FleetTimeline({}, revisions=tuple(own)), start=first, end=None)
            found = [in_force_at(own, edge).get(namespace) for edge in ordered]
            self._steps[namespace] = (ordered, found)

    def of(self, row: ChargeRow) -> Commitment:
        """That of the row's start; where a budget begins within the hour, its first."""
        begun, found = self._steps.get(row.workspace, ((), []))
        at = bisect_right(begun, row.start)
        span = found[at - 1] if at else None
        if span is None and at < len(begun) and begun[at] < row.end:
            span = found[at]
        key = (row.workspace, 0 if span is None else span.number, row.flavor)
        made = self._made.get(key)
        if made is None:
            lines = () if span is None else span.lines
            own = [line for line in lines if line.flavor == row.flavor]
            is_reserved = any(line.committed and not line.lendable for line in own)
            made = self._made[key] = Commitment(*key, is_reserved=is_reserved)
        return made


class _Shares:
    """The workloads of an hour, read in step with the charge rows."""

    def __init__(self, period: BillingPeriod) -> None:
        self._period = period
        self._keys = dict(Workspace.objects.values_list("namespace", "pk"))
        self._place: tuple[str, str] | None = None
        self._hours: Iterator[tuple[datetime, tuple[WorkloadShare, ...]]] = iter(())
        self._current: tuple[datetime, tuple[WorkloadShare, ...]] | None = None

    def of(self, row: ChargeRow) -> tuple[WorkloadShare, ...]:
        """Those of the row's flavor and hour."""
        place = (row.workspace, row.flavor)
        if place != self._place:
            self._place = place
            self._hours = self._read(*place)
            self._current = next(self._hours, None)
        while self._current is not None and self._current[0] < row.start:
            self._current = next(self._hours, None)
        if self._current is None or self._current[0] != row.start:
            return ()
        return self._current[1]

    def _read(
        self, namespace: str, flavor: str
    ) -> Iterator[tuple[datetime, tuple[WorkloadShare, ...]]]:
        period, key = self._period, self._keys.get(namespace)
        if key is None:
            return
        names = dict(
            Interval.objects.filter(
                Q(end__isnull=True) | Q(end__gt=period.start),
                workspace=key,
                flavor=flavor,
                start__lt=period.end,
            )
            .order_by()
            .values_list("uid", "workload")
        )
        own = WorkloadUsage.objects.filter(workspace=key, flavor=flavor)
        facts = facts_in(own, period).order_by("hour", "start", "cluster", "uid")
        found = facts.values_list("start", "cluster", "uid", "committed_used", "burst")
        for start, group in groupby(found.iterator(chunk_size=CHUNK), key=itemgetter(0)):
            yield (
                start,
                tuple(
                    WorkloadShare(cluster, uid, names.get(uid, uid), used, burst)
                    for _, cluster, uid, used, burst in group
                ),
            )


class _Words:
    """What was said when an adjustment was approved."""

    def __init__(self, period: BillingPeriod) -> None:
        self._rows: dict[tuple[str, str, Decimal], list[Adjustment]] = {}
        if period.pk is None:
            return
        approved = Adjustment.objects.filter(period=period, state=Adjustment.State.APPROVED)
        for row in approved.select_related("account", "workspace").order_by("-pk"):
            namespace = row.workspace.namespace if row.workspace else ""
            key = (row.account.slug, namespace, row.amount.normalize())
            self._rows.setdefault(key, []).append(row)

    def of(self, row: ChargeRow) -> tuple[str, bool]:
        """(its words with the approval's number, whether it is goodwill and corrects no line)."""
        waiting = self._rows.get((row.account, row.workspace, row.amount.normalize()))
        if not waiting:
            return "", False
        found = waiting.pop()
        is_goodwill = found.amount < 0 and found.corrects_id is None
        return f"Adjustment {found.pk}: {found.reason}", is_goodwill
