"""Rate cards and time series: proposed, activated from an hour on, never edited.

Source: spec money, section 3.4; spec features, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import transaction

from budgets.charging import FloorHours
from budgets.errors import Fault, Rejected
from budgets.models import Account, Flavor, RateCard, RatePrice, SpotPrice, User
from budgets.selectors.billing.prices import card_in_force, portal_currency, prices_of
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit
from budgets.services.billing.guards import (
    closed_edge,
    currency_faults,
    lock_billing,
    price_of,
    require_finance,
)
from budgets.services.guards import require_reason, save_checked
from budgets.units import UnitsError, utc_hour

BATCH = 1000
MOST_PRICES = 10_000


@dataclass(frozen=True, slots=True)
class PriceDraft:
    """Prices of one flavor per GPU-hour, as Decimal or as typed text.

    ``lending_credit`` is the share of the committed price, 0 to 1, that a lender gets back.
    """

    flavor: str
    committed: Decimal | str
    burst: Decimal | str
    lending_credit: Decimal | str = Decimal(0)
    is_dynamic: bool = False


@transaction.atomic
def propose_rate_card(
    actor: User | None,
    *,
    name: str,
    currency: str,
    prices: Sequence[PriceDraft],
    account: Account | None = None,
    floor_hours: str = FloorHours.ACTUAL,
    reason: str = "",
) -> RateCard:
    """Write a price list down; it holds for nobody before it is activated.

    Args:
        actor: Finance or admin.
        name: For people.
        currency: ISO 4217; that of the cards that are active already.
        prices: One row per flavor; an account's card may leave flavors to the card for everybody.
        account: Whose own card; None for everybody.
        floor_hours: ``actual`` hours of the month, or ``fixed_730``.
        reason: Why.

    Raises:
        NotAllowed: For other roles.
        Rejected: Everything that is wrong with it.
    """
    require_finance(actor)
    faults = currency_faults("currency", currency) or _foreign(currency)
    if floor_hours not in set(FloorHours):
        faults.append(
            Fault("floor_hours", "unknown", f"{floor_hours!r} is none of actual, fixed_730.")
        )
    rows = _price_rows(prices, faults)
    if not rows and account is None:
        faults.append(Fault("prices", "required", "Name the price of at least one flavor."))
    card = RateCard(
        account=account,
        name=name.strip(),
        currency=currency,
        floor_hours=floor_hours,
        reason=reason[:500],
        author=actor,
    )
    save_checked(card, also=faults)
    for row in rows:
        row.card = card
    RatePrice.objects.bulk_create(rows)
    audit(
        actor,
        action="rate_card.propose",
        subject=f"rate_card:{card.pk}",
        account=account,
        reason=reason,
        after=_state(card),
    )
    return card


@transaction.atomic
def activate_rate_card(
    actor: User | None, *, card: RateCard, valid_from: datetime, reason: str = ""
) -> RateCard:
    """Let a card hold from a whole UTC hour on; it supersedes the one before it.

    Raises:
        NotAllowed: For other roles.
        Rejected: The hour is not whole or in a closed period, the card was decided already, or
            a flavor would lose its price.
    """
    require_finance(actor)
    lock_billing()
    row = RateCard.objects.select_for_update(of=("self",)).get(pk=card.pk)
    faults = _decided(row) + _hour_faults("valid_from", valid_from, row.account)
    faults += _foreign(row.currency)
    if not faults:
        faults += _lost_prices(row, valid_from)
    if faults:
        raise Rejected(faults)
    replaced = card_in_force(row.account_id, valid_from)
    row.state = RateCard.State.ACTIVE
    row.valid_from = valid_from
    _decide(row, actor)
    audit(
        actor,
        action="rate_card.activate",
        subject=f"rate_card:{row.pk}",
        account=row.account,
        reason=reason,
        before={"replaces": replaced.pk if replaced else None},
        after=_state(row),
    )
    return row


@transaction.atomic
def withdraw_rate_card(actor: User | None, *, card: RateCard, reason: str) -> RateCard:
    """Take back a proposal; an active card is superseded by another instead."""
    require_finance(actor)
    require_reason(reason)
    row = RateCard.objects.select_for_update(of=("self",)).get(pk=card.pk)
    if faults := _decided(row):
        raise Rejected(faults)
    row.state = RateCard.State.WITHDRAWN
    _decide(row, actor)
    audit(
        actor,
        action="rate_card.withdraw",
        subject=f"rate_card:{row.pk}",
        account=row.account,
        reason=reason,
    )
    return row


@transaction.atomic
def record_spot_prices(
    actor: User | None,
    *,
    flavor: Flavor,
    prices: Iterable[tuple[datetime, Decimal | str]],
    currency: str,
) -> int:
    """Add points to the time series of a flavor; what stands already is left alone.

    Args:
        actor: Finance or admin; None for an importer of the portal.
        flavor: Whose burst price it is, where a card says that it is dynamic.
        prices: (whole UTC hour from which it holds, price per GPU-hour).
        currency: That of the rate cards.

    Returns:
        How many points were new. One for an hour that has a point already supersedes it.

    Raises:
        Rejected: Everything that is wrong with them, nothing is stored.
    """
    require_finance(actor)
    lock_billing()
    faults = currency_faults("currency", currency) or _foreign(currency)
    rows = list(prices)
    if not 0 < len(rows) <= MOST_PRICES:
        faults.append(Fault("prices", "count", f"Give 1 to {MOST_PRICES:,} prices at once."))
    edge = closed_edge(None)
    points: dict[datetime, Decimal] = {}
    for index, (start, value) in enumerate(rows[:MOST_PRICES]):
        faults += _whole_hour(f"prices.{index}.start", start, edge)
        points[start] = price_of(f"prices.{index}.price", value, faults)
    if faults:
        raise Rejected(faults)
    known = dict(
        SpotPrice.objects.filter(flavor=flavor, start__in=points)
        .order_by("pk")
        .values_list("start", "price")
    )
    new = {start: price for start, price in points.items() if known.get(start) != price}
    SpotPrice.objects.bulk_create(
        [
            SpotPrice(flavor=flavor, start=start, price=price, currency=currency, recorded_by=actor)
            for start, price in sorted(new.items())
        ],
        batch_size=BATCH,
    )
    if new:
        audit(
            actor,
            action="spot_price.record",
            subject=f"flavor:{flavor.slug}",
            after={
                "count": len(new),
                "first": min(new).isoformat(),
                "last": max(new).isoformat(),
                "currency": currency,
            },
        )
    return len(new)


def _price_rows(prices: Sequence[PriceDraft], faults: list[Fault]) -> list[RatePrice]:
    flavors = {row.slug: row for row in Flavor.objects.all()}
    rows: dict[str, RatePrice] = {}
    for index, draft in enumerate(prices):
        path = f"prices.{index}"
        flavor = flavors.get(draft.flavor)
        if flavor is None:
            message = f"There is no flavor {draft.flavor!r}; choose one of {', '.join(flavors)}."
            faults.append(Fault(f"{path}.flavor", "unknown", message))
            continue
        if draft.flavor in rows:
            message = f"{draft.flavor} has two rows; keep one."
            faults.append(Fault(f"{path}.flavor", "repeated", message))
        rows[draft.flavor] = RatePrice(
            flavor=flavor,
            committed=price_of(f"{path}.committed", draft.committed, faults),
            burst=price_of(f"{path}.burst", draft.burst, faults),
            lending_credit=price_of(
                f"{path}.lending_credit", draft.lending_credit, faults, most=Decimal(1)
            ),
            is_dynamic=draft.is_dynamic,
        )
    return list(rows.values())


def _foreign(currency: str) -> list[Fault]:
    """All cards are in one currency, or no sum over accounts would mean anything."""
    used = portal_currency()
    if not used or used == currency:
        return []
    message = (
        f"The rate cards are in {used}, not {currency}; an account is billed in another currency "
        "through its billing terms and dated exchange rates."
    )
    return [Fault("currency", "other_currency", message)]


def _decided(card: RateCard) -> list[Fault]:
    if card.state == RateCard.State.PROPOSED:
        return []
    message = f"The card is {card.get_state_display().lower()} already; propose a new one."
    return [Fault("", "decided", message)]


def _decide(card: RateCard, actor: User | None) -> None:
    card.decided_by = actor
    card.decided_at = utc_now()
    card.save(update_fields=["state", "valid_from", "decided_by", "decided_at"])


def _hour_faults(field: str, hour: datetime, account: Account | None) -> list[Fault]:
    return _whole_hour(field, hour, closed_edge(account))


def _whole_hour(field: str, hour: datetime, edge: datetime | None) -> list[Fault]:
    try:
        is_whole = utc_hour(hour) == hour
    except UnitsError as error:
        return [Fault(field, "not_utc", f"{error}.")]
    if not is_whole:
        message = f"{hour:%Y-%m-%dT%H:%M:%SZ} is not a whole UTC hour; a price begins on one."
        return [Fault(field, "not_a_whole_hour", message)]
    if edge is not None and hour < edge:
        message = (
            f"{hour:%Y-%m-%d %H:%M} UTC is in a closed period; the earliest is "
            f"{edge:%Y-%m-%d %H:%M} UTC."
        )
        return [Fault(field, "closed_period", message)]
    return []


def _lost_prices(card: RateCard, valid_from: datetime) -> list[Fault]:
    """Flavors in use that would have no price any more."""
    before = card_in_force(card.account_id, valid_from)
    kept: Mapping[str, Any] = prices_of(card)
    if card.account_id is not None:
        everybody = card_in_force(None, valid_from)
        kept = {**kept, **(prices_of(everybody) if everybody else {})}
    lost = set(prices_of(before) if before else {}) - set(kept)
    archived = set(Flavor.objects.filter(archived_at__isnull=False).values_list("slug", flat=True))
    return [
        Fault("prices", "price_lost", f"{flavor} had a price on card {before}; keep one for it.")
        for flavor in sorted(lost - archived)
    ]


def _state(card: RateCard) -> dict[str, Any]:
    return {
        "name": card.name,
        "currency": card.currency,
        "floor_hours": card.floor_hours,
        "state": card.state,
        "valid_from": card.valid_from.isoformat() if card.valid_from else None,
        "prices": {
            flavor: {
                "committed": str(price.committed),
                "burst": str(price.burst),
                "lending_credit": str(price.lending_credit),
                "is_dynamic": price.is_dynamic,
            }
            for flavor, price in prices_of(card).items()
        },
    }
