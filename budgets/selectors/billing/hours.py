"""Pricing the hours of one statement: exact, and rounded so that they add up to the line.

Source: spec money, sections 1.7 and 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, localcontext
from fractions import Fraction
from math import lcm

from budgets.charging import ChargeRow, FloorHours, LineKind, Rate, RateCard, RowKind
from budgets.models import BillingPeriod
from budgets.selectors.billing.prices import as_fraction
from budgets.units import FIXED_MONTH_H, HOUR_S, FlavorName, Period, currency_digits

AVERAGE_PLACES = 15
ROW_KINDS = {kind: RowKind(kind.value) for kind in LineKind}


@dataclass(frozen=True, slots=True)
class PlainLine:
    """A line that has no hours: adjustment, rounding, funding."""

    workspace_id: int | None
    workspace: str
    kind: RowKind
    exact: Fraction
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Paper:
    """One statement, stored or drawn up now, with what its rows need."""

    account_id: int | None
    account: str
    currency: str
    rate: Decimal | None
    number: str
    period: BillingPeriod
    plain: tuple[PlainLine, ...]


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


@dataclass(frozen=True, slots=True)
class _Unit:
    """A rate as the rows of one kind need it: exact per GPU-second, and per GPU-hour."""

    per_second: Fraction
    price: Decimal
    list_price: Decimal | None
    card: int


class Pricer:
    """Prices the hours of one workspace and flavor; keeps the rounded running sum of each kind."""

    def __init__(
        self, paper: Paper, card: RateCard, window: Period, workspace: str, flavor: str
    ) -> None:
        self.paper, self.card = paper, card
        self.workspace, self.flavor = workspace, flavor
        self.fixed = (
            Fraction(FIXED_MONTH_H * HOUR_S, window.seconds)
            if card.floor_hours is FloorHours.FIXED_730
            else Fraction(1)
        )
        digits = currency_digits(paper.currency)
        self._running = {kind: _Running(digits) for kind in LineKind}
        self._units: dict[tuple[datetime | None, LineKind], _Unit] = {}

    def row(
        self,
        kind: LineKind,
        hour: datetime,
        start: datetime,
        end: datetime,
        seconds: int,
        used: int,
    ) -> ChargeRow:
        """The row of one kind and hour, priced by the rate of the whole UTC hour."""
        rate = self.card.rate_at(FlavorName(self.flavor), hour)
        key = (rate.start if rate else None, kind)
        unit = self._units.get(key)
        if unit is None:
            unit = self._units[key] = self._unit(rate, kind)
        return ChargeRow(
            account=self.paper.account,
            workspace=self.workspace,
            flavor=self.flavor,
            kind=ROW_KINDS[kind],
            start=start,
            end=end,
            gpu_seconds=seconds,
            unit_price=unit.price,
            exact=unit.per_second * seconds,
            amount=self._running[kind].step(unit.per_second, seconds),
            currency=self.paper.currency,
            rate_card=unit.card,
            period=self.paper.period.name,
            statement=self.paper.number,
            used_gpu_seconds=used if kind is LineKind.FLOOR else 0,
            list_unit_price=unit.list_price,
        )

    def _unit(self, rate: Rate | None, kind: LineKind) -> _Unit:
        if rate is None:
            return _Unit(Fraction(0), Decimal(0), None, 0)
        exact = rate.of(kind) / HOUR_S * as_fraction(self.paper.rate)
        if kind is LineKind.FLOOR:
            exact *= self.fixed
        listed = self._price(replace(rate, averages={}), LineKind.BURST)
        return _Unit(exact, self._price(rate, kind), listed, rate.card)

    def _price(self, rate: Rate, kind: LineKind) -> Decimal:
        """A product of finite decimals is one: no digit is lost with room enough.

        An average of volume steps need not be; it is shown to as many places as FOCUS takes.
        """
        with localcontext() as context:
            context.prec = 60
            if rate.averages:
                exact = rate.of(kind)
                price = round(Decimal(exact.numerator) / exact.denominator, AVERAGE_PLACES)
            elif kind is LineKind.LENDING_CREDIT:
                price = -rate.committed * rate.lending_credit
            else:
                price = rate.burst if kind is LineKind.BURST else rate.committed
            return price if self.paper.rate is None else price * self.paper.rate
