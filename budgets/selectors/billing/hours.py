"""The hours of one statement as charge rows; what they cost is :mod:`budgets.charging.hours`.

Source: spec money, sections 1.7 and 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from budgets.charging import ChargeRow, HourPricer, LineKind, Rates, RowKind
from budgets.models import BillingPeriod
from budgets.units import FlavorName, Period

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


class Pricer:
    """The rows of the hours of one workspace and flavor."""

    def __init__(
        self, paper: Paper, card: Rates, window: Period, workspace: str, flavor: str
    ) -> None:
        self.paper, self.workspace, self.flavor = paper, workspace, flavor
        self._hours = HourPricer(
            card,
            flavor=FlavorName(flavor),
            window=window,
            currency=paper.currency,
            exchange=paper.rate,
        )

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
        priced = self._hours.price(kind, hour, seconds)
        return ChargeRow(
            account=self.paper.account,
            workspace=self.workspace,
            flavor=self.flavor,
            kind=ROW_KINDS[kind],
            start=start,
            end=end,
            gpu_seconds=seconds,
            unit_price=priced.unit_price,
            exact=priced.exact,
            amount=priced.amount,
            currency=self.paper.currency,
            rate_card=priced.card,
            period=self.paper.period.name,
            statement=self.paper.number,
            used_gpu_seconds=used if kind is LineKind.FLOOR else 0,
            list_unit_price=priced.list_price,
        )
