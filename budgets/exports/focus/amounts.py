"""Costs and quantities of FOCUS rows: decimals of at most 15 places that still add up.

FOCUS has decimals only, and a GPU-second of a price is rarely one. Costs are whole numbers of
10⁻¹⁵ here; the parts of an hour are the steps of its rounded running sum, so they add up to the
whole exactly, and the product of a price and a quantity differs from the cost by far less than
10⁻⁹ for any price below 100,000.

Source: spec money, section 2.3 (identities).
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from budgets.units import HOUR_S

PLACES = 15
SCALE = 10**PLACES


def units(exact: Fraction) -> int:
    """Return an exact amount as a whole number of 10⁻¹⁵, half to even."""
    return divide(exact.numerator * SCALE, exact.denominator)


def divide(numerator: int, denominator: int) -> int:
    """Return the quotient as a whole number, half to even; the denominator is above 0."""
    quotient, remainder = divmod(numerator, denominator)
    double = 2 * remainder
    if double > denominator or (double == denominator and quotient % 2):
        quotient += 1
    return quotient


@lru_cache(maxsize=65_536)
def decimal(count: int) -> Decimal:
    """Return a number of 10⁻¹⁵ as a plain Decimal with at least one place, such as ``16.0``.

    One place even where it is whole: readers that guess types would take a column of whole
    numbers for integers.
    """
    whole, rest = divmod(abs(count), SCALE)
    sign = "-" if count < 0 else ""
    return Decimal(f"{sign}{whole}.{str(rest).zfill(PLACES).rstrip('0') or '0'}")


@lru_cache(maxsize=65_536)
def gpu_hours(gpu_seconds: int) -> Decimal:
    """Return GPU-seconds as GPU-hours."""
    return decimal(divide(gpu_seconds * SCALE, HOUR_S))


@lru_cache(maxsize=4_096)
def price(value: Decimal) -> Decimal:
    """Return a unit price as it is written."""
    return decimal(units(Fraction(value)))


@lru_cache(maxsize=65_536)
def cost(gpu_seconds: int, unit_price: Decimal) -> int:
    """Return GPU-seconds × price per GPU-hour, in 10⁻¹⁵."""
    top, bottom = unit_price.as_integer_ratio()
    return divide(gpu_seconds * top * SCALE, bottom * HOUR_S)


def parts(total: int, weights: Iterable[int], *, whole: int) -> list[int]:
    """Split a cost by GPU-seconds so that the parts add up to it.

    Args:
        total: In 10⁻¹⁵.
        weights: GPU-seconds of each part; they add up to ``whole``.
        whole: Not 0.
    """
    found, passed, given = [], 0, 0
    sign = -1 if whole < 0 else 1
    for weight in weights:
        passed += weight
        until = divide(sign * total * passed, sign * whole)
        found.append(until - given)
        given = until
    return found
