"""Rate cards for finance: list, propose, what would change, activate from an hour on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect

from budgets import selectors
from budgets.models import Account, RateCard
from budgets.selectors import billing as read
from portal import billing as actions
from portal.web.forms import PortalForm, ReasonForm, TimeField
from portal.web.htmx import render
from portal.web.numbers import money_text, price_text
from portal.web.pages import page

PRICES = ("committed", "burst", "lending_credit")
TRIED_WORKSPACES = 50


@page()
def rates(request: HttpRequest) -> HttpResponseBase:
    """Every card that the reader may see, those in force first."""
    user: Any = request.user
    now = selectors.utc_now()
    cards = list(read.visible_rate_cards(user))
    in_force = read.cards_in_force(cards, now)
    current = in_force.get(None)
    keys = {row.pk for row in in_force.values()}
    context = {
        "cards": [{"card": row, "phase": _phase(row, keys, now)} for row in cards],
        "prices": _priced(current),
        "current": current,
        "may_write": _may_write(user),
    }
    return render(request, "billing/rates.html", context)


class PriceWidget(forms.TextInput):
    """A number as text: a browser's number field would turn it into a float."""

    def __init__(self) -> None:
        super().__init__(attrs={"inputmode": "decimal", "autocomplete": "off", "size": "10"})


