"""Prices and billing periods.

Prices are insert-only and a closed period changes no more: the services say so in words,
triggers of the database hold it.

Source: spec money, sections 1.5, 1.7 and 3.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from django.db import models
from django.db.models import F, Q

from budgets.charging import FloorHours
from budgets.models.access import person
from budgets.models.approvals import Approval, approved
from budgets.models.base import FrozenFields, InsertOnly, optional
from budgets.models.fleet import Account, Flavor

INVOICE_DETAILS: Mapping[str, str] = {
    "invoice_address": "Invoice address",
    "tax_number": "Tax number",
    "purchase_order": "Purchase order",
    "cost_centre": "Cost centre",
}
"""Field of the terms → its name for people, in the order of a statement."""


class BillingTerms(models.Model):
    """How an account is billed; an account without a row is billed in UTC months."""

    account = models.OneToOneField(Account, on_delete=models.PROTECT, related_name="billing_terms")
    zone = models.CharField(max_length=64, default="UTC")
    # Empty: the currency of the rate cards.
    currency = models.CharField(max_length=3, blank=True)
    # Nothing of the account before it changes any more.
    closed_until = models.DateTimeField(null=True, blank=True)
    # What its accountants ask for on a statement; several lines.
    invoice_address = models.TextField(blank=True, db_default="", default="")
    tax_number = models.CharField(max_length=40, blank=True, db_default="", default="")
    purchase_order = models.CharField(max_length=60, blank=True, db_default="", default="")
    cost_centre = models.CharField(max_length=60, blank=True, db_default="", default="")

    @property
    def billed_to(self) -> dict[str, str]:
        """What of that is known, as a statement keeps it."""
        told = {name: getattr(self, name) for name in INVOICE_DETAILS}
        return {name: text for name, text in told.items() if text}


class BillingPeriod(models.Model):
    """One month of one zone: local midnight to local midnight, in UTC."""

    name = models.CharField(max_length=7)
    zone = models.CharField(max_length=64, default="UTC")
    start = models.DateTimeField()
    end = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_by = person()
    # Place in the chain of closed periods, and the digest of its last block.
    close_number = models.PositiveIntegerField(null=True, blank=True, unique=True)
    head = models.CharField(max_length=64, blank=True)
    # Of the number and the head, by a key outside of the database; empty where none is set.
    signature = models.CharField(max_length=96, blank=True, default="")

    class Meta:
        ordering = ["-start", "zone"]
        constraints = [
            models.UniqueConstraint(fields=["name", "zone"], name="billing_period_once"),
            models.CheckConstraint(
                name="billing_period_not_empty", condition=Q(end__gt=F("start"))
            ),
            # One name for each month: digits of other scripts are digits to Python, too.
            models.CheckConstraint(
                name="billing_period_named", condition=Q(name__regex="^[0-9]{4}-[0-9]{2}$")
            ),
            models.CheckConstraint(
                name="billing_period_closed_whole",
                condition=Q(closed_at__isnull=True, close_number__isnull=True, head="")
                | (Q(closed_at__isnull=False, close_number__isnull=False) & ~Q(head="")),
            ),
        ]

    def __str__(self) -> str:
        return self.name if self.zone == "UTC" else f"{self.name} ({self.zone})"


class RateCard(FrozenFields):
    """A whole price list, for everybody or for one account; from ``valid_from`` on when active.

    Of two that begin in the same hour the one activated last is in force.
    """

    class State(models.TextChoices):
        PROPOSED = "proposed", "Proposed"
        ACTIVE = "active", "Active"
        WITHDRAWN = "withdrawn", "Withdrawn"

    frozen_fields = (
        "account",
        "name",
        "currency",
        "floor_hours",
        "preemption_share",
        "preemption_minutes",
        "rounding",
        "author",
    )

    account = optional(Account, related_name="rate_cards")
    name = models.CharField(max_length=120)
    currency = models.CharField(max_length=3)
    floor_hours = models.CharField(
        max_length=12,
        choices=[(row.value, row.value) for row in FloorHours],
        default=FloorHours.ACTUAL.value,
    )
    # Of the burst price, for what was used up to a preemption so soon after the beginning.
    preemption_share = models.DecimalField(max_digits=9, decimal_places=8, default=Decimal(0))
    preemption_minutes = models.PositiveSmallIntegerField(default=0)
    rounding = models.CharField(max_length=12, default="half_even", editable=False)
    reason = models.CharField(max_length=500, blank=True)
    state = models.CharField(max_length=12, choices=State.choices, default=State.PROPOSED)
    valid_from = models.DateTimeField(null=True, blank=True)
    author = person()
    decided_by = person()
    decided_at = models.DateTimeField(null=True, blank=True)
    approval = optional(Approval)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                name="rate_card_active_is_dated",
                condition=~Q(state="active") | Q(valid_from__isnull=False),
            ),
            models.CheckConstraint(
                name="rate_card_active_is_approved", condition=approved(state="active")
            ),
            models.CheckConstraint(
                name="rate_card_preemption_share",
                condition=Q(preemption_share__gte=0, preemption_share__lte=1),
            ),
        ]

    def __str__(self) -> str:
        return f"#{self.pk} {self.name}"


class RatePrice(InsertOnly):
    """Prices of one flavor on one card, per GPU-hour, eight places."""

    card = models.ForeignKey(RateCard, on_delete=models.PROTECT, related_name="prices")
    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="+")
    committed = models.DecimalField(max_digits=18, decimal_places=8)
    burst = models.DecimalField(max_digits=18, decimal_places=8)
    lending_credit = models.DecimalField(max_digits=18, decimal_places=8)
    # The burst price follows the time series of the flavor, where that has one.
    is_dynamic = models.BooleanField(default=False)

    class Meta:
        ordering = ["card", "flavor__position", "flavor__slug"]
        constraints = [
            models.UniqueConstraint(fields=["card", "flavor"], name="rate_price_once"),
            models.CheckConstraint(
                name="rate_price_not_negative",
                condition=Q(committed__gte=0, burst__gte=0, lending_credit__gte=0),
            ),
            models.CheckConstraint(
                name="rate_price_credit_share", condition=Q(lending_credit__lte=1)
            ),
        ]


class RateTier(InsertOnly):
    """Beyond ``above`` GPU-hours of an account in a month a class costs another price."""

    class Class(models.TextChoices):
        COMMITTED = "committed"
        BURST = "burst"

    price_row = models.ForeignKey(RatePrice, on_delete=models.PROTECT, related_name="tiers")
    of_class = models.CharField(max_length=10, choices=Class.choices)
    above = models.PositiveBigIntegerField()
    price = models.DecimalField(max_digits=18, decimal_places=8)

    class Meta:
        ordering = ["price_row", "of_class", "above"]
        constraints = [
            models.UniqueConstraint(
                fields=["price_row", "of_class", "above"], name="rate_tier_once"
            ),
            models.CheckConstraint(name="rate_tier_above_zero", condition=Q(above__gt=0)),
            models.CheckConstraint(name="rate_tier_not_negative", condition=Q(price__gte=0)),
        ]


class Judged(InsertOnly):
    """A recorded price: so near to what two people agreed on that one records it, or approved.

    Attributes:
        off_by: Percent off the price that two people agreed on last; None: not to be compared.
        tolerance: Percent that one person alone may be off, at the time.
    """

    off_by = models.DecimalField(max_digits=12, decimal_places=4, null=True, blank=True)
    tolerance = models.DecimalField(max_digits=5, decimal_places=2)
    approval = optional(Approval)

    class Meta:
        abstract = True


def near_or_approved(name: str) -> models.CheckConstraint:
    """The rule of a table of recorded prices."""
    return models.CheckConstraint(
        name=name,
        condition=Q(approval__isnull=False) | Q(off_by__isnull=False, off_by__lte=F("tolerance")),
    )


class SpotPrice(Judged):
    """Burst price of a dynamic flavor from a whole UTC hour on; the newest row of an hour wins."""

    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="spot_prices")
    start = models.DateTimeField()
    price = models.DecimalField(max_digits=18, decimal_places=8)
    currency = models.CharField(max_length=3)
    recorded_by = person()
    recorded_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["flavor", "start", "pk"]
        constraints = [
            models.CheckConstraint(name="spot_price_not_negative", condition=Q(price__gte=0)),
            near_or_approved("spot_price_near_or_approved"),
        ]
        indexes = [models.Index(fields=["flavor", "start"], name="spot_price_by_time")]


class ExchangeRate(Judged):
    """1 ``base`` was worth ``rate`` ``quote`` on a day; the newest row of a day wins."""

    base = models.CharField(max_length=3)
    quote = models.CharField(max_length=3)
    day = models.DateField()
    rate = models.DecimalField(max_digits=18, decimal_places=8)
    recorded_by = person()
    recorded_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-day", "base", "quote", "-pk"]
        constraints = [
            models.CheckConstraint(name="exchange_rate_above_zero", condition=Q(rate__gt=0)),
            near_or_approved("exchange_rate_near_or_approved"),
        ]
        indexes = [models.Index(fields=["base", "quote", "day"], name="exchange_rate_by_day")]
