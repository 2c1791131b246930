"""Rate cards for finance: list, propose, what would change, activate from an hour on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from budgets import selectors
from budgets.charging import Tier
from budgets.models import RateCard, User
from budgets.selectors import billing as read
from budgets.selectors.approvals import open_proposal
from budgets.services import billing as actions
from portal.web.approvals import PROPOSED
from portal.web.forms import ReasonForm, TimeField
from portal.web.htmx import render
from portal.web.numbers import money_text, price_text
from portal.web.pages import Deed, form_page, may_bill, page, pressed, require_finance, typed
from portal.web.rate_form import CardForm, initial_of

TRIED_WORKSPACES = 50


@page()
def rates(request: HttpRequest, user: User) -> HttpResponseBase:
    """Every card that the reader may see, those in force first."""
    now = selectors.utc_now()
    cards = list(read.visible_rate_cards(user))
    in_force = read.cards_in_force(cards, now)
    current = in_force.get(None)
    keys = {row.pk for row in in_force.values()}
    context = {
        "cards": [{"card": row, "phase": _phase(row, keys, now)} for row in cards],
        "prices": _priced(current),
        "current": current,
        "may_write": may_bill(user),
    }
    return render(request, "billing/rates.html", context)


@page("GET", "POST")
def rate_propose(request: HttpRequest, user: User) -> HttpResponseBase:
    """A new card, filled with the prices of the one in force."""
    require_finance(user)
    flavors = list(selectors.visible_flavors(user))
    current = read.card_in_force(None, selectors.utc_now())
    form = CardForm(
        typed(request),
        accounts=selectors.visible_accounts(user),
        flavors=flavors,
        initial=initial_of(current),
    )
    return form_page(
        request,
        "billing/rate_propose.html",
        form,
        lambda given: actions.propose_rate_card(user, **given),
        said="Card {0} is proposed. It takes effect once it is activated.".format,
        to=lambda card: reverse("rate_card", args=[card.pk]),
    )


class ActivateForm(ReasonForm):
    """From when on a card holds."""

    valid_from = TimeField(
        label="From",
        required=True,
        help_text="A whole UTC hour of a month that is not closed.",
    )


@page("GET", "POST")
def rate_card(request: HttpRequest, user: User, key: int) -> HttpResponseBase:
    """One card: its prices, what it changes, what last month would have cost, its decision."""
    card = read.visible_rate_cards(user).get(pk=key)
    now = selectors.utc_now()
    deed = request.POST.get("deed")
    form = ActivateForm(
        request.POST if deed == "activate" else None, initial={"valid_from": _next_hour(now)}
    )
    withdrawal = ReasonForm(request.POST if deed == "withdraw" else None, prefix="withdraw")

    activate = partial(actions.propose_activation, user, card=card)
    withdraw = partial(actions.withdraw_rate_card, user, card=card)
    deeds = {
        "activate": Deed(activate, PROPOSED, form),
        "withdraw": Deed(withdraw, f"Card {card} is withdrawn.", withdrawal),
    }
    if request.method == "POST":
        require_finance(user)
    if answer := pressed(request, deeds, to=reverse("rates")):
        return answer
    is_proposed = card.state == RateCard.State.PROPOSED
    at = card.valid_from or now
    context = {
        "card": card,
        "differences": [
            {"row": row, "before": _texts(row.before), "after": _texts(row.after)}
            for row in read.card_difference(card, at=at)
        ],
        "compared": read.card_in_force(card.account_id, at, besides=card),
        "form": form,
        "withdrawal": withdrawal,
        "may_decide": is_proposed and may_bill(user),
        "proposal": open_proposal("rate_card.activate", f"rate_card:{card.pk}"),
        "trial": _trial(user, card, now) if is_proposed and may_bill(user) else None,
    }
    status = max(form.status, withdrawal.status)
    return render(request, "billing/rate_card.html", context, status=status)


def _trial(user: Any, card: RateCard, now: datetime) -> dict[str, Any] | None:
    """What the last whole month would have cost by this card, beside what it cost."""
    spaces = selectors.visible_workspaces(user, include_archived=True)
    month, rows = read.try_card(card, spaces, now=now)
    if not rows:
        return None

    def texts(amounts: Iterable[Decimal]) -> list[str]:
        return [money_text(amount, card.currency) for amount in amounts]

    def added(part: list[read.Tried]) -> list[str]:
        columns = zip(*((row.before, row.after, row.change) for row in part), strict=True)
        return texts(sum(column, Decimal(0)) for column in columns)

    return {
        "month": month,
        "rows": [
            (row.workspace, texts((row.before, row.after, row.change)))
            for row in rows[:TRIED_WORKSPACES]
        ],
        "rest": added(rows[TRIED_WORKSPACES:]) if len(rows) > TRIED_WORKSPACES else None,
        "rest_count": len(rows) - TRIED_WORKSPACES,
        "totals": added(rows),
    }


def _texts(price: Any) -> list[str] | None:
    if price is None:
        return None
    burst = _with_steps(price.burst, price.burst_tiers)
    return [
        _with_steps(price.committed, price.committed_tiers),
        f"time series, else {burst}" if price.is_dynamic else burst,
        price_text(price.lending_credit),
    ]


def _with_steps(base: Decimal, tiers: Iterable[Tier]) -> str:
    """A price, and what it is beyond each bound."""
    steps = (f"{price_text(tier.price)} beyond {tier.above:,} GPU-hours" for tier in tiers)
    return "; ".join((price_text(base), *steps))


def _priced(card: RateCard | None) -> list[tuple[str, list[str] | None]]:
    return [(slug, _texts(price)) for slug, price in read.prices_of(card).items()] if card else []


def _phase(card: RateCard, in_force: set[int], now: datetime) -> tuple[str, str]:
    """(words, class of the tag)."""
    if card.state != RateCard.State.ACTIVE:
        is_waiting = card.state == RateCard.State.PROPOSED
        return card.get_state_display().lower(), "pending" if is_waiting else ""
    if card.pk in in_force:
        return "in force", "good"
    return ("scheduled", "busy") if card.valid_from and card.valid_from > now else ("past", "")


def _next_hour(now: datetime) -> datetime:
    return now.replace(minute=0, second=0) + timedelta(hours=1)
