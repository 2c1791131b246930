"""The words of spend rules, and their windows: days, weeks, months of a billing zone, and grants.

Days are those of the wall clock: one with a clock change has 23 or 25 hours (spec money 1.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final
from zoneinfo import ZoneInfo

from budgets.choices import Choice
from budgets.plan import StopPolicy
from budgets.units import Period, month_period


class Unit(Choice):
    """What a cap is counted in."""

    GPU_HOURS = "gpu_hours", "GPU-hours"
    MONEY = "money", "Money"


class Window(Choice):
    """After what time a cap begins anew; a grant never does."""

    DAY = "day", "day"
    WEEK = "week", "week"
    MONTH = "month", "month"
    GRANT = "grant", "whole grant"


class Counts(Choice):
    """What a cap counts."""

    ABOVE_FLOOR = "above_floor", "burst"
    EVERYTHING = "everything", "committed and burst"


class Action(Choice):
    """What happens when a cap is reached: the first two are soft, the others hard."""

    WARN = "warn", "Only tell us"
    DROP_TO_FLOOR = "drop_to_floor", "Stop bursting"
    HOLD = "hold", "Hold new jobs"
    HOLD_AND_DRAIN = "hold_and_drain", "Hold new jobs and stop running jobs"


HARD_ACTIONS: Final = frozenset({Action.HOLD, Action.HOLD_AND_DRAIN})


@dataclass(frozen=True, slots=True)
class Cap:
    """One spend rule.

    Attributes:
        unit: GPU-hours or money.
        amount: Exact and above zero, in that unit.
        counts: With or without the floor.
        action: When it is reached.
        grace: Between reaching it and draining; only of HOLD_AND_DRAIN.
    """

    unit: Unit
    amount: Fraction
    counts: Counts = Counts.ABOVE_FLOOR
    action: Action = Action.WARN
    grace: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class QueueEffect:
    """What rules do to a queue at an instant.

    Attributes:
        stop_policy: Kueue's stopPolicy, as far as spend asks for it.
        floor_only: The ceiling counts as the floor: nothing more is borrowed.
    """

    stop_policy: StopPolicy = StopPolicy.NONE
    floor_only: bool = False


NO_EFFECT: Final = QueueEffect()


@dataclass(frozen=True, slots=True)
class CapMemory:
    """What is remembered of a rule from look to look.

    Attributes:
        window_start: Of the window in which it was reached; None: it was not.
        reached_at: When that was first seen.
    """

    window_start: datetime | None = None
    reached_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CapVerdict:
    """What a rule says at an instant.

    Attributes:
        reached_at: None while there is room.
        effect: On the queue.
        drains_at: When running jobs are (or were) stopped; None when they never are.
        is_suspended: It is reached, and somebody has broken the glass.
    """

    reached_at: datetime | None
    effect: QueueEffect
    drains_at: datetime | None = None
    is_suspended: bool = False


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
