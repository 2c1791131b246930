"""Whether a cap is reached, what that does, in sentences for pages and API too, and when it is.

From what it has counted: GPU-seconds and money by class, and what the floor alone will need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

from budgets.charging import Rates, RowKind
from budgets.metering import HourFact
from budgets.plan import StopPolicy, strongest_stop
from budgets.spending.model import (
    NO_EFFECT,
    Action,
    Cap,
    CapMemory,
    CapVerdict,
    Counts,
    QueueEffect,
    Unit,
    is_over,
)
from budgets.units import HOUR, HOUR_S, Period


@dataclass(frozen=True, slots=True)
class Spent:
    """What hour facts come to, exact.

    Attributes:
        burst_hours: GPU-hours beyond the floor.
        floor_hours: GPU-hours used on the floor.
        burst_cost: Of ``burst_hours``.
        floor_cost: Of the committed floor, used or not, less lending credits.
        unpriced: Flavors that were counted in hours without a price, sorted.
    """

    burst_hours: Fraction = Fraction(0)
    floor_hours: Fraction = Fraction(0)
    burst_cost: Fraction = Fraction(0)
    floor_cost: Fraction = Fraction(0)
    unpriced: tuple[str, ...] = ()


def spent_of(facts: Iterable[HourFact], card: Rates | None) -> Spent:
    """Add up the hour facts of one workspace.

    The floor counts for the hours that have passed, also where the rate card bills 730 fixed
    hours a month: a cap of a day or a week has no such month.

    Args:
        facts: GPU-seconds; each at the price of its ``hour``.
        card: Prices; None while there are none.
    """
    burst_s = floor_s = 0
    burst = floor = Fraction(0)
    unpriced: set[str] = set()
    for fact in facts:
        burst_s += fact.burst
        floor_s += fact.committed_used
        rate = card.rate_at(fact.flavor, fact.hour) if card is not None else None
        if rate is None:
            if fact.burst or fact.committed:
                unpriced.add(fact.flavor)
            continue
        burst += rate.of(RowKind.BURST) * fact.burst
        floor += rate.of(RowKind.FLOOR) * fact.committed
        floor += rate.of(RowKind.LENDING_CREDIT) * fact.lent
    return Spent(
        burst_hours=Fraction(burst_s, HOUR_S),
        floor_hours=Fraction(floor_s, HOUR_S),
        burst_cost=burst / HOUR_S,
        floor_cost=floor / HOUR_S,
        unpriced=tuple(sorted(unpriced)),
    )


def amount_of(spent: Spent, cap: Cap) -> Fraction:
    """The figure that a cap is compared with, in the unit of the cap."""
    if cap.unit is Unit.GPU_HOURS:
        burst, floor = spent.burst_hours, spent.floor_hours
    else:
        burst, floor = spent.burst_cost, spent.floor_cost
    return burst + floor if cap.counts is Counts.EVERYTHING else burst


def floor_need(
    floors: Mapping[str, int], prices: Mapping[str, Fraction] | None, *, hours: Fraction
) -> Fraction:
    """What the floor alone comes to in a window: a cap that includes it must not be below.

    Args:
        floors: Flavor -> committed GPUs.
        prices: Flavor -> committed price of a GPU-hour; None counts GPU-hours. A flavor without
            a price costs nothing.
        hours: Of the window.
    """
    if prices is None:
        return sum(floors.values()) * hours
    cost = sum(
        (gpus * prices.get(flavor, Fraction(0)) for flavor, gpus in floors.items()), Fraction(0)
    )
    return cost * hours


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
    Action.DROP_TO_FLOOR: "New jobs start only on committed GPUs and borrow nothing more.",
    Action.HOLD: "New jobs wait, even for committed GPUs.",
    Action.HOLD_AND_DRAIN: "New jobs wait, even for committed GPUs.",
}
_RUNNING: Final = {
    Action.WARN: "Running jobs go on.",
    Action.DROP_TO_FLOOR: "Running burst jobs go on at the burst price until they end or their "
    "GPUs are reclaimed.",
    Action.HOLD: "Running jobs go on at their price until they end.",
}


def new_jobs_words(cap: Cap) -> str:
    """What jobs meet that are submitted, or wait, after the cap is reached."""
    return _NEW[cap.action]


def running_jobs_words(cap: Cap) -> str:
    """What happens to jobs that run when the cap is reached."""
    if cap.action is not Action.HOLD_AND_DRAIN:
        return _RUNNING[cap.action]
    if not cap.grace:
        return "Running jobs are stopped at once, even on committed GPUs, and wait."
    return (
        f"Running jobs are stopped {_grace(cap.grace)} later, even on committed GPUs, and wait. "
        "Jobs that end before that are not affected."
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