class CardForm(PortalForm):
    """A new card: a row of prices for every flavor; an empty row is no price."""

    name = forms.CharField(label="Name", max_length=120)
    currency = forms.CharField(label="Currency", max_length=3, min_length=3)
    account = forms.ModelChoiceField(
        Account.objects.none(),
        to_field_name="slug",
        required=False,
        label="For",
        empty_label="everybody",
    )
    floor_hours = forms.ChoiceField(
        label="A month of floor has",
        choices=[("actual", "the hours of the month"), ("fixed_730", "730 hours, always")],
    )
    reason = forms.CharField(label="Reason", max_length=500, required=False)

    def __init__(self, *args: Any, accounts: Any, flavors: list[Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.part("account").queryset = accounts
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
            found.append(actions.PriceDraft(flavor.slug, committed, burst, credit, is_dynamic))
        return found


@page("GET", "POST")
def rate_propose(request: HttpRequest) -> HttpResponseBase:
    """A new card, filled with the prices of the one in force."""
    user = _writer(request)
    flavors = list(selectors.visible_flavors(user))
    current = read.card_in_force(None, selectors.utc_now())
    form = CardForm(
        request.POST or None,
        accounts=selectors.visible_accounts(user),
        flavors=flavors,
        initial=_initial(current),
    )
    if request.method == "POST" and form.is_valid():
        typed = form.cleaned_data
        terms = {name: typed[name] for name in ("name", "account", "floor_hours", "reason")}
        drafts = form.drafts()
        card = form.carry_out(
            lambda: actions.propose_rate_card(
                user, currency=typed["currency"].upper(), prices=drafts, **terms
            )
        )
        if card is not None:
            messages.success(request, f"Card {card} is proposed; it holds once it is activated.")
            return redirect("rate_card", key=card.pk)
    context = {"form": form}
    return render(request, "billing/rate_propose.html", context, status=422 if form.errors else 200)


class ActivateForm(ReasonForm):
    """From when on a card holds."""

    valid_from = TimeField(
        label="From",
        required=True,
        help_text="A whole UTC hour of a month that is not closed.",
    )


@page("GET", "POST")
def rate_card(request: HttpRequest, key: int) -> HttpResponseBase:
    """One card: its prices, what it changes, what last month would have cost, its decision."""
    user: Any = request.user
    card = read.visible_rate_cards(user).get(pk=key)
    now = selectors.utc_now()
    deed = request.POST.get("deed")
    form = ActivateForm(
        request.POST if deed == "activate" else None, initial={"valid_from": _next_hour(now)}
    )
    withdrawal = ReasonForm(request.POST if deed == "withdraw" else None, prefix="withdraw")
    if request.method == "POST":
        _writer(request)
        if deed not in ("activate", "withdraw"):
            raise Http404
        done = _decide(user, card, form if deed == "activate" else withdrawal)
        if done is not None:
            messages.success(request, f"Card {card} is {done.get_state_display().lower()}.")
            return redirect("rates")
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
        "may_decide": is_proposed and _may_write(user),
        "trial": _trial(user, card, now) if is_proposed and _may_write(user) else None,
    }
    status = 422 if form.errors or withdrawal.errors else 200
    return render(request, "billing/rate_card.html", context, status=status)


def _decide(user: Any, card: RateCard, form: PortalForm) -> RateCard | None:
    """Activate or withdraw, by the form that was sent; None when it was rejected."""
    if not form.is_valid():
        return None
    typed = form.cleaned_data
    if "valid_from" in typed:
        hour = typed["valid_from"].astimezone(UTC)
        return form.carry_out(
            lambda: actions.activate_rate_card(
                user, card=card, valid_from=hour, reason=typed["reason"]
            )
        )
    return form.carry_out(
        lambda: actions.withdraw_rate_card(user, card=card, reason=typed["reason"])
    )


def _trial(user: Any, card: RateCard, now: datetime) -> dict[str, Any] | None:
    """What the last whole month would have cost by this card, beside what it cost."""
    last = read.month_at(read.month_at(now).start - timedelta(seconds=1))
    workspaces = list(selectors.visible_workspaces(user, include_archived=True))
    if card.account_id is not None:
        workspaces = [row for row in workspaces if row.account_id == card.account_id]
    before = read.costs(workspaces, last.start, last.end)
    after = read.costs(workspaces, last.start, last.end, trial=card)
    rows: list[tuple[Any, tuple[Decimal, ...]]] = []
    for workspace in workspaces:
        had, has = before[workspace.pk].payable, after[workspace.pk].payable
        old, new = (had.amount if had else Decimal(0)), (has.amount if has else Decimal(0))
        if old or new:
            rows.append((workspace, (old, new, new - old)))
    rows.sort(key=lambda row: -abs(row[1][2]))
    if not rows:
        return None

    def texts(amounts: Iterable[Decimal]) -> list[str]:
        return [money_text(amount, card.currency) for amount in amounts]

    def added(part: list[tuple[Any, tuple[Decimal, ...]]]) -> list[str]:
        return texts(sum((row[1][at] for row in part), Decimal(0)) for at in range(3))

    return {
        "month": last.name,
        "rows": [(workspace, texts(amounts)) for workspace, amounts in rows[:TRIED_WORKSPACES]],
        "rest": added(rows[TRIED_WORKSPACES:]) if len(rows) > TRIED_WORKSPACES else None,
        "rest_count": len(rows) - TRIED_WORKSPACES,
        "totals": added(rows),
    }


def _initial(card: RateCard | None) -> dict[str, Any]:
    if card is None:
        return {"currency": "EUR"}
    found: dict[str, Any] = {"currency": card.currency, "floor_hours": card.floor_hours}
    for slug, price in read.prices_of(card).items():
        for name in PRICES:
            found[f"{slug}.{name}"] = price_text(getattr(price, name))
        found[f"{slug}.is_dynamic"] = price.is_dynamic
    return found


def _texts(price: Any) -> list[str] | None:
    if price is None:
        return None
    burst = price_text(price.burst)
    return [
        price_text(price.committed),
        f"time series, else {burst}" if price.is_dynamic else burst,
        price_text(price.lending_credit),
    ]


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


def _may_write(user: Any) -> bool:
    roles = selectors.roles_of(user)
    return roles.is_admin or roles.is_finance


def _writer(request: HttpRequest) -> Any:
    if not _may_write(request.user):
        raise PermissionDenied("Only finance or a platform admin can do this.")
    return request.user
