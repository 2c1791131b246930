"""What goes into an outlook and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

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
