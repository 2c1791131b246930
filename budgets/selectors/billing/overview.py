"""A month by account, before and after it is drawn up, beside the month before it.

Source: issue 14, section 2; spec money, section 3.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

from django.db.models import Sum

from budgets.charging import RowKind
from budgets.models import Account, BillingPeriod, Statement, StatementLine
from budgets.selectors.billing.documents import Drawing, draw
from budgets.selectors.billing.months import month_at

PLATFORM = "The platform"


@dataclass(slots=True)
class MonthSums:
    """What one account, or all of them, come to in a month; the first three add up to ``payable``.

    Attributes:
        committed: Of the floors.
        burst: Above them.
        other: Credits, corrections, adjustments, rounding, credit notes' lines of these.
        payable: Of all documents.
        before: The same of the month before; None: nobody had a document of this currency.
    """

    committed: Decimal = Decimal(0)
    burst: Decimal = Decimal(0)
    other: Decimal = Decimal(0)
    before: Decimal | None = None

    @property
    def payable(self) -> Decimal:
        """All of it."""
        return self.committed + self.burst + self.other

    @property
    def change(self) -> Decimal | None:
        """Against the month before."""
        return None if self.before is None else self.payable - self.before

    def add(self, kind: str, amount: Decimal) -> None:
        """Take a line in."""
        if kind == RowKind.FLOOR:
            self.committed += amount
        elif kind == RowKind.BURST:
            self.burst += amount
        else:
            self.other += amount


@dataclass(slots=True)
class AccountMonth(MonthSums):
    """One account's month; ``name`` is the platform's where there is no account."""

    name: str = ""
    slug: str = ""
    currency: str = ""


@dataclass(frozen=True, slots=True)
class MonthOverview:
    """A month.

    Attributes:
        rows: By account, the platform last.
        totals: Currency → their sums.
        previous: The month before.
        is_drawn: Worked out from facts now; otherwise from what was issued or is ready for it.
    """

    rows: tuple[AccountMonth, ...]
    totals: Mapping[str, MonthSums]
    previous: BillingPeriod
    is_drawn: bool = field(default=False)


_Key = tuple[int | None, str]


def month_overview(period: BillingPeriod, *, drawing: Drawing | None = None) -> MonthOverview:
    """What every account comes to in a month; the caller has asked whether it may be seen.

    Args:
        period: Closed: what its documents say; open: what its facts say now.
        drawing: Of an open one, where it is drawn already.
    """
    previous = month_at(period.start - timedelta(seconds=1), period.zone)
    now, then = _sums(period, drawing), _sums(previous, None)
    accounts = {row.pk: row for row in Account.objects.all()}
    totals: dict[str, MonthSums] = {}
    rows = []
    for key in {*now, *then}:
        row, before = now.get(key, AccountMonth()), then.get(key)
        row.before = before.payable if before else None
        account = accounts.get(key[0]) if key[0] is not None else None
        row.name, row.slug = (account.name, account.slug) if account else (PLATFORM, "")
        row.currency = key[1]
        rows.append(row)
        _add(totals.setdefault(row.currency, MonthSums()), row)
    for row in rows:
        if row.before is None and totals[row.currency].before is not None:
            row.before = Decimal(0)  # so that the changes come to that of the total
    rows.sort(key=lambda row: (not row.slug, row.name.casefold(), row.slug, row.currency))
    return MonthOverview(tuple(rows), totals, previous, period.closed_at is None)


def _add(total: MonthSums, row: MonthSums) -> None:
    total.committed += row.committed
    total.burst += row.burst
    total.other += row.other
    if row.before is not None:
        total.before = (total.before or Decimal(0)) + row.before


def _sums(period: BillingPeriod, drawing: Drawing | None) -> dict[_Key, AccountMonth]:
    """By account and currency, what the documents of a month come to."""
    found: dict[_Key, AccountMonth] = {}
    if period.closed_at is None:
        for drawn in (drawing or draw(period)).drawn:
            key = (drawn.account_id, drawn.document.currency)
            for item, money in drawn.document.lines:
                found.setdefault(key, AccountMonth()).add(item.kind, money.amount)
    if period.pk is None:
        return found
    lines = StatementLine.objects.filter(statement__period=period).order_by()
    if period.closed_at is None:  # the rest is drawn
        lines = lines.filter(statement__kind=Statement.Kind.CREDIT_NOTE)
    kinds = lines.values_list("statement__account", "statement__currency", "kind")
    for account, currency, kind, amount in kinds.annotate(Sum("amount")):
        found.setdefault((account, currency), AccountMonth()).add(kind, amount)
    return found
