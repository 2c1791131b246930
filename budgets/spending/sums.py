"""What a cap has counted: GPU-seconds and money by class, and what the floor alone will need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from budgets.charging import Rates, RowKind
from budgets.metering import HourFact
from budgets.spending.model import Cap, Counts, Unit
from budgets.units import HOUR_S


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
