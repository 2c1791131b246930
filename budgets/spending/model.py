"""The words of spend rules: plain values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from typing import Final

from budgets.plan import StopPolicy


class Unit(StrEnum):
    """What a cap is counted in."""

    GPU_HOURS = "gpu_hours"
    MONEY = "money"


class Window(StrEnum):
    """After what time a cap begins anew; a grant never does."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    GRANT = "grant"


class Counts(StrEnum):
    """What a cap counts: what goes beyond the floor, or the floor too."""

    ABOVE_FLOOR = "above_floor"
    EVERYTHING = "everything"


class Action(StrEnum):
    """What happens when a cap is reached: the first two are soft, the others hard."""

    WARN = "warn"
    DROP_TO_FLOOR = "drop_to_floor"
    HOLD = "hold"
    HOLD_AND_DRAIN = "hold_and_drain"


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
class Effect:
    """What rules do to a queue at an instant.

    Attributes:
        stop_policy: Kueue's stopPolicy, as far as spend asks for it.
        floor_only: The ceiling counts as the floor: nothing more is borrowed.
    """

    stop_policy: StopPolicy = StopPolicy.NONE
    floor_only: bool = False


NO_EFFECT: Final = Effect()


@dataclass(frozen=True, slots=True)
class Standing:
    """What is remembered of a rule from look to look.

    Attributes:
        window_start: Of the window in which it was reached; None: it was not.
        reached_at: When that was first seen.
    """

    window_start: datetime | None = None
    reached_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule says at an instant.

    Attributes:
        reached_at: None while there is room.
        effect: On the queue.
        drains_at: When running jobs are (or were) stopped; None when they never are.
        is_suspended: It is reached, and somebody has broken the glass.
    """

    reached_at: datetime | None
    effect: Effect
    drains_at: datetime | None = None
    is_suspended: bool = False
