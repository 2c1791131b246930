"""Billing periods, and what stands in the way of closing one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Min, Q

from budgets.charging import RowKind
from budgets.errors import NotAllowed
from budgets.models import (
    Adjustment,
    BillingPeriod,
    BillingTerms,
    Flavor,
    Interval,
    MeterState,
    RateCard,
    Statement,
    UsageRecord,
    User,
    Workspace,
)
from budgets.selectors.billing.documents import Drawing, accounts_of, draw, last_day
from budgets.selectors.billing.months import (
    UTC_ZONE,
    closed_edges,
    month_at,
    month_of,
    unstored_month,
)
from budgets.selectors.billing.reconciliation import identity_gaps, unsettled_in
from budgets.selectors.clock import utc_now
from budgets.selectors.fleet.places import counted_intervals, facts_in
from budgets.selectors.roles import roles_of

MOST_DETAILS = 20
_UNPRICED = {RowKind.FLOOR: "committed", RowKind.BURST: "burst", RowKind.LENDING_CREDIT: "lent"}


@dataclass(frozen=True, slots=True)
class Check:
    """One entry of the check list; ``details`` say what is missing, in words."""

    key: str
    title: str
    details: tuple[str, ...] = ()

    @property
    def is_met(self) -> bool:
        """Whether nothing is missing."""
        return not self.details


def period_for(user: User, name: str, zone: str = UTC_ZONE) -> BillingPeriod:
    """A month for its page.

    Raises:
        BillingPeriod.DoesNotExist: There is no such month or zone, or the user has no platform
            role and sees no month as a whole.
    """
    if not roles_of(user).sees_everything:
        raise BillingPeriod.DoesNotExist(name)
    return month_of(name, zone)


def billing_months(user: User, *, now: datetime | None = None) -> list[BillingPeriod]:
    """Every month that has facts, of every zone in use, the newest first.

    Raises:
        NotAllowed: The user has no platform role.
    """
    if not roles_of(user).sees_everything:
        raise NotAllowed("Only finance, auditors and admins can see whole months.")
    first = UsageRecord.objects.aggregate(first=Min("hour"))["first"]
    found = {(row.name, row.zone): row for row in BillingPeriod.objects.all()}
    instant = now or utc_now()
    zones = {UTC_ZONE, *BillingTerms.objects.values_list("zone", flat=True)}
    for zone in zones if first else ():
        at = month_at(first, zone)
        while at.start <= instant:
            found.setdefault((at.name, zone), at)
            at = unstored_month(at.end, zone)
    return sorted(found.values(), key=lambda row: (row.name, row.zone), reverse=True)


def check_list(
    period: BillingPeriod,
    *,
    drawing: Drawing | None = None,
    now: datetime | None = None,
    clusters: Mapping[str, str] | None = None,
) -> tuple[Check, ...]:
    """Everything that has to hold before a month is closed, in the order of the page.

    Args:
        period: An open month.
        drawing: What :func:`draw` came to; drawn up here when absent.
        now: UTC; None for the present.
        clusters: Slug → name, for the details; a cluster without one is called by its slug.
    """
    drawn, names = drawing or draw(period), clusters or {}
    checks: list[tuple[str, str, Callable[[], Iterator[str]]]] = [
        ("over", "The month is over", lambda: _over(period, now or utc_now())),
        ("earlier", "The months before it are closed", lambda: _earlier(period)),
        (
            "complete",
            "Every cluster's facts are complete",
            lambda: _complete(period, now or utc_now(), names),
        ),
        ("identities", "The books of usage add up", lambda: identity_gaps(period)),
        ("reconciled", "Nothing disagrees with the ledger", lambda: unsettled_in(period, names)),
        ("undecided", "It is known which use is billed", lambda: _undecided(period, names)),
        ("priced", "Everything used or committed has a price", lambda: _unpriced(period, drawn)),
        ("exchange", "Exchange rates are recorded", lambda: _unexchanged(period, drawn)),
        ("approvals", "Nothing waits for approval", lambda: _approvals(period)),
        ("reviewed", "Reviewed statements match the facts", lambda: _stale(period, drawn)),
    ]
    return tuple(Check(key, title, _first(found())) for key, title, found in checks)


def statement_content(statement: Statement) -> tuple[object, ...]:
    """A stored statement in the form in which it is compared: head, then lines in order."""
    lines = statement.lines.values_list(
        "workspace__namespace", "flavor", "kind", "class_of", "gpu_seconds", "exact_text", "amount"
    ).order_by("position")
    rows = ((row[0] or "", *row[1:]) for row in lines)
    return (statement.currency, statement.billed_to, *rows)


def drawn_content(drawing: Drawing) -> dict[int | None, tuple[object, ...]]:
    """What the statements would be if they were drawn up now, in the same form."""
    return {
        row.account_id: (
            row.document.currency,
            row.billed_to,
            *(
                (
                    item.workspace,
                    item.flavor,
                    item.kind.value,
                    item.class_of.value if item.class_of else "",
                    item.gpu_seconds,
                    str(item.exact),
                    amount.amount,
                )
                for item, amount in row.document.lines
            ),
        )
        for row in drawing.drawn
    }


def _first(details: Iterator[str]) -> tuple[str, ...]:
    found = [text for text, _ in zip(details, range(MOST_DETAILS + 1), strict=False)]
    if len(found) > MOST_DETAILS:
        found[MOST_DETAILS:] = ["and more"]
    return tuple(found)


def _over(period: BillingPeriod, now: datetime) -> Iterator[str]:
    if now < period.end:
        yield f"The month ends on {period.end:%Y-%m-%d %H:%M} UTC."


def _earlier(period: BillingPeriod) -> Iterator[str]:
    edges = closed_edges()
    still_open = [
        key
        for key in accounts_of(period.zone).order_by().values_list("pk", flat=True)
        if key not in edges or edges[key] < period.start
    ]
    facts = UsageRecord.objects.filter(
        workspace__account__in=still_open, hour__lt=period.start, start__lt=period.start
    )
    first = facts.order_by().aggregate(first=Min("hour"))["first"]
    if first is not None:
        yield f"{month_at(first, period.zone).name} has use and is not closed. Close it first."
    if BillingPeriod.objects.filter(
        zone=period.zone, closed_at__isnull=False, start__gt=period.start
    ).exists():
        yield "A later month is closed already. What is left of this one is billed there."


def _complete(period: BillingPeriod, now: datetime, names: Mapping[str, str]) -> Iterator[str]:
    states = list(MeterState.objects.order_by("cluster"))
    if not states:
        yield "No cluster has ever been metered."
    for row in states:
        name = names.get(row.cluster, row.cluster)
        if row.complete_until is None or row.complete_until < period.end:
            until = "have never been complete"
            if row.complete_until is not None:
                until = f"are complete up to {row.complete_until:%Y-%m-%d %H:%M} UTC"
            late = "the cluster is late" if period.end <= now else "the month has not ended"
            yield f"The facts of {name} {until}: {row.message or late}."
        elif row.metered_until is None or row.metered_until < period.end:
            yield f"The use of {name} is not metered to the end of the month yet."
        elif row.dirty_from is not None and row.dirty_from < period.end:
            yield (
                f"The use of {name} has changed since {row.dirty_from:%Y-%m-%d %H:%M} UTC and is "
                "not metered again yet."
            )


def _undecided(period: BillingPeriod, names: Mapping[str, str]) -> Iterator[str]:
    rows = counted_intervals(period.start, period.end, kind=Interval.Kind.UNDECIDED).filter(
        Q(workspace__isnull=True) | Q(workspace__account__in=accounts_of(period.zone))
    )
    for cluster, namespace, workload in rows.order_by("pk").values_list(
        "cluster", "namespace", "workload"
    )[: MOST_DETAILS + 1]:
        place = names.get(cluster, cluster)
        yield f"It is not known yet whether {namespace}/{workload} on {place} is billed."


def _unpriced(period: BillingPeriod, drawing: Drawing) -> Iterator[str]:
    facts = UsageRecord.objects.filter(workspace__account__in=accounts_of(period.zone))
    if not drawing.currency and facts_in(facts, period).exists():
        yield "No rate card is active. Propose and activate one."
    if not drawing.unpriced:
        return
    flavors = dict(Flavor.objects.order_by().values_list("slug", "name"))
    workspaces = dict(Workspace.objects.order_by().values_list("namespace", "name"))
    seen = set()
    for row in drawing.unpriced:
        if (row.workspace, row.flavor) not in seen:
            seen.add((row.workspace, row.flavor))
            yield (
                f"{flavors.get(row.flavor, row.flavor)} of "
                f"{workspaces.get(row.workspace, row.workspace)} has no price for "
                f"{row.gpu_seconds} {_UNPRICED[row.kind]} GPU-seconds of the month."
            )


def _unexchanged(period: BillingPeriod, drawing: Drawing) -> Iterator[str]:
    rows = accounts_of(period.zone).values_list("slug", "name")
    names = dict(rows) if drawing.unexchanged else {}
    for account, currency in drawing.unexchanged:
        yield (
            f"{names.get(account, account)} is billed in {currency}. Record the exchange rate "
            f"from {drawing.currency} to {currency} of {last_day(period)}."
        )


def _approvals(period: BillingPeriod) -> Iterator[str]:
    waiting = Adjustment.objects.filter(state=Adjustment.State.PROPOSED).filter(
        Q(period__name=period.name, period__zone=period.zone)
    )
    for row in waiting.select_related("account").order_by("pk"):
        amount = f"{row.amount:f} {row.currency}"
        yield f"The adjustment of {amount} for {row.account.name} waits for approval."
    cards = RateCard.objects.filter(state=RateCard.State.PROPOSED, created_at__lt=period.end)
    for card in cards.order_by("pk"):
        yield f"Rate card {card} waits for approval. Activate or withdraw it."


def _stale(period: BillingPeriod, drawing: Drawing) -> Iterator[str]:
    reviewed = Statement.objects.filter(
        period__name=period.name,
        period__zone=period.zone,
        kind=Statement.Kind.STATEMENT,
        state=Statement.State.REVIEWED,
    ).select_related("account", "period")
    rows = list(reviewed)
    wanted = drawn_content(drawing) if rows else {}
    for row in rows:
        if statement_content(row) != wanted.get(row.account_id):
            who = row.account.name if row.account else "the platform"
            yield f"Something changed after the statement of {who} was reviewed. Send it back."
