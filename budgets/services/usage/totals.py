"""Totals of hour facts, kept in the transaction that writes the facts; rebuildable from them.

Totals are added up from what stands in the tables of facts, never from what a writer meant to
write, so they are right whatever kept a fact from being changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Max, Min, QuerySet, Sum
from django.db.models.functions import TruncDate

from budgets.amounts import HELD, STORED
from budgets.models import (
    AccountHour,
    ClusterHour,
    MeterState,
    PlatformHour,
    UsageRecord,
    WorkloadUsage,
    WorkspaceDay,
)
from budgets.services.usage.rows import rewrite_from
from budgets.units import Period, utc_hour

ONE_DAY, ONE_HOUR = timedelta(days=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _Total:
    """One table of totals.

    Attributes:
        facts: Table that is added up.
        totals: Table of the sums.
        key: Column of the totals → where it comes from in a fact.
        amounts: What is added up.
        time: The column of the totals that says when.
    """

    facts: Any
    totals: Any
    key: dict[str, Any]
    amounts: tuple[str, ...]
    time: str = "hour"


def _same(*names: str) -> dict[str, Any]:
    return {name: F(name) for name in names}


TOTALS = (
    _Total(facts=UsageRecord, totals=PlatformHour, key=_same("hour", "flavor_id"), amounts=STORED),
    _Total(
        facts=UsageRecord,
        totals=AccountHour,
        key=_same("hour", "flavor_id") | {"account_id": F("workspace__account_id")},
        amounts=STORED,
    ),
    _Total(
        facts=UsageRecord,
        totals=WorkspaceDay,
        key=_same("workspace_id", "flavor_id") | {"day": TruncDate("hour", tzinfo=UTC)},
        amounts=STORED,
        time="day",
    ),
    _Total(
        facts=WorkloadUsage,
        totals=ClusterHour,
        key=_same("hour", "cluster", "flavor") | {"account_id": F("workspace__account_id")},
        amounts=HELD,
    ),
)


def rewrite_totals(window: Period) -> int:
    """Make the totals of a window's hours, and of the UTC days that it touches, true.

    Args:
        window: The facts that may have changed.

    Returns:
        Rows written or deleted. Cost: O(facts of the days touched), by the database.
    """
    return sum(_rewrite(total, window) for total in TOTALS)


def rebuild_totals() -> int:
    """Add up every total anew, a day at a time, with the meter kept out; rows that differed."""
    return _over_all_days(rewrite_totals)


def count_wrong_totals() -> int:
    """Rows of totals that are not the sum of their facts; 0 when everything adds up."""
    return _over_all_days(lambda window: sum(_differences(total, window) for total in TOTALS))


@transaction.atomic
def _over_all_days(work: Callable[[Period], int]) -> int:
    list(MeterState.objects.select_for_update().order_by("pk"))
    return sum(work(window) for window in _days())


def _days() -> Iterator[Period]:
    """Every UTC day of which there is a fact or a total."""
    edges: list[datetime] = []
    for total in TOTALS:
        for table, column in ((total.facts, "hour"), (total.totals, total.time)):
            span = table.objects.aggregate(first=Min(column), last=Max(column))
            for edge in (span["first"], span["last"]):
                if edge is not None:
                    day = edge.astimezone(UTC).date() if isinstance(edge, datetime) else edge
                    edges.append(datetime.combine(day, time.min, tzinfo=UTC))
    if not edges:
        return
    day = min(edges)
    while day <= max(edges):
        yield Period(day, day + ONE_DAY)
        day += ONE_DAY


def _rewrite(total: _Total, window: Period) -> int:
    written, removed = rewrite_from(
        _stored(total, window),
        _sums(total, window),
        key={name: f"key_{name}" for name in total.key},
        amounts={name: f"sum_{name}" for name in total.amounts},
    )
    return written + removed


def _differences(total: _Total, window: Period) -> int:
    stored, wanted = (
        {tuple(row[: len(total.key)]): tuple(row[len(total.key) :]) for row in rows}
        for rows in (
            _stored(total, window).values_list(*total.key, *total.amounts),
            _sums(total, window),
        )
    )
    return sum(stored.get(key) != wanted.get(key) for key in {*stored, *wanted})


def _sums(total: _Total, window: Period) -> QuerySet[Any]:
    """What the totals of a window have to be: values of the key, then of the amounts."""
    period = _whole(total, window)
    names = {f"key_{name}": source for name, source in total.key.items()}
    rows: QuerySet[Any] = (
        total.facts.objects.filter(hour__gte=period.start, hour__lt=period.end)
        .order_by()
        .values(**names)
        .annotate(**{f"sum_{name}": Sum(name) for name in total.amounts})
        .values_list(*names, *(f"sum_{name}" for name in total.amounts))
    )
    return rows


def _stored(total: _Total, window: Period) -> QuerySet[Any]:
    period = _whole(total, window)
    start, end = period.start, period.end
    first, last = (start.date(), end.date()) if total.time == "day" else (start, end)
    in_time = {f"{total.time}__gte": first, f"{total.time}__lt": last}
    return total.totals.objects.filter(**in_time).order_by()  # type: ignore[no-any-return]  # the tables are of several types


def _whole(total: _Total, window: Period) -> Period:
    """The UTC days, or hours, of a table that a window touches."""
    start = utc_hour(window.start)
    if total.time != "day":
        return Period(start, max(window.end, start + ONE_HOUR))
    last = (window.end - timedelta(seconds=1)).replace(hour=0, minute=0, second=0)
    return Period(start.replace(hour=0), last + ONE_DAY)
