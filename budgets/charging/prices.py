"""Dated price lists → the rates that hold for one account.

Pure: no Django, no clock, no I/O. An account's own list goes before the one for everybody, flavor
by flavor; a flavor that follows a time series takes its burst price from there.

Source: spec money, sections 3.1 and 3.5; spec features, section 5.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from budgets.charging.model import Rate
from budgets.charging.rows import RowKind
from budgets.charging.tiers import Tier
from budgets.units import FlavorName


@dataclass(frozen=True, slots=True)
class Price:
    """Prices of a flavor per GPU-hour; ``is_dynamic``: burst follows the time series.

    The tiers are volume steps of each class; a burst that follows a time series has none.
    """

    committed: Decimal
    burst: Decimal
    lending_credit: Decimal
    is_dynamic: bool = False
    committed_tiers: tuple[Tier, ...] = ()
    burst_tiers: tuple[Tier, ...] = ()

    @property
    def tiers(self) -> dict[RowKind, tuple[Tier, ...]]:
        """By class; classes without steps are left out."""
        both = {RowKind.FLOOR: self.committed_tiers, RowKind.BURST: self.burst_tiers}
        return {kind: tiers for kind, tiers in both.items() if tiers}


@dataclass(frozen=True, slots=True)
class PriceList:
    """A whole rate card from ``start`` on, a whole UTC hour; ``card`` is its version id."""

    card: int
    start: datetime
    prices: Mapping[FlavorName, Price]


@dataclass(frozen=True, slots=True)
class SpotPoint:
    """The burst price of a dynamic flavor from ``start`` on, a whole UTC hour."""

    start: datetime
    price: Decimal


Dated = TypeVar("Dated", PriceList, SpotPoint)


def merged_rates(
    everybody: Sequence[PriceList],
    own: Sequence[PriceList] = (),
    *,
    spot: Mapping[FlavorName, Sequence[SpotPoint]] | None = None,
) -> tuple[Rate, ...]:
    """Return the rates that hold for an account, a new one wherever a price changes.

    Args:
        everybody: The platform's lists; of two with the same start the later one counts.
        own: The account's lists, which go before the platform's for the flavors they name.
        spot: Time series by flavor; of two points with the same start the later one counts.

    Returns:
        By flavor and start. A flavor that a later list leaves out keeps its last price: a list
        that would take a price away is refused before it gets here.
    """
    shared, owned = _ordered(everybody), _ordered(own)
    series = {flavor: _ordered(points) for flavor, points in (spot or {}).items()}
    flavors = {flavor for row in (*shared, *owned) for flavor in row.prices}
    found: list[Rate] = []
    for flavor in sorted(flavors):
        found += _of_flavor(flavor, shared, owned, series.get(flavor, ()))
    return tuple(found)


def _of_flavor(
    flavor: FlavorName,
    shared: Sequence[PriceList],
    owned: Sequence[PriceList],
    points: Sequence[SpotPoint],
) -> Iterable[Rate]:
    edges = {row.start for row in (*shared, *owned)} | {point.start for point in points}
    last: tuple[int, Price, Decimal] | None = None
    for edge in sorted(edges):
        chosen = _named(flavor, owned, edge) or _named(flavor, shared, edge)
        if chosen is None:
            continue
        card, price = chosen
        burst = price.burst
        if price.is_dynamic:
            at = bisect_right(points, edge, key=lambda point: point.start)
            burst = points[at - 1].price if at else price.burst
        if (card, price, burst) != last:
            last = (card, price, burst)
            yield Rate(
                flavor,
                edge,
                price.committed,
                burst,
                price.lending_credit,
                card,
                tiers=price.tiers,
            )


def _named(
    flavor: FlavorName, lists: Sequence[PriceList], instant: datetime
) -> tuple[int, Price] | None:
    """The price on the list in force, when that names the flavor."""
    at = bisect_right(lists, instant, key=lambda row: row.start)
    if not at or flavor not in lists[at - 1].prices:
        return None
    return lists[at - 1].card, lists[at - 1].prices[flavor]


def _ordered(dated: Sequence[Dated]) -> list[Dated]:
    return sorted({row.start: row for row in dated}.values(), key=lambda row: row.start)
