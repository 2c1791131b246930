"""When GPUs are used: the reader's days × the hours of the day."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from django.db.models import Sum

from budgets.models import User
from budgets.selectors.usage.scope import USED, UsageFilter, UsageScope
from budgets.selectors.usage.table import UsageRow
from budgets.units import HOUR_S


@dataclass(frozen=True, slots=True)
class HeatCell:
    """GPU-seconds in use within ``seconds`` of time: two hours where a clock is put back."""

    used: int
    seconds: int


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Rows of days, each with 24 cells; None where there are no facts.

    Attributes:
        days: In the reader's zone, in order.
        cells: One row per day, by hour of the wall clock.
        day_sums: GPU-seconds of each day.
        hour_sums: GPU-seconds of each hour of the day, over all days.
        total: GPU-seconds of all cells.
    """

    days: tuple[date, ...]
    cells: tuple[tuple[HeatCell | None, ...], ...]
    day_sums: tuple[int, ...]
    hour_sums: tuple[int, ...]
    total: int


def usage_heat(user: User, chosen: UsageFilter, known: Iterable[UsageRow] | None = None) -> HeatMap:
    """Committed and burst use by day and hour; step and split of the filter are ignored.

    An hour belongs to the hour of the wall clock in which it begins, so in a zone with a half
    hour a cell holds the hour from its half on.

    Args:
        user: Who looks.
        chosen: Whose use, and of what range.
        known: The rows of :func:`~budgets.selectors.usage.table.usage_table` by the hour and by
            nothing else, where they are read already: of the range, or of more. One query without
            them.
    """
    used: dict[tuple[date, int], int] = {}
    seconds: dict[tuple[date, int], int] = {}
    for hour, held in _hours(user, chosen) if known is None else _told(known, chosen):
        local = hour.astimezone(chosen.zone)
        place = (local.date(), local.hour)
        used[place] = used.get(place, 0) + held
        seconds[place] = seconds.get(place, 0) + HOUR_S
    days = tuple(sorted({day for day, _ in used}))
    cells = tuple(
        tuple(
            HeatCell(used[day, hour], seconds[day, hour]) if (day, hour) in used else None
            for hour in range(24)
        )
        for day in days
    )
    day_sums = tuple(sum(cell.used for cell in row if cell is not None) for row in cells)
    hour_sums = tuple(
        sum(cell.used for row in cells if (cell := row[hour]) is not None) for hour in range(24)
    )
    return HeatMap(days, cells, day_sums, hour_sums, sum(day_sums))


def _hours(user: User, chosen: UsageFilter) -> Iterable[tuple[datetime, int]]:
    rows: Any = UsageScope(user, chosen).hours().values("hour")
    yield from rows.annotate(used=Sum(USED)).values_list("hour", "used")


def _told(rows: Iterable[UsageRow], chosen: UsageFilter) -> Iterable[tuple[datetime, int]]:
    starts = ((row.start, row.held) for row in rows)
    return ((hour, held) for hour, held in starts if hour and chosen.start <= hour < chosen.end)
