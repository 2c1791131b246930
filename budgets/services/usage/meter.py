"""Hour facts out of intervals, revisions and pools; only the hours that may have changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from django.db import transaction
from django.db.models import Min

from budgets.metering import MeteringError
from budgets.models import BudgetRevision, Interval, MeterState
from budgets.selectors.clock import utc_now
from budgets.services.usage.batches import uncollected
from budgets.services.usage.hour_facts import FactSource, MeterError, write_facts
from budgets.services.usage.reconciliation import check_capacity
from budgets.units import BOOKS_BEGIN, Period

STEP = timedelta(hours=24)
MIDNIGHT = datetime(1970, 1, 1, tzinfo=UTC)
ROUND = 7
"""Steps under one lock: what they are worked out from is read once for all of them."""


@dataclass(frozen=True, slots=True)
class MeterSummary:
    """What one run of the meter did.

    Attributes:
        start: First instant that was metered; None when there was nothing to do.
        end: Facts stand up to it.
        written: Rows that were new or changed.
        removed: Rows that are no longer true.
    """

    start: datetime | None
    end: datetime | None
    written: int = 0
    removed: int = 0


def meter_usage(now: datetime | None = None) -> MeterSummary:
    """Bring the hour facts up to date, in steps of a day and transactions of some days.

    The first hour to write is that of the earliest change since the last run, or where the last
    run ended; the last is the newest that any cluster is complete to, so that a lost cluster
    never stops the others. Facts that did not change are not written.

    Args:
        now: UTC; None for the present. Nothing is metered beyond it.

    Raises:
        MeterError: The core's identities do not hold for a day; days before it are written.
        MeteringError: What a day is worked out from contradicts itself; the same.
    """
    instant = now or utc_now()
    rounds = list(iter(partial(_meter_round, instant), None))
    first = rounds[0].start if rounds else None
    check_capacity(since=first, now=instant)
    return MeterSummary(
        first,
        rounds[-1].end if rounds else None,
        sum(done.written for done in rounds),
        sum(done.removed for done in rounds),
    )


@uncollected
@transaction.atomic
def _meter_round(now: datetime) -> MeterSummary | None:
    """Meter at most so many days; the lock on the meter's rows keeps a second meter out."""
    states = list(MeterState.objects.select_for_update().order_by("pk"))
    known = [row.complete_until for row in states if row.complete_until is not None]
    if not known:
        return None
    end = min(max(known), now)
    start = _first_hour(states)
    if start is None or start >= end or not _is_behind(states, end):
        return None
    windows = _windows(start, end)
    stop, written, removed = start, 0, 0
    try:
        for facts in FactSource(Period(start, windows[-1].end)).in_turn(windows):
            counts = write_facts(facts)
            stop = facts.window.end
            written, removed = written + counts[0], removed + counts[1]
    except (MeterError, MeteringError):
        # That day comes first in the next round, and stops the meter there.
        if stop == start:
            raise
    for row in states:
        row.dirty_from = None if stop == end else stop
        row.metered_until = stop if row.metered_until is None else max(row.metered_until, stop)
    MeterState.objects.bulk_update(states, ["dirty_from", "metered_until"])
    return MeterSummary(start, stop, written, removed)


def _windows(start: datetime, end: datetime) -> list[Period]:
    """The next steps from ``start`` on, of which there is one at least; days begin at midnight.

    A UTC day that lies in one step has its totals added up once.
    """
    found: list[Period] = []
    while start < end and len(found) < ROUND:
        stop = min(start - (start - MIDNIGHT) % STEP + STEP, end)
        found.append(Period(start, stop))
        start = stop
    return found


def _is_behind(states: Sequence[MeterState], end: datetime) -> bool:
    return any(
        row.dirty_from is not None or row.metered_until is None or row.metered_until < end
        for row in states
    )


def _first_hour(states: Sequence[MeterState]) -> datetime | None:
    """The hour in which to begin; of a first run that of the first promise or use.

    Never before there can be books, whatever a row says.
    """
    marks = [row.dirty_from for row in states if row.dirty_from is not None]
    metered = [row.metered_until for row in states if row.metered_until is not None]
    if metered:
        # A cluster that is new to the meter has its own mark; time passed for all of them.
        marks.append(max(metered))
    else:
        firsts = (
            Interval.objects.aggregate(first=Min("start"))["first"],
            BudgetRevision.objects.filter(state=BudgetRevision.State.LIVE).aggregate(
                first=Min("valid_from")
            )["first"],
        )
        marks += [first for first in firsts if first is not None]
    if not marks:
        return None
    return max(min(marks), BOOKS_BEGIN).replace(minute=0, second=0, microsecond=0)
