"""Days, weeks and months of a billing zone, and grants.

Days are those of the wall clock: one with a clock change has 23 or 25 hours (spec money 1.4).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from budgets.spending.model import Window
from budgets.units import Period, month_period

FAR: Final = timedelta(days=36_525)
"""A grant without an end lasts so long: a century."""
LONGEST: Final = {Window.DAY: 25, Window.WEEK: 169, Window.MONTH: 745}
"""Hours of the longest window of each kind, with the hour that a clock change adds."""


def window_at(
    kind: Window, now: datetime, *, zone: ZoneInfo, grant: tuple[datetime, datetime | None] | None
) -> Period:
    """The window of a rule that holds an instant.

    Args:
        kind: Day, ISO week, month, or the whole grant.
        now: UTC.
        zone: The account's billing zone.
        grant: Start and end of a grant, None for no end; only looked at for one.

    Returns:
        Half-open, UTC. A grant's window is the same at every instant.

    Raises:
        ValueError: A grant without a start.
    """
    if kind is Window.GRANT:
        if grant is None:
            raise ValueError("a grant has a start")
        return Period(grant[0], grant[1] or grant[0] + FAR)
    local = now.astimezone(zone)
    if kind is Window.MONTH:
        return month_period(local.year, local.month, zone=zone)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    days = 1
    if kind is Window.WEEK:
        midnight -= timedelta(days=midnight.weekday())
        days = 7
    # Adding to local time and then turning to UTC keeps to the wall clock.
    return Period(midnight.astimezone(UTC), (midnight + timedelta(days=days)).astimezone(UTC))


def is_over(window: Period, now: datetime) -> bool:
    """Whether a grant has not begun or has ended: nothing is capped then."""
    return not window.start <= now < window.end
