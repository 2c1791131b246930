"""Which floor would have been enough: advice for people who may shrink a budget.

Pure, and advice only: nothing is changed by it. The mean of an hour hides peaks within the hour,
which burst covers as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from budgets.units import HOUR_S

HOURS_PER_MONTH = 730
PERCENT = 95
FEWEST_HOURS = 24


@dataclass(frozen=True, slots=True)
class FloorAdvice:
    """What a smaller floor would have meant.

    Attributes:
        committed: GPUs that are committed now.
        enough: Smallest floor, whole GPUs, that covers the use of 95 of 100 hours.
        saved_hours: GPU-hours that a month of 730 hours would no longer have committed.
        hours: Hours that were looked at.
        hours_over: Of these, hours in which the use was above ``enough``.
    """

    committed: int
    enough: int
    saved_hours: int
    hours: int
    hours_over: int


def advise_floor(used: Sequence[int], *, committed: int) -> FloorAdvice | None:
    """Find the smallest floor that would have covered the use of 95 % of the hours.

    Args:
        used: GPU-seconds used in each hour, committed and burst together, in any order; an hour
            without use is a 0.
        committed: GPUs of the floor now.

    Returns:
        None when the floor is no larger than it should be, or when there is less than a day to
        judge from.

    Raises:
        ValueError: A negative number.

    Source: nearest-rank percentile; a month of 730 hours as in spec money, section 3.5.
    Cost: O(n log n) of the hours.
    """
    if committed < 0 or any(seconds < 0 for seconds in used):
        raise ValueError("GPU-seconds and floors are never negative")
    if len(used) < FEWEST_HOURS:
        return None
    ordered = sorted(used)
    rank = -(-len(ordered) * PERCENT // 100)
    enough = -(-ordered[rank - 1] // HOUR_S)
    if enough >= committed:
        return None
    return FloorAdvice(
        committed=committed,
        enough=enough,
        saved_hours=(committed - enough) * HOURS_PER_MONTH,
        hours=len(ordered),
        hours_over=sum(seconds > enough * HOUR_S for seconds in ordered),
    )
