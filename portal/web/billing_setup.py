"""Adjustments, billing terms, exchange rates and time series: tables with a form each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from django.utils.dateparse import parse_datetime

from budgets import services as promises
from budgets.models import (
    Account,
    Adjustment,
    BillingTerms,
    ExchangeRate,
    Flavor,
    SpotPrice,
    User,
    Workspace,
)
from budgets.models.billing import INVOICE_DETAILS
from budgets.selectors import billing as read
from budgets.selectors.approvals import installation
from budgets.services import billing as actions
from budgets.units import year_fault
from portal.bounds import REASON
from portal.web.approvals import PROPOSED, Approving, DecisionForm
from portal.web.forms import (
    ChoosingForm,
    CurrencyField,
    DayField,
    PortalForm,
    ReasonField,
    choice_of,
    read_cells,
)
from portal.web.numbers import money_text, price_text
from portal.web.pages import form_page, may_bill, page, require_finance, typed
from portal.web.setup_pages import Row, Section, sections_page
from portal.web.tags import when

SHOWN = 200
_TWO_PEOPLE = (
    "A rate far from the last one that two people agreed on, or one for the past, waits for a "
    "second person."
)
_RECORDED = "It is recorded, or waits for approval, on Approvals."


class AdjustmentForm(ChoosingForm):
    """A new adjustment; somebody else approves it."""

    account = choice_of(Account, "Account")
    workspace = choice_of(Workspace, "Workspace", required=False, empty_label="the account's own")
    month = forms.CharField(
        label="Month", max_length=7, help_text="Such as 2026-10, of the account's zone."
    )
    amount = forms.CharField(
        label="Amount",
        max_length=20,
        widget=forms.TextInput(attrs={"inputmode": "decimal"}),
        help_text="In the account's currency; negative gives money back.",
    )
    reason = forms.CharField(
        label="Reason", max_length=500, help_text="It is printed on the statement."
    )


@page("GET", "POST")
def adjustments(request: HttpRequest, user: User) -> HttpResponseBase:
    """Every adjustment that the reader may see; finance proposes."""
    rows = read.visible_adjustments(user).order_by("-pk")[:SHOWN]
    may_write = may_bill(user)
    if request.method == "POST":
        require_finance(user)

    def propose(typed: dict[str, Any]) -> Any:
        terms = BillingTerms.objects.filter(account=typed["account"]).first()
        return actions.propose_adjustment(user, **typed, zone=terms.zone if terms else "UTC")

    section = Section(
        key="new",
        title="Adjustments",
        text="One person proposes an adjustment, and another approves it. An approved adjustment "
        "is on the next draft.",
        columns=("Account", "Amount", "Month", "Reason", "State"),
        numbers=("Amount",),
        rows=[
            Row(
                row.workspace.name if row.workspace else row.account.name,
                money_text(row.amount, row.currency),
                str(row.period),
                row.reason,
                f"{row.get_state_display()} ({row.decided_by or row.proposed_by or 'portal'})",
                url=reverse("adjustment", args=[row.pk]),
            )
            for row in rows
        ],
        empty="There is no adjustment yet.",
        form=AdjustmentForm if may_write else None,
        do=propose,
        button="Propose an adjustment",
        said=PROPOSED,
    )
    return sections_page(
        request,
        title="Adjustments",
        headline="Amounts that are not metered. Each has a reason, and two people agree on it.",
        sections=[section],
        crumbs=_crumbs(),
    )


@page("GET", "POST")
def adjustment(request: HttpRequest, user: User, key: int) -> HttpResponseBase:
    """One adjustment, and its decision by somebody else than its proposer."""
    row = read.visible_adjustments(user).get(pk=key)
    if request.method == "POST":
        require_finance(user)
    waits = row.state == Adjustment.State.PROPOSED
    return form_page(
        request,
        "billing/adjustment.html",
        DecisionForm(typed(request)),
        lambda given: actions.decide_adjustment(
            user,
            adjustment=row,
            is_approved=request.POST.get("decision") == "approve",
            **given,
        ),
        said=lambda done: f"It is {done.get_state_display().lower()}.",
        to=reverse("adjustments"),
        context=lambda: {
            "row": row,
            "may_decide": waits and may_bill(user),
            "approving": Approving.of(user, row.proposed_by_id),
        },
    )


class TermsForm(ChoosingForm):
    """Zone and currency of one account."""

    account = choice_of(Account, "Account")
    zone = forms.CharField(label="Months of", max_length=64, initial="UTC")
    currency = CurrencyField(
        required=False, help_text="Leave it empty to use the currency of the rate cards."
    )


class InvoiceForm(ChoosingForm):
    """What an account's accountants ask for; what is left empty is not on the statement."""

    account = choice_of(Account, "Account")
    invoice_address = forms.CharField(
        label=INVOICE_DETAILS["invoice_address"],
        max_length=500,
        required=False,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="As on a letter, at most eight lines.",
    )
    tax_number = forms.CharField(label=INVOICE_DETAILS["tax_number"], max_length=40, required=False)
    purchase_order = forms.CharField(
        label=INVOICE_DETAILS["purchase_order"], max_length=60, required=False
    )
    cost_centre = forms.CharField(
        label=INVOICE_DETAILS["cost_centre"], max_length=60, required=False
    )


class ExchangeForm(PortalForm):
    """What one currency was worth in another on a day."""

    base = CurrencyField(label="1 of")
    quote = CurrencyField(label="was worth, in")
    rate = forms.CharField(label="Rate", max_length=20)
    day = DayField(label="Day")
    reason = ReasonField(required=False, **REASON)


