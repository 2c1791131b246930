"""Volume steps: the more of a flavor an account uses in a period, the less the next hour costs.

Pure: no Django, no clock, no I/O. Steps are graduated, per account, flavor and class: what lies
between two bounds costs its own price, in the order of time. So that every workspace and hour of
the account pays alike, all GPU-seconds of one rate are charged at the exact average of it.

Source: spec money, section 3.5 (tiers).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from budgets.units import HOUR_S, UnitsError


@dataclass(frozen=True, slots=True)
class Tier:
    """Beyond ``above`` GPU-hours of a period a GPU-hour costs ``price``.

    Raises:
        UnitsError: The bound is not above zero, or the price is below it.
    """

    above: int
    price: Decimal

    def __post_init__(self) -> None:
        if self.above <= 0:
            raise UnitsError(f"a step begins above 0 GPU-hours, not at {self.above}")
        if self.price < 0:
            raise UnitsError(f"a step has the negative price {self.price}")


@dataclass(frozen=True, slots=True)
class Steps:
    """The prices of one class: ``base`` up to the first bound, then each tier's.

    Raises:
        UnitsError: The bounds do not rise.
    """

    base: Decimal
    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        bounds = [tier.above for tier in self.tiers]
        if any(later <= earlier for earlier, later in pairwise(bounds)):
            raise UnitsError(f"the bounds {bounds} of steps do not rise")

    def cost(self, begun: int, ended: int) -> Fraction:
        """Exact cost of the GPU-seconds from ``begun`` to ``ended`` of the period's volume."""
        total = Fraction(0)
        price, start = self.base, 0
        for tier in (*self.tiers, None):
            end = ended if tier is None else min(ended, tier.above * HOUR_S)
            if end > max(start, begun):
                total += Fraction(price) * (end - max(start, begun)) / HOUR_S
            if tier is None or end >= ended:
                break
            price, start = tier.price, tier.above * HOUR_S
        return total


def averages(parts: Iterable[tuple[Steps, int]]) -> Sequence[Fraction]:
    """The average price per GPU-hour of each part of a volume.

    Args:
        parts: Prices and GPU-seconds, in the order of time; the volume runs on through them.

    Returns:
        One for each part; of one without GPU-seconds the price of the next hour there.
    """
    found: list[Fraction] = []
    passed = 0
    for steps, seconds in parts:
        if seconds > 0:
            found.append(steps.cost(passed, passed + seconds) * HOUR_S / seconds)
            passed += seconds
        else:
            found.append(steps.cost(passed, passed + 1) * HOUR_S)
    return found
