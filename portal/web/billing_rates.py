"""Rate cards for finance: list, propose, what would change, activate from an hour on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from budgets import selectors
from budgets.charging import RowKind, Tier
from budgets.models import Account, RateCard, User
from budgets.selectors import billing as read
from budgets.selectors.approvals import open_proposal
from budgets.services import billing as actions
from portal.web.approvals import PROPOSED
from portal.web.forms import (
    ChoosingForm,
    CurrencyField,
    ReasonForm,
    TimeField,
    choice_of,
    read_cells,
)
from portal.web.htmx import render
from portal.web.numbers import money_text, price_text
from portal.web.pages import Deed, form_page, may_bill, page, pressed, require_finance, typed

TRIED_WORKSPACES = 50
PRICES = ("committed", "burst", "lending_credit")
CLASS_NAMES = {RowKind.FLOOR: "committed", RowKind.BURST: "burst"}


class PriceWidget(forms.TextInput):
    """A number as text: a browser's number field would turn it into a float."""

    def __init__(self) -> None:
        super().__init__(attrs={"inputmode": "decimal", "autocomplete": "off", "size": "10"})


class CardForm(ChoosingForm):
    """A new card: a row of prices for every flavor; an empty row is no price."""

    name = forms.CharField(label="Name", max_length=120)
    currency = CurrencyField(min_length=3)
    account = choice_of(Account, "For", required=False, empty_label="everybody")
    floor_hours = forms.ChoiceField(
        label="A month of committed GPUs has",
        choices=[("actual", "the hours of the month"), ("fixed_730", "730 hours, always")],
    )
    preemption_share = forms.CharField(
        label="Credit for preempted burst, 0 to 1",
        required=False,
        max_length=20,
        widget=PriceWidget(),
        help_text="Share of the burst price; the platform pays it.",
    )
    preemption_minutes = forms.IntegerField(
        label="Credited if preempted within, minutes", required=False, min_value=0, max_value=1440
    )
    reason = forms.CharField(label="Reason", max_length=500, required=False)
    steps = forms.CharField(
        label="Volume steps",
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 4, "class": "mono"}),
        help_text=(
            "One on each line: h100,burst,1000,2.50. Beyond 1,000 GPU-hours of burst of an account "
            "in a month a GPU-hour costs 2.50."
        ),
    )

    def __init__(self, *args: Any, flavors: list[Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.flavors = flavors
        for flavor in flavors:
            for name in PRICES:
                self.fields[f"{flavor.slug}.{name}"] = forms.CharField(
                    label=f"{flavor.name}: {name.replace('_', ' ')}",
                    required=False,
                    max_length=20,
                    widget=PriceWidget(),
                )
            self.fields[f"{flavor.slug}.is_dynamic"] = forms.BooleanField(
                label=f"{flavor.name}: burst follows the time series", required=False
            )
        # Cleaned last: a step belongs to a row of prices.
        self.fields["steps"] = self.fields.pop("steps")

    def clean(self) -> dict[str, Any]:
        """What the service asks for; beside what has no shape, what is wrong about the prices."""
        typed: dict[str, Any] = super().clean() or self.cleaned_data
        drafts = self.drafts()
        if self.errors:
            self.take(actions.price_faults(drafts))
        names = ("name", "currency", "account", "floor_hours", "reason")
        return {
            **{name: typed.get(name) for name in names},
            "preemption_share": typed.get("preemption_share") or "0",
            "preemption_minutes": typed.get("preemption_minutes") or 0,
            "prices": drafts,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row per flavor for the template."""
        return [
            {
                "flavor": flavor,
                "fields": [self[f"{flavor.slug}.{name}"] for name in (*PRICES, "is_dynamic")],
            }
            for flavor in self.flavors
        ]

    def drafts(self) -> list[actions.PriceDraft]:
        """The rows with something in them; their places are those of the faults."""
        found: list[actions.PriceDraft] = []
        self.fault_fields = {}
        for flavor in self.flavors:
            typed = [self.cleaned_data.get(f"{flavor.slug}.{name}", "") for name in PRICES]
            if not any(typed):
                continue
            for name in PRICES:
                self.fault_fields[f"prices.{len(found)}.{name}"] = f"{flavor.slug}.{name}"
            committed, burst, credit = (value or "0" for value in typed)
            is_dynamic = self.cleaned_data.get(f"{flavor.slug}.is_dynamic", False)
            tiers = [
                tier for slug, tier in self.cleaned_data.get("steps", ()) if slug == flavor.slug
            ]
            found.append(
                actions.PriceDraft(flavor.slug, committed, burst, credit, is_dynamic, tiers)
            )
        return found

    def clean_steps(self) -> list[tuple[str, actions.TierDraft]]:
        """(flavor, step) of each line; what is right about them the service says."""
        priced = {
            flavor.slug
            for flavor in self.flavors
            if any(self.cleaned_data.get(f"{flavor.slug}.{name}") for name in PRICES)
        }

        def step(cells: list[str]) -> tuple[str, actions.TierDraft]:
            slug, *rest = cells
            if len(rest) != 3:
                raise ValueError(" is not of the form h100,burst,1000,2.50.")
            if slug not in priced:
                raise ValueError(f": {slug!r} has no price above; name one that has.")
            return slug, actions.TierDraft(*rest)

        return read_cells(self.cleaned_data["steps"], step)

    def field_of(self, path: str) -> str:
        """Every fault of a step stands at the steps."""
        return "steps" if ".tiers." in path else super().field_of(path)


def initial_of(card: RateCard | None) -> dict[str, Any]:
    """What the form of a new card begins with: the prices of the one in force."""
    if card is None:
        return {"currency": "EUR"}
    found: dict[str, Any] = {
        "currency": card.currency,
        "floor_hours": card.floor_hours,
        "preemption_share": price_text(card.preemption_share),
        "preemption_minutes": card.preemption_minutes,
    }
    for slug, price in read.prices_of(card).items():
        for name in PRICES:
            found[f"{slug}.{name}"] = price_text(getattr(price, name))
        found[f"{slug}.is_dynamic"] = price.is_dynamic
    found["steps"] = "\n".join(
        f"{slug},{CLASS_NAMES[kind]},{tier.above},{price_text(tier.price)}"
        for slug, price in read.prices_of(card).items()
        for kind, tiers in price.tiers.items()
        for tier in tiers
    )
    return found


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
        user=user,
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