class ToleranceForm(PortalForm):
    """By how much one person alone may be off with a price."""

    percent = forms.CharField(
        label="Percent",
        max_length=6,
        widget=forms.TextInput(attrs={"inputmode": "decimal"}),
        help_text="0 to 100. At 0, two people have to agree on every price that differs.",
    )
    reason = ReasonField(**REASON)


class SeriesForm(ChoosingForm):
    """Points of a time series, one on each line."""

    flavor = choice_of(Flavor, "Flavor")
    prices = forms.CharField(
        label="Prices",
        max_length=500_000,
        widget=forms.Textarea(attrs={"rows": 6, "class": "mono"}),
        help_text="One on each line: 2026-10-01T00:00:00Z,1.50. Each holds until the next.",
    )
    reason = ReasonField(required=False, **REASON)

    def clean_prices(self) -> list[tuple[datetime, str]]:
        return read_cells(self.cleaned_data["prices"], _point)

    def field_of(self, path: str) -> str:
        """Every fault of a point stands at the points."""
        return "prices" if path.startswith("prices") else super().field_of(path)


def _point(cells: list[str]) -> tuple[datetime, str]:
    try:
        moment = parse_datetime(cells[0]) if len(cells) == 2 else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(" is not of the form 2026-10-01T00:00:00Z,1.50.")
    # Before it is brought to UTC, where the first and the last year may have no such time.
    if words := year_fault(moment):
        raise ValueError(f": {words}")
    return moment.astimezone(UTC), cells[1]


@page("GET", "POST")
def terms(request: HttpRequest, user: User) -> HttpResponseBase:
    """Where finance says in which months and money accounts are billed."""
    require_finance(user)
    return sections_page(
        request,
        title="Billing terms",
        headline="The months and the currency in which accounts are billed, and what their "
        "statements say.",
        sections=[
            _account_terms(user),
            _invoice_details(user, request.GET.get("account", "")),
            _exchange_rates(user),
            _time_series(user),
            _tolerance(user),
        ],
        crumbs=_crumbs(),
    )


def _account_terms(user: Any) -> Section:
    kept = BillingTerms.objects.select_related("account").order_by("account__slug")
    return Section(
        key="terms",
        title="Accounts",
        text="An account that is not listed is billed in UTC months and in the currency of the "
        "rate cards.",
        columns=("Account", "Months of", "Currency", "Closed to"),
        rows=[
            Row(
                row.account.name,
                row.zone,
                row.currency or "that of the rate cards",
                when(row.closed_until),
            )
            for row in kept
        ],
        empty="Every account is billed in UTC months.",
        form=TermsForm,
        do=lambda typed: actions.set_billing_terms(user, **typed),
        button="Set the terms of an account",
    )


def _invoice_details(user: User, chosen: str) -> Section:
    """What statements say of whom they are for; ``chosen`` is the account that is changed."""
    kept = list(BillingTerms.objects.select_related("account").order_by("account__slug"))
    known = next((row for row in kept if row.account.slug == chosen), None)
    details = {name: getattr(known, name) for name in INVOICE_DETAILS} if known else {}
    return Section(
        key="invoice",
        title="Invoice details",
        text="They are printed on statements that are drawn up from now on.",
        columns=("Account", *INVOICE_DETAILS.values()),
        rows=[
            Row(
                row.account.name,
                *(", ".join(getattr(row, name).splitlines()) for name in INVOICE_DETAILS),
                url=f"?account={row.account.slug}#id_invoice_account",
            )
            for row in kept
            if row.billed_to
        ],
        empty="No account has invoice details yet.",
        form=InvoiceForm,
        arguments={"initial": {"account": chosen, **details}},
        do=lambda typed: actions.set_invoice_details(user, **typed),
        button="Set the details of an account",
    )


def _exchange_rates(user: Any) -> Section:
    rates = ExchangeRate.objects.order_by("-day", "base", "quote", "-pk")[:SHOWN]
    return Section(
        key="exchange",
        title="Exchange rates",
        text="A statement in another currency uses the rate of the last day of its month. "
        f"{_TWO_PEOPLE}",
        columns=("Day", "Rate"),
        rows=[
            Row(str(row.day), f"1 {row.base} = {price_text(row.rate)} {row.quote}") for row in rates
        ],
        empty="No rate is recorded.",
        form=ExchangeForm,
        do=lambda typed: actions.record_exchange_rate(user, **typed),
        button="Record a rate",
        said=_RECORDED,
    )


def _time_series(user: Any) -> Section:
    points = SpotPrice.objects.select_related("flavor").order_by("-start", "flavor", "-pk")[:SHOWN]
    return Section(
        key="series",
        title="Time series",
        text="Burst prices of flavors that a card prices by a time series, each from a whole UTC "
        f"hour on. {_TWO_PEOPLE}",
        columns=("From", "Flavor", "Price per GPU-hour"),
        numbers=("Price per GPU-hour",),
        rows=[
            Row(when(row.start), row.flavor.name, f"{price_text(row.price)} {row.currency}")
            for row in points
        ],
        empty="No flavor has a time series.",
        form=SeriesForm,
        do=lambda typed: actions.record_spot_prices(
            user, **typed, currency=read.portal_currency() or "EUR"
        ),
        button="Add prices",
        said=_RECORDED,
    )


def _tolerance(user: User) -> Section:
    percent = installation().price_tolerance.normalize()
    return Section(
        key="tolerance",
        title="Tolerance",
        text=f"One person alone records a rate or a price up to {percent:f} % off what two people "
        "agreed on last. Two people agree on another tolerance.",
        form=ToleranceForm,
        do=lambda typed: promises.propose_price_tolerance(user, **typed),
        button="Propose another tolerance",
        said=PROPOSED,
        is_folded=True,
    )


def _crumbs() -> tuple[tuple[str, str], ...]:
    return (("Billing", reverse("billing")),)
