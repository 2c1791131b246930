"""Whether a cap is reached, what that does, in sentences for pages and API too, and when it is."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

from budgets.plan import StopPolicy, strongest_stop
from budgets.spending.model import (
    NO_EFFECT,
    Action,
    Cap,
    CapMemory,
    CapVerdict,
    QueueEffect,
    is_over,
)
from budgets.units import HOUR_S, Period


def judge(
    cap: Cap,
    *,
    spent: Fraction,
    window: Period,
    standing: CapMemory,
    suspended_until: datetime | None,
    now: datetime,
) -> CapVerdict:
    """Say what a rule does now.

    A cap is reached when what was spent is the amount or more. It lets go when the window turns
    or the amount is raised, and while the glass is broken. The grace before draining begins when
    the cap was first seen reached, and anew when the glass is whole again.

    Args:
        cap: The rule.
        spent: In the unit of the cap, since the start of the window.
        window: That holds ``now``; a grant's may not.
        standing: What was remembered at the last look.
        suspended_until: End of the latest break-glass of this window, past or to come; None
            when there was none.
        now: UTC.
    """
    if spent < cap.amount or is_over(window, now):
        return CapVerdict(None, NO_EFFECT)
    is_known = standing.window_start == window.start and standing.reached_at is not None
    reached = standing.reached_at if is_known and standing.reached_at is not None else now
    if suspended_until is not None and now < suspended_until:
        return CapVerdict(reached, NO_EFFECT, is_suspended=True)
    if cap.action is not Action.HOLD_AND_DRAIN:
        return CapVerdict(reached, _EFFECTS[cap.action])
    since = reached if suspended_until is None else max(reached, suspended_until)
    drains_at = since + cap.grace
    policy = StopPolicy.HOLD_AND_DRAIN if now >= drains_at else StopPolicy.HOLD
    return CapVerdict(reached, QueueEffect(policy), drains_at)


_EFFECTS = {
    Action.WARN: NO_EFFECT,
    Action.DROP_TO_FLOOR: QueueEffect(floor_only=True),
    Action.HOLD: QueueEffect(StopPolicy.HOLD),
}


def strongest(effects: Iterable[QueueEffect]) -> QueueEffect:
    """What several rules of one budget do together: each asks, the strongest is done."""
    found = list(effects)
    return QueueEffect(
        stop_policy=strongest_stop(*(effect.stop_policy for effect in found)),
        floor_only=any(effect.floor_only for effect in found),
    )


def exhausted_at(
    cap: Cap, *, spent: Fraction, per_hour: Fraction, window: Period, now: datetime
) -> datetime | None:
    """When a cap is reached if what runs now runs on; None when not in this window.

    Args:
        cap: The rule.
        spent: Up to ``now``.
        per_hour: How fast it is spent now, in the unit of the cap.
        window: Of the rule.
        now: UTC.
    """
    if is_over(window, now):
        return None
    left = cap.amount - spent
    if left <= 0:
        return now
    if per_hour <= 0:
        return None
    hours_left = Fraction((window.end - now) // timedelta(seconds=1), HOUR_S)
    if left / per_hour >= hours_left:
        return None
    # Up to the whole second in which it is reached, never before.
    return now + timedelta(seconds=-(-left * HOUR_S // per_hour))


_NEW: Final = {
    Action.WARN: "New jobs start as before.",
    Action.DROP_TO_FLOOR: "New jobs start on the committed GPUs only; nothing more is borrowed.",
    Action.HOLD: "New jobs wait, on committed GPUs too.",
    Action.HOLD_AND_DRAIN: "New jobs wait, on committed GPUs too.",
}
_RUNNING: Final = {
    Action.WARN: "Running jobs run on.",
    Action.DROP_TO_FLOOR: "Running burst jobs run on at their price until they end or their GPUs "
    "are reclaimed.",
    Action.HOLD: "Running jobs run to their end at their price.",
}
HOUR: Final = timedelta(hours=1)


def new_jobs_words(cap: Cap) -> str:
    """What jobs meet that are submitted, or wait, after the cap is reached."""
    return _NEW[cap.action]


def running_jobs_words(cap: Cap) -> str:
    """What happens to jobs that run when the cap is reached."""
    if cap.action is not Action.HOLD_AND_DRAIN:
        return _RUNNING[cap.action]
    if not cap.grace:
        return "Running jobs are stopped at once, on committed GPUs too, and wait."
    return (
        f"Running jobs are stopped {_grace(cap.grace)} later, on committed GPUs too, and wait; "
        "those that end before are not touched."
    )


def effect_words(cap: Cap) -> str:
    """Both, for one place."""
    return f"{new_jobs_words(cap)} {running_jobs_words(cap)}"


def _grace(grace: timedelta) -> str:
    if grace % HOUR:
        minutes = grace // timedelta(minutes=1)
        return f"{minutes} minute{'' if minutes == 1 else 's'}"
    hours = grace // HOUR
    return f"{hours} hour{'' if hours == 1 else 's'}"
