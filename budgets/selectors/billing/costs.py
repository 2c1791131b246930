"""What use costs: hour facts added up by the database, charged by the pure core.

Facts are summed over the hours in which no rate of their flavor changes, so a month of a
thousand workspaces is a few thousand sums, and exact all the same.

Source: spec money, section 3.4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from itertools import groupby, pairwise
from typing import Any

from django.db.models import F, Q, QuerySet

from budgets.amounts import METERED
from budgets.charging import HOURLY, Charges, Rates, RowKind, charge
from budgets.metering import HourFact, Usage
from budgets.models import BillingPeriod, Correction, UsageRecord, Workspace
from budgets.selectors.billing.months import unstored_month, zones_of
from budgets.selectors.billing.prices import PriceBook, price_book
from budgets.selectors.fleet.places import facts_in
from budgets.selectors.usage.scope import amounts_of, sums_of
from budgets.units import FlavorName, GpuSeconds, Money, Period, WorkspaceName, utc_hour

FEW_EDGES = 24
"""More rate changes than this in a window, and a flavor's facts are read hour by hour."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one workspace costs over a time.

    Attributes:
        currency: Empty while there are no prices.
        floor: Exact, of the committed floor.
        burst: Exact, of the use above it.
        lending_credit: Exact and ≤ 0.
        payable: The exact sum, rounded once.
        unpriced: Flavors that were used or committed in hours without a price.
    """

    currency: str = ""
    floor: Fraction = Fraction(0)
    burst: Fraction = Fraction(0)
    lending_credit: Fraction = Fraction(0)
    payable: Money | None = None
    unpriced: tuple[str, ...] = ()

    @property
    def exact(self) -> Fraction:
        """The sum of the three."""
        return self.floor + self.burst + self.lending_credit


def costs(workspaces: Iterable[Workspace], start: datetime, end: datetime) -> dict[int, Cost]:
    """Costs of visible workspaces' hour facts in [start, end) by their key, at the prices in
    force, not rounded but for ``payable``. Five queries.
    """
    rows = list(workspaces)
    window = Period(start, end)
    book = price_book(window, accounts={row.account_id for row in rows})
    if not book.currency:
        return {row.pk: Cost() for row in rows}
    charged = account_charges(window, book=book, workspaces=rows)
    by_name = {name: cost for part in charged.values() for name, cost in _costs_of(part)}
    empty = Cost(book.currency, payable=Money.zero(book.currency))
    return {row.pk: by_name.get(row.namespace, empty) for row in rows}


def account_charges(
    window: Period,
    *,
    book: PriceBook,
    workspaces: Sequence[Workspace],
    is_partial: bool = True,
) -> dict[int, Charges]:
    """Charge the facts of a window, account by account.

    Args:
        window: Facts whose start lies in it.
        book: Prices of (at least) these accounts.
        workspaces: Whose facts; all of an account's for a statement.
        is_partial: They are few: filter facts by them.

    Returns:
        Account key -> charges, with a total for each of its workspaces; empty while no rate
        card is active, for then there is no currency either.
    """
    if not book.currency:
        return {}
    facts = fact_sums(
        window, edges=book.edges(window), workspaces=workspaces if is_partial else None
    )
    names = {row.pk: row for row in workspaces}
    by_account: dict[int, list[HourFact]] = {row.account_id: [] for row in workspaces}
    members: dict[int, list[WorkspaceName]] = {row.account_id: [] for row in workspaces}
    for row in workspaces:
        members[row.account_id].append(WorkspaceName(row.namespace))
    for workspace_id, fact in facts:
        if workspace_id in names:
            by_account[names[workspace_id].account_id].append(fact)
    empty = Rates((), currency=book.currency)
    charged = {}
    for account, found in by_account.items():
        card = book.of(account) or empty
        if is_partial:
            card = tiered(card, account, window)
        charged[account] = charge(
            Usage(window, tuple(found), ()), card, workspaces=members[account]
        )
    return charged


def tiered(card: Rates, account: int, window: Period) -> Rates:
    """A card with the average prices of an account's whole volume; no query without steps.

    Args:
        card: Prices of the account.
        account: Its key.
        window: The period whose volume counts; of a shorter range only what lies in it.
    """
    if not card.has_tiers:
        return card
    members = list(Workspace.objects.filter(account=account))
    facts = fact_sums(window, edges=card.edges(window), workspaces=members)
    return card.averaged((fact.flavor, fact.hour, fact.committed, fact.burst) for _, fact in facts)


def correction_charges(
    period: BillingPeriod, *, accounts: Mapping[int, Sequence[Workspace]]
) -> dict[int, list[tuple[str, Charges]]]:
    """Charge the corrections that are booked in a period, each at the prices of its own time.

    Returns:
        Account key -> (name of the period that is corrected, its charges), oldest first.
    """
    rows = Correction.objects.filter(
        booked_in=period, table=Correction.Table.USAGE, account__in=list(accounts)
    ).select_related("workspace")
    found: dict[int, list[Correction]] = {}
    for row in rows.order_by("start", "pk"):
        found.setdefault(row.account_id, []).append(row)
    if not found:
        return {}
    zones = zones_of(found)
    charged: dict[int, list[tuple[str, Charges]]] = {}
    for account, corrections in found.items():
        for old, late in by_month(corrections, zones[account]):
            card = correction_card(account, old, period)
            if card is not None:
                window = Period(old.start, old.end)
                facts = tuple(_delta(row) for row in late)
                part = charge(Usage(window, facts, ()), card, workspaces=())
                charged.setdefault(account, []).append((old.name, part))
    return charged


def by_month(
    corrections: Iterable[Correction], zone: str
) -> Iterator[tuple[BillingPeriod, list[Correction]]]:
    """Corrections by the month that they are about, in order; given in the order of time."""
    for _, group in groupby(corrections, key=lambda row: unstored_month(row.start, zone).name):
        rows = list(group)
        yield unstored_month(rows[0].start, zone), rows


def correction_card(account: int, old: BillingPeriod, booked_in: BillingPeriod) -> Rates | None:
    """The prices that held in a closed month; what had none takes the first that it was given.

    Where they have volume steps, what turned up late costs what the month's volume cost on the
    average: the volume that was closed counts.
    """
    card = price_book(Period(old.start, booked_in.end), accounts=[account]).of(account)
    if card is None:
        return None
    return tiered(card, account, Period(old.start, old.end)).reaching_back(utc_hour(old.start))


def fact_sums(
    window: Period,
    *,
    edges: Mapping[FlavorName, Collection[datetime]],
    workspaces: Sequence[Workspace] | None = None,
) -> Iterator[tuple[int, HourFact]]:
    """Sum hour facts over the hours in which no rate of their flavor changes.

    Args:
        window: Facts whose start lies in it.
        edges: By flavor, the whole UTC hours in which a rate changes.
        workspaces: Only of these; None for all.

    Yields:
        (workspace key, a fact that stands for all the hours from its ``hour`` to the next edge).
    """
    facts = facts_in(UsageRecord.objects.all(), window)
    if workspaces is not None:
        facts = facts.filter(workspace__in=[row.pk for row in workspaces])
    for part, at in priced_alike(facts, window, edges=edges, flavor="flavor__slug"):
        keys = ("workspace_id", "flavor__slug", *(() if at else ("hour",)))
        yield from _summed(part.values(*keys), at=at)


def priced_alike(
    facts: QuerySet[Any],
    window: Period,
    *,
    edges: Mapping[FlavorName, Collection[datetime]],
    flavor: str,
) -> Iterator[tuple[QuerySet[Any], datetime | None]]:
    """Facts in parts that one rate of their flavor holds for.

    Args:
        facts: With ``start`` and ``hour``.
        window: They lie in it.
        edges: By flavor, the whole UTC hours in which a rate changes.
        flavor: Their field with the flavor's slug.

    Yields:
        (facts, the instant whose rate holds for all of them); None for flavors whose rate changes
        so often that each hour has to be looked up.
    """
    hourly = {flavor for flavor, found in edges.items() if len(found) > FEW_EDGES}
    steady = {edge for flavor, found in edges.items() if flavor not in hourly for edge in found}
    named = Q(**{f"{flavor}__in": hourly})
    for start, end in pairwise([window.start, *sorted(steady), window.end]):
        yield facts.filter(start__gte=start, start__lt=end).exclude(named), start
    if hourly:
        yield facts.filter(named), None


def _summed(grouped: Any, *, at: datetime | None) -> Iterator[tuple[int, HourFact]]:
    rows = grouped.annotate(**sums_of(METERED)).filter(
        Q(sum_committed__gt=0) | Q(sum_burst__gt=0) | Q(sum_lent__gt=0)
    )
    for row in rows.annotate(namespace=F("workspace__namespace")):
        hour = utc_hour(at or row["hour"])
        yield (
            row["workspace_id"],
            HourFact(
                hour=hour,
                start=at or hour,
                workspace=WorkspaceName(row["namespace"]),
                flavor=FlavorName(row["flavor__slug"]),
                **{name: GpuSeconds(seconds) for name, seconds in amounts_of(row, METERED).items()},
            ),
        )


def _delta(row: Correction) -> HourFact:
    return HourFact(
        hour=row.hour,
        start=row.start,
        workspace=WorkspaceName(row.workspace.namespace if row.workspace else ""),
        flavor=FlavorName(row.flavor),
        **{name: GpuSeconds(getattr(row, name)) for name in METERED},
    )


def _costs_of(charges: Charges) -> Iterator[tuple[str, Cost]]:
    sums: dict[tuple[str, RowKind], Fraction] = defaultdict(Fraction)
    for line in charges.lines:
        sums[line.workspace, line.kind] += line.exact
    unpriced: dict[str, set[str]] = defaultdict(set)
    for row in charges.unpriced:
        unpriced[row.workspace].add(row.flavor)
    for total in charges.totals:
        name = total.workspace
        floor, burst, credit = (sums[name, kind] for kind in HOURLY)
        missing = tuple(sorted(unpriced[name]))
        yield name, Cost(total.payable.currency, floor, burst, credit, total.payable, missing)
