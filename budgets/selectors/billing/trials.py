"""What a month that is over would have come to by another rate card: the charging of statements.

Volume steps, the terms of the floor and credits for preempted work are in it. Corrections and
adjustments are not, for they are of other months or of no price; what comes out is in the currency
of the cards, before any exchange.

Source: issue 6, section 2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from budgets.charging import assemble, items_of
from budgets.models import BillingPeriod, RateCard, Workspace
from budgets.selectors.billing.costs import account_charges
from budgets.selectors.billing.months import UTC_ZONE, month_at, zones_of
from budgets.selectors.billing.preemptions import preemption_items
from budgets.selectors.billing.prices import price_book
from budgets.units import Period


@dataclass(frozen=True, slots=True)
class Tried:
    """One workspace's month.

    Attributes:
        before: By the prices that were in force then.
        after: By the card that is tried, for the whole month.
    """

    workspace: Workspace
    before: Decimal
    after: Decimal

    @property
    def change(self) -> Decimal:
        """How much more it would have been."""
        return self.after - self.before


def try_card(
    card: RateCard, workspaces: Iterable[Workspace], *, now: datetime
) -> tuple[str, list[Tried]]:
    """The last whole month of each account's billing zone, by a card and without it.

    Args:
        card: Of any state; its own workspaces alone count when it is one account's.
        workspaces: Visible to the caller; the volume that steps count is the whole account's.
        now: UTC.

    Returns:
        Name of the month (of UTC), and the workspaces that cost something, what changes most first;
        each to the cent what its account's statement has on its lines. Twenty queries for each
        billing zone.
    """
    rows = [row for row in workspaces if card.account_id in (None, row.account_id)]
    by_zone: dict[str, list[Workspace]] = defaultdict(list)
    zones = zones_of({row.account_id for row in rows})
    for row in rows:
        by_zone[zones[row.account_id]].append(row)
    found: list[Tried] = []
    for zone, members in sorted(by_zone.items()):
        last = _last_month(now, zone)
        window = Period(last.start, last.end)
        before, after = (_payable(window, members, trial=trial) for trial in (None, card))
        nothing = Decimal(0)
        found += [
            Tried(row, before.get(row.namespace, nothing), after.get(row.namespace, nothing))
            for row in members
        ]
    found = [row for row in found if row.before or row.after]
    return _last_month(now, UTC_ZONE).name, sorted(
        found, key=lambda row: (-abs(row.change), row.workspace.namespace)
    )


def _last_month(now: datetime, zone: str) -> BillingPeriod:
    return month_at(month_at(now, zone).start - timedelta(seconds=1), zone)


def _payable(
    window: Period, workspaces: Collection[Workspace], *, trial: RateCard | None
) -> Mapping[str, Decimal]:
    """Namespace → the sum of its lines, rounded as statements round them."""
    rows = list(workspaces)
    book = price_book(window, accounts={row.account_id for row in rows}, trial=trial)
    charged = account_charges(window, book=book, workspaces=rows)
    lost = preemption_items(window, book)
    seen = {row.namespace for row in rows}
    sums: dict[str, Decimal] = {}
    for account, charges in charged.items():
        credits = [item for item in lost.get(account, ()) if item.workspace in seen]
        document = assemble([*items_of(charges), *credits], currency=book.currency)
        for item, amount in document.lines:
            sums[item.workspace] = sums.get(item.workspace, Decimal(0)) + amount.amount
    return sums
