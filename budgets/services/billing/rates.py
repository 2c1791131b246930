"""Rate cards: proposed, activated from an hour on, never edited.

Source: spec money, section 3.4; spec features, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from budgets.charging import FloorHours
from budgets.errors import Fault, reject_any
from budgets.models import (
    Account,
    Approval,
    Flavor,
    Proposal,
    RateCard,
    RatePrice,
    RateTier,
    User,
    Workspace,
)
from budgets.selectors.billing.prices import card_in_force, prices_of
from budgets.selectors.billing.trials import try_card
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit, state_of
from budgets.services.billing.approvals import MoneyDeed, Seen, propose, row_of
from budgets.services.billing.guards import (
    closed_edge,
    currency_faults,
    foreign_currency,
    hour_faults,
    price_of,
)
from budgets.services.guards import by_finance, require_reason, save_checked
from budgets.units import time_text


@dataclass(frozen=True, slots=True)
class TierDraft:
    """A volume step: beyond ``above`` GPU-hours of an account in a month another price.

    ``of_class`` is ``committed`` or ``burst``.
    """

    of_class: str
    above: int | str
    price: Decimal | str


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
    tiers: Sequence[TierDraft] = ()


def price_faults(prices: Sequence[PriceDraft]) -> list[Fault]:
    """What is wrong with the rows of a card, whatever else is; their places as in a proposal."""
    faults: list[Fault] = []
    _rows_of(prices, faults)
    return faults


@by_finance
def propose_rate_card(
    actor: User | None,
    *,
    name: str,
    currency: str,
    prices: Sequence[PriceDraft],
    account: Account | None = None,
    floor_hours: str = FloorHours.ACTUAL,
    preemption_share: Decimal | str = Decimal(0),
    preemption_minutes: int = 0,
    reason: str = "",
) -> RateCard:
    """Write a price list down; it holds for nobody before it is activated.

    Args:
        actor: The author.
        name: For people.
        currency: ISO 4217; that of the cards that are active already.
        prices: One row per flavor; an account's card may leave flavors to the card for everybody.
        account: Whose own card; None for everybody.
        floor_hours: ``actual`` hours of the month, or ``fixed_730``.
        preemption_share: Of the burst price, 0 to 1: what comes back for burst that was lost to
            a preemption.
        preemption_minutes: So soon after the beginning of the admission; 0 for no credit.
        reason: Why.
    """
    faults = currency_faults("currency", currency) or foreign_currency(currency)
    if floor_hours not in set(FloorHours):
        message = f"{floor_hours!r} is not one of actual, fixed_730."
        faults.append(Fault("floor_hours", "unknown", message))
    rows, tiers = _rows_of(prices, faults)
    if not rows and account is None:
        faults.append(Fault("prices", "required", "Enter the price of at least one flavor."))
    card = RateCard(
        account=account,
        name=name.strip(),
        currency=currency,
        floor_hours=floor_hours,
        preemption_share=price_of("preemption_share", preemption_share, faults, most=Decimal(1)),
        preemption_minutes=preemption_minutes,
        reason=reason[:500],
        author=actor,
    )
    save_checked(card, also=faults)
    for row in rows.values():
        row.card = card
    RatePrice.objects.bulk_create(rows.values())
    RateTier.objects.bulk_create(tiers)
    audit(actor, "rate_card.propose", card, reason=reason, after=_state(card))
    return card


@by_finance
def propose_activation(
    actor: User | None, *, card: RateCard, valid_from: datetime, reason: str = ""
) -> Proposal:
    """Propose that a card hold from a whole UTC hour on; it supersedes the one before it.

    Raises:
        Rejected: The hour is not whole or in a closed period, the card was decided already, its
            activation waits, or a flavor would lose its price.
    """
    return propose(
        actor,
        ACTIVATE,
        subject=f"rate_card:{card.pk}",
        reason=reason,
        card=card,
        valid_from=valid_from,
    )


def _activation(card: RateCard, valid_from: datetime, *, at: datetime) -> Seen:
    """What a card would replace, and what the month before would have come to by it."""
    row = RateCard.objects.select_related("account").get(pk=card.pk)
    faults = _decided(row) + hour_faults("valid_from", valid_from, closed_edge(row.account))
    faults += foreign_currency(row.currency)
    if not faults:
        faults += _lost_prices(row, valid_from)
    reject_any(faults)
    replaced = card_in_force(row.account_id, valid_from)
    month, tried = try_card(row, Workspace.objects.select_related("account"), now=at)
    before, after = (
        sum((getattr(item, name) for item in tried), Decimal(0)) for name in ("before", "after")
    )
    return {
        "Rate card": str(row),
        "For": row.account.name if row.account else "everybody",
        "From": time_text(valid_from),
        "Dated back": "yes" if valid_from < at else "no",
        "Replaces": str(replaced) if replaced else "nothing",
        f"{month} at its own prices": f"{before:f} {row.currency}",
        f"{month} at this card's prices": f"{after:f} {row.currency}",
    }


def _activate(
    actor: User, approval: Approval, *, card: RateCard, valid_from: datetime, reason: str
) -> str:
    replaced = card_in_force(card.account_id, valid_from)
    card.state = RateCard.State.ACTIVE
    card.valid_from, card.approval = valid_from, approval
    _decide(card, actor)
    audit(
        actor,
        "rate_card.activate",
        card,
        reason=reason,
        before={"replaces": replaced.pk if replaced else None},
        after=_state(card),
    )
    return f"Rate card {card} is in force from {time_text(valid_from)}."


ACTIVATE = MoneyDeed(
    name="rate_card.activate",
    title="Activate a rate card",
    takes={"card": row_of(RateCard), "valid_from": datetime.fromisoformat},
    look=_activation,
    do=_activate,
)


@by_finance
def withdraw_rate_card(actor: User | None, *, card: RateCard, reason: str) -> RateCard:
    """Take back a proposal; an active card is superseded by another instead."""
    require_reason(reason)
    row = RateCard.objects.select_for_update(of=("self",)).get(pk=card.pk)
    reject_any(_decided(row))
    row.state = RateCard.State.WITHDRAWN
    _decide(row, actor)
    audit(actor, "rate_card.withdraw", row, reason=reason)
    return row


def _tier_rows(
    path: str, draft: PriceDraft, row: RatePrice | None, faults: list[Fault]
) -> list[RateTier]:
    """Read the volume steps of one row; None where the flavor is unknown."""
    found: dict[tuple[str, int], RateTier] = {}
    for index, tier in enumerate(draft.tiers):
        here = f"{path}.tiers.{index}"
        if tier.of_class not in RateTier.Class.values:
            message = f"{tier.of_class!r} is not one of {', '.join(RateTier.Class.values)}."
            faults.append(Fault(f"{here}.of_class", "unknown", message))
        if tier.of_class == RateTier.Class.BURST and draft.is_dynamic:
            message = f"The burst of {draft.flavor} follows a time series, which has no steps."
            faults.append(Fault(f"{here}.of_class", "dynamic", message))
        text = str(tier.above).strip()
        above = int(text) if text.isascii() and text.isdecimal() and len(text) < 13 else 0
        if above < 1:
            message = f"{text!r} is not a number of GPU-hours, 1 to 999999999999."
            faults.append(Fault(f"{here}.above", "out_of_range", message))
        if (tier.of_class, above) in found:
            message = f"{draft.flavor} has two steps of {tier.of_class} above {above}; keep one."
            faults.append(Fault(f"{here}.above", "repeated", message))
        price = price_of(f"{here}.price", tier.price, faults)
        found[tier.of_class, above] = RateTier(
            price_row=row, of_class=tier.of_class, above=above, price=price
        )
    return list(found.values())


def _rows_of(
    prices: Sequence[PriceDraft], faults: list[Fault]
) -> tuple[dict[str, RatePrice], list[RateTier]]:
    """Rows of prices by flavor, and their volume steps; what is wrong goes to the faults."""
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
    tiers = [
        tier
        for index, draft in enumerate(prices)
        for tier in _tier_rows(f"prices.{index}", draft, rows.get(draft.flavor), faults)
    ]
    return rows, tiers


def _decided(card: RateCard) -> list[Fault]:
    if card.state == RateCard.State.PROPOSED:
        return []
    message = f"The card is already {card.get_state_display().lower()}. Propose a new one."
    return [Fault("", "decided", message)]


def _decide(card: RateCard, actor: User | None) -> None:
    card.decided_by = actor
    card.decided_at = utc_now()
    card.save(update_fields=["state", "valid_from", "approval", "decided_by", "decided_at"])


def _lost_prices(card: RateCard, valid_from: datetime) -> list[Fault]:
    """Flavors in use that would have no price any more."""
    before = card_in_force(card.account_id, valid_from)
    kept: Mapping[str, Any] = prices_of(card)
    if card.account_id is not None:
        everybody = card_in_force(None, valid_from)
        kept = {**kept, **(prices_of(everybody) if everybody else {})}
    lost = set(prices_of(before) if before else {}) - set(kept)
    rows = Flavor.objects.filter(slug__in=lost, archived_at=None).order_by("slug")
    return [
        Fault("prices", "price_lost", f"{row.name} has a price on card {before}. Keep one for it.")
        for row in rows
    ]


def _state(card: RateCard) -> dict[str, Any]:
    return state_of(card, "name", "currency", "floor_hours", "state", "valid_from") | {
        "preemption": [str(card.preemption_share), card.preemption_minutes],
        "prices": {
            flavor: state_of(price, "committed", "burst", "lending_credit", "is_dynamic")
            | {
                "steps": {
                    kind.value: [[tier.above, str(tier.price)] for tier in tiers]
                    for kind, tiers in price.tiers.items()
                }
            }
            for flavor, price in prices_of(card).items()
        },
    }
