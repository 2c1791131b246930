"""What the statements of a period come to now: computed from facts, nothing is written.

Source: spec money, sections 3.4 and 3.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from zoneinfo import ZoneInfo

from django.db.models import Q, QuerySet

from budgets.charging import (
    Charges,
    Document,
    Item,
    RowKind,
    Unpriced,
    assemble,
    funding_item,
    items_of,
)
from budgets.models import Account, Adjustment, BillingPeriod, BillingTerms, Workspace
from budgets.selectors.billing.costs import account_charges, correction_charges
from budgets.selectors.billing.months import UTC_ZONE
from budgets.selectors.billing.preemptions import preemption_items
from budgets.selectors.billing.prices import as_fraction, exchange_rate, price_book
from budgets.units import Money, Period


@dataclass(frozen=True, slots=True)
class Drawn:
    """The statement of one account (None: the platform) as its facts say now."""

    account_id: int | None
    document: Document
    priced_in: str
    exchange_rate: Decimal | None = None
    exchange_day: date | None = None
    billed_to: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drawing:
    """All statements of a period, and what stands in their way.

    Attributes:
        drawn: By account slug, the platform's last; none for an account that owes nothing and
            has no line.
        currency: Of the rate cards; empty while none is active, and then nothing is drawn.
        unpriced: Used or committed GPU-seconds without a price.
        unexchanged: (account slug, its currency) whose exchange rate nobody recorded.
    """

    drawn: tuple[Drawn, ...]
    currency: str
    unpriced: tuple[Unpriced, ...]
    unexchanged: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Owed:
    """What the statement of an account is made of, in the currency of the rate cards.

    Attributes:
        charges: Of the period.
        corrected: What closed months turned out to be besides, by the name of the month.
        credited: For jobs that were preempted.
        adjustments: In the currency of the statement.
    """

    charges: Sequence[Charges]
    corrected: Sequence[tuple[str, Charges]]
    credited: Sequence[Item]
    adjustments: Sequence[Adjustment]

    def items(self, rate: Fraction) -> list[Item]:
        """Every line, exchanged at a rate."""
        items = [item for part in self.charges for item in items_of(part, rate=rate)]
        for name, part in self.corrected:
            items += items_of(part, rate=rate, corrects=name)
        items += [
            Item(
                workspace=row.workspace.namespace if row.workspace else "",
                flavor="",
                kind=RowKind.ADJUSTMENT,
                exact=Fraction(row.amount),
                text=row.reason,
                adjustment=row.pk,
            )
            for row in self.adjustments
        ]
        return items + [replace(row, exact=row.exact * rate) for row in self.credited]

    def funding(self, name: str, *, currency: str) -> list[Item]:
        """What the platform pays of it: credits for lending and for preemptions."""
        parts = (*self.charges, *(part for _, part in self.corrected))
        lent = (
            (line.exact, line.amount)
            for part in parts
            for line in part.lines
            if line.kind is RowKind.LENDING_CREDIT
        )
        lost = ((row.exact, Money.rounded(row.exact, currency=currency)) for row in self.credited)
        return [
            *funding_item(
                RowKind.LENDING_FUNDING, lent, text=f"lending in {name}", currency=currency
            ),
            *funding_item(
                RowKind.PREEMPTION_FUNDING, lost, text=f"preemptions in {name}", currency=currency
            ),
        ]


def accounts_of(zone: str) -> QuerySet[Account]:
    """Accounts that are billed in months of a zone; without terms that is UTC."""
    terms = Q(billing_terms__zone=zone)
    if zone == UTC_ZONE:
        terms |= Q(billing_terms__isnull=True)
    return Account.objects.filter(terms).order_by("slug")


def last_day(period: BillingPeriod) -> date:
    """The last day of a period in its own zone; its exchange rates count."""
    return (period.end - timedelta(seconds=1)).astimezone(ZoneInfo(period.zone)).date()


def draw(period: BillingPeriod) -> Drawing:
    """Work out every statement of a period.

    Facts are summed by the database; the number of queries does not grow with workspaces.
    """
    window = Period(period.start, period.end)
    accounts = {row.pk: row for row in accounts_of(period.zone)}
    workspaces = list(Workspace.objects.filter(account__in=accounts).order_by("namespace"))
    book = price_book(window, accounts=accounts)
    charged = account_charges(window, book=book, workspaces=workspaces, is_partial=False)
    members: dict[int, list[Workspace]] = {}
    for workspace in workspaces:
        members.setdefault(workspace.account_id, []).append(workspace)
    late = correction_charges(period, accounts=members) if period.pk else {}
    lost = preemption_items(window, book)
    changes = _adjustments(period)
    day = last_day(period)
    rate_to = cache(lambda currency: exchange_rate(book.currency, currency, day))
    terms = {row.account_id: row for row in BillingTerms.objects.filter(account__in=accounts)}
    drawn: list[Drawn] = []
    funding: list[Item] = []
    missing: list[tuple[str, str]] = []
    for key, account in accounts.items() if book.currency else ():
        own = [charged[key]] if key in charged else []
        owed = _Owed(own, late.get(key, []), lost.get(key, ()), changes.get(key, ()))
        funding += owed.funding(account.name, currency=book.currency)
        own_terms = terms.get(key) or BillingTerms()
        currency = own_terms.currency or book.currency
        rate = rate_to(currency)
        if rate is None:
            missing.append((account.slug, currency))
        elif items := owed.items(as_fraction(rate)):
            document = assemble(items, currency=currency)
            row = Drawn(key, document, book.currency, billed_to=own_terms.billed_to)
            if currency != book.currency:
                row = replace(row, exchange_rate=rate, exchange_day=day)
            drawn.append(row)
    if funding:
        drawn.append(Drawn(None, assemble(funding, currency=book.currency), book.currency))
    every = [*charged.values(), *(part for rows in late.values() for _, part in rows)]
    unpriced = tuple(row for part in every for row in part.unpriced)
    return Drawing(tuple(drawn), book.currency, unpriced, tuple(missing))


def _adjustments(period: BillingPeriod) -> Mapping[int, list[Adjustment]]:
    """Approved adjustments by account key; in the currency of the account's statement."""
    found: dict[int, list[Adjustment]] = {}
    if period.pk:
        rows = Adjustment.objects.filter(period=period, state=Adjustment.State.APPROVED)
        for row in rows.select_related("workspace").order_by("pk"):
            found.setdefault(row.account_id, []).append(row)
    return found
