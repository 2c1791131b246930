"""Hours of one workspace and flavor as charge rows: exact, and rounded as their line is.

Pure: no Django, no clock, no I/O. The amounts of the hours of one statement line add up to the
line's amount, for each is the step of the rounded running sum.

Source: spec money, sections 1.7 and 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from math import lcm
from typing import Any

from budgets.charging.model import Rate, Rates
from budgets.charging.rows import HOURLY, ChargeRow, RowKind
from budgets.units import HOUR_S, FlavorName, Period, currency_digits

AVERAGE_PLACES = 15


class HourPricer:
    """Makes the rows of one workspace and flavor; keeps the rounded running sum of each kind.

    Args:
        card: Rates in its own currency.
        flavor: Slug.
        window: The whole period.
        currency: Of the amounts.
        exchange: Units of that currency for one of the card's; None where they are the same.
        **common: The other fields that all rows share: whose they are, and on which statement.
    """

    def __init__(
        self,
        card: Rates,
        *,
        flavor: FlavorName,
        window: Period,
        currency: str,
        exchange: Decimal | None = None,
        **common: Any,
    ) -> None:
        self._card, self._flavor, self._exchange = card, flavor, exchange
        self._row = partial(ChargeRow, flavor=flavor, currency=currency, **common)
        self._factors = {kind: card.factor(kind, window) for kind in HOURLY}
        digits = currency_digits(currency)
        self._running = {kind: _Running(digits) for kind in HOURLY}
        self._units: dict[tuple[datetime | None, RowKind], _Unit] = {}

    def row(
        self,
        kind: RowKind,
        hour: datetime,
        part: tuple[datetime, datetime],
        seconds: int,
        used: int,
    ) -> ChargeRow:
        """The row of one kind and hour, priced by the rate of the whole UTC hour; in their order.

        Args:
            kind: One of ``HOURLY``.
            hour: Start of the whole UTC hour.
            part: Start and end of what of it lies in the period.
            seconds: GPU-seconds.
            used: How many of the floor were used.

        Its amount is by how much the rounded sum of the kind moved; all is 0 where no rate holds.
        """
        rate = self._card.rate_at(self._flavor, hour)
        key = (rate.start if rate else None, kind)
        unit = self._units.get(key)
        if unit is None:
            unit = self._units[key] = self._unit(rate, kind)
        return self._row(
            kind=kind,
            start=part[0],
            end=part[1],
            gpu_seconds=seconds,
            unit_price=unit.price,
            exact=unit.per_second * seconds,
            amount=self._running[kind].step(unit.per_second, seconds),
            rate_card=unit.card,
            used_gpu_seconds=used if kind is RowKind.FLOOR else 0,
            list_unit_price=unit.list_price,
        )

    def _unit(self, rate: Rate | None, kind: RowKind) -> _Unit:
        if rate is None:
            return _Unit(Fraction(0), Decimal(0), None, 0)
        exact = rate.of(kind) / HOUR_S * self._factors[kind]
        if self._exchange is not None:
            exact *= Fraction(self._exchange)
        listed = self._shown(replace(rate, averages={}), RowKind.BURST)
        return _Unit(exact, self._shown(rate, kind), listed, rate.card)

    def _shown(self, rate: Rate, kind: RowKind) -> Decimal:
        """A product of finite decimals is one: no digit is lost with room enough.

        An average of volume steps need not be; it is shown to as many places as FOCUS takes.
        """
        with localcontext() as context:
            context.prec = 60
            if rate.averages:
                exact = rate.of(kind)
                price = round(Decimal(exact.numerator) / exact.denominator, AVERAGE_PLACES)
            elif kind is RowKind.LENDING_CREDIT:
                price = -rate.committed * rate.lending_credit
            else:
                price = rate.burst if kind is RowKind.BURST else rate.committed
            return price if self._exchange is None else price * self._exchange


@dataclass(frozen=True, slots=True)
class _Unit:
    """A rate as the hours of one kind need it: exact per GPU-second, and per GPU-hour.

    ``list_price``: on-demand price of the flavor in that hour; None where no rate holds.
    """

    per_second: Fraction
    price: Decimal
    list_price: Decimal | None
    card: int


class _Running:
    """The exact sum of one kind's hours so far, over one denominator, and how it was rounded."""

    def __init__(self, digits: int) -> None:
        self.scale = 10**digits
        self.quantum = Decimal(1).scaleb(-digits)
        self.numerator, self.denominator, self.rounded = 0, 1, 0

    def step(self, unit: Fraction, seconds: int) -> Decimal:
        """Add an hour; returns by how much the rounded sum moved."""
        if unit.denominator != self.denominator:
            common = lcm(unit.denominator, self.denominator)
            self.numerator *= common // self.denominator
            self.denominator = common
        self.numerator += unit.numerator * (self.denominator // unit.denominator) * seconds
        before = self.rounded
        # Half to even, in whole numbers: a million fractions would take ten times as long.
        self.rounded, rest = divmod(self.numerator * self.scale, self.denominator)
        self.rounded += 2 * rest > self.denominator or (
            2 * rest == self.denominator and self.rounded % 2
        )
        return (self.rounded - before) * self.quantum
