"""Ranges that hold as often as they say, by how past ones of the same cluster did.

Split conformal prediction, each end by itself: of past forecasts, how far was the real wait from
either end of the range as it was played, as a ratio. The tenth of these ratios that are largest are
left out, and so are the tenth that are smallest; the next range is moved by what is left. This
makes up for what the play does not foresee, such as jobs of others that come first, as far as the
past is like the future, and without a guess at its cause.

Source: Romano, Patterson and Candès, Conformalized Quantile Regression, 2019, with ratios in the
place of differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from clusters.forecasting.start import (
    COVERAGE,
    FURTHEST,
    Confidence,
    StartForecast,
    whole_minute,
)

LEAST: Final = 30
"""With fewer past forecasts ranges stay as they were played."""
NEWEST: Final = 300
"""So many of them count, so that what changed on a cluster is soon the rule."""
_SLACK_S: Final = 60.0
"""Ranges are in whole minutes: shorter waits are all alike."""
_WIDEST: Final = 20.0
"""A range that would have to be stretched by more says nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a forecast whose range is over.

    Attributes:
        low, high: the range as it was played, seconds from when it was made.
        waited: seconds from then until the job started; of one that still waits, until now, which
            is the least that it can become.
    """

    low: float
    high: float
    waited: float


@dataclass(frozen=True, slots=True)
class Correction:
    """By what the ends of a range are multiplied, counted from a minute before it is made.

    Attributes:
        low, high: ratios above 0; 1 leaves an end where it is.
        count: past forecasts behind it.
    """

    low: float = 1.0
    high: float = 1.0
    count: int = 0


def correction_from(past: Sequence[Outcome], *, coverage: float = COVERAGE) -> Correction:
    """What past forecasts say about the next one; the newest ``NEWEST`` count.

    Args:
        past: in the order in which their ranges ended.
        coverage: how often the range is to hold, between 0 and 1.
    """
    found = past[-NEWEST:]
    if len(found) < LEAST:
        return Correction()
    tail = (1 - coverage) / 2
    late = sorted(_ratio(item.waited, item.high) for item in found)
    early = sorted(_ratio(item.waited, item.low) for item in found)
    count = len(found)
    above = min(math.ceil((count + 1) * (1 - tail)), count) - 1
    below = max(math.floor((count + 1) * tail), 1) - 1
    return Correction(early[below], late[above], count)


def corrected(found: StartForecast, by: Correction, *, now: datetime) -> StartForecast:
    """The range moved to where it holds as often as it says.

    Args:
        found: as it was played.
        by: of the same cluster.
        now: when it was made.
    """
    if found.earliest is None or found.latest is None or not by.count:
        return found
    if by.high > _WIDEST:
        return StartForecast(
            Confidence.UNKNOWN,
            why_unknown="jobs of this cluster have lately started much later than was foreseen",
        )
    low = _moved((found.earliest - now).total_seconds(), by.low)
    high = max(_moved((found.latest - now).total_seconds(), by.high), low)
    if high > FURTHEST.total_seconds():
        return StartForecast(Confidence.UNKNOWN, why_unknown="it is too far ahead to say")
    return replace(
        found,
        earliest=whole_minute(now + timedelta(seconds=low)),
        latest=whole_minute(now + timedelta(seconds=high), up=True),
    )


def _ratio(waited: float, end: float) -> float:
    return (waited + _SLACK_S) / (max(end, 0.0) + _SLACK_S)


def _moved(seconds: float, ratio: float) -> float:
    return max(0.0, (max(seconds, 0.0) + _SLACK_S) * ratio - _SLACK_S)
