"""How a window is likely to end, from what was used so far: an estimate, never a charge.

Pure: no Django, no clock, no I/O. What is promised is certain and is carried on as it is; what is
used beyond it follows the hours of the week of the weeks before, and the band around it how far
whole days strayed from that. Floats, because nothing here is billed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import NormalDist, fmean
from typing import Final

from budgets.units import HOUR, Period

HOURS_OF_DAY: Final = 24
HOURS_OF_WEEK: Final = 168
FEW_DAYS: Final = 7
"""With less history every hour is taken for the same."""


def project(
    window: Period, known: Series, *, spent: float, fixed: float, limit: float | None = None
) -> Outlook:
    """Project a window to its end.

    Args:
        window: UTC.
        known: What varied in the hours before ``known.end``; that is where the future begins.
        spent: Fixed and varying, in the window so far.
        fixed: What every further hour costs whatever is used: the promised floor.
        limit: Amount whose day is wanted.

    Returns:
        The outlook; of a window that is over it is what was spent.
    """
    begin = max(known.end, window.start)
    left = max(0.0, (window.end - begin) / HOUR)
    days = max(0, (known.end - known.start).days)
    means = _hours_of_week(known)
    expected = spent
    exhausted = begin if limit is not None and spent >= limit else None
    for hour, share in _hours(begin, window.end):
        expected += (fixed + means[_hour_of_week(hour)]) * share
        if exhausted is None and limit is not None and expected >= limit:
            exhausted = hour
    if exhausted is not None and exhausted < window.start:
        exhausted = window.start
    reach = NormalDist().inv_cdf((1 + LIKELY) / 2) * _stray_per_day(known, means)
    # Days to come stray, and so did the days that the means were learned from.
    to_come = left / HOURS_OF_DAY
    stray = reach * math.sqrt(to_come + to_come * to_come / max(1, days))
    certain = spent + fixed * left
    return Outlook(
        spent=spent,
        expected=expected,
        low=max(certain, expected - stray),
        high=max(certain, expected + stray),
        exhausted_at=exhausted,
        days_known=days,
    )


def _hours(start: datetime, end: datetime) -> Iterator[tuple[datetime, float]]:
    """Whole UTC hours from ``start`` on, each with the part of it that lies in [start, end)."""
    at = start.replace(minute=0, second=0, microsecond=0)
    while at < end:
        yield at, (min(end, at + HOUR) - max(start, at)) / HOUR
        at += HOUR


def _hour_of_week(at: datetime) -> int:
    return at.weekday() * HOURS_OF_DAY + at.hour


def _hours_of_week(known: Series) -> Mapping[int, float]:
    """Hour of the week -> mean amount; all the same while the history is short."""
    hours = [(hour, known.amounts.get(hour, 0.0)) for hour, _ in _hours(known.start, known.end)]
    everything = fmean(amount for _, amount in hours) if hours else 0.0
    if known.end - known.start < timedelta(days=FEW_DAYS):
        return dict.fromkeys(range(HOURS_OF_WEEK), everything)
    by_hour: dict[int, list[float]] = {}
    for hour, amount in hours:
        by_hour.setdefault(_hour_of_week(hour), []).append(amount)
    return {key: fmean(by_hour.get(key, [everything])) for key in range(HOURS_OF_WEEK)}


def _stray_per_day(known: Series, means: Mapping[int, float]) -> float:
    """How far a day strays from what its hours of the week say: root mean square.

    A day is compared with means that it is part of; dividing by the days that are left over
    after one week of means makes up for that.
    """
    strays: list[float] = []
    at = known.start
    while at + timedelta(days=1) <= known.end:
        hours = [at + n * HOUR for n in range(HOURS_OF_DAY)]
        whole = [hour.replace(minute=0, second=0, microsecond=0) for hour in hours]
        got = sum(known.amounts.get(hour, 0.0) for hour in whole)
        strays.append(got - sum(means[_hour_of_week(hour)] for hour in whole))
        at += timedelta(days=1)
    if not strays:
        # Nothing to learn from: as uncertain as it is large.
        return fmean(means.values()) * HOURS_OF_DAY
    learned = min(FEW_DAYS, len(strays) - 1) if len(strays) > FEW_DAYS else 1
    return math.sqrt(sum(stray * stray for stray in strays) / max(1, len(strays) - learned))


HISTORY: Final = timedelta(days=28)
"""How far back the hours of the week are learned from."""
LIKELY: Final = 0.8
"""Share of windows that end inside the band, when the next days are like those before."""


@dataclass(frozen=True, slots=True)
class Series:
    """What varies, per UTC hour, in the unit of the outlook: money or GPU-hours.

    Attributes:
        start: First hour that is known, whole.
        end: Hours before it are known; those that are not in ``amounts`` had nothing.
        amounts: Whole UTC hour -> amount ≥ 0.
    """

    start: datetime
    end: datetime
    amounts: Mapping[datetime, float]


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a window is likely to end.

    Attributes:
        spent: So far.
        expected: At the end of the window.
        low, high: Four of five windows end between them; ``low`` is never below what is spent
            and promised.
        exhausted_at: First hour in which the limit is reached as things go; None when it is not
            in this window, or when there is no limit.
        days_known: Days of history behind it; below 3 the band is a guess and pages say so.
    """

    spent: float
    expected: float
    low: float
    high: float
    exhausted_at: datetime | None
    days_known: int
