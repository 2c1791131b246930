"""The form of a new rate card: a row of prices for every flavor, volume steps, credits."""

from __future__ import annotations

from typing import Any

from django import forms

from budgets.charging import RowKind
from budgets.models import Account, RateCard
from budgets.selectors import billing as read
from budgets.services import billing as actions
from portal.web.forms import ChoosingForm, CurrencyField, choice_of, read_cells
from portal.web.numbers import price_text

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
