"""Spend rules of budgets, who broke the glass, and what they do to the queue now."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q

from budgets import spending
from budgets.models.access import User, person
from budgets.models.base import FrozenFields
from budgets.models.budget import Budget

LONGEST_GRACE_MINUTES = 7 * 24 * 60


class SpendRule(FrozenFields):
    """A cap of one budget, and what happens when it is reached.

    ``reached_window`` and ``reached_at`` are what is remembered from look to look: the start of
    the window in which it was reached, and when that was first seen.
    """

    Unit = spending.Unit
    Window = spending.Window
    Counts = spending.Counts
    Action = spending.Action

    frozen_fields = ("budget", "unit", "currency", "window", "counts", "is_platform")

    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="spend_rules")
    unit = models.CharField(max_length=9, choices=Unit.choices)
    # GPU-hours, or money in ``currency``; that of the rate cards when the rule was made.
    amount = models.DecimalField(max_digits=18, decimal_places=2)
    currency = models.CharField(max_length=3, blank=True)
    window = models.CharField(max_length=5, choices=Window.choices, default=Window.MONTH)
    grant_start = models.DateTimeField(null=True, blank=True)
    grant_end = models.DateTimeField(null=True, blank=True)
    counts = models.CharField(max_length=11, choices=Counts.choices, default=Counts.ABOVE_FLOOR)
    action = models.CharField(max_length=14, choices=Action.choices, default=Action.WARN)
    grace_minutes = models.PositiveIntegerField(
        default=0, validators=[MaxValueValidator(LONGEST_GRACE_MINUTES)]
    )
    warn_at_percent = models.PositiveSmallIntegerField(
        default=80, validators=[MinValueValidator(1), MaxValueValidator(100)]
    )
    # Made by finance or an admin: owners see it and cannot change it.
    is_platform = models.BooleanField(default=False)
    reached_window = models.DateTimeField(null=True, blank=True)
    reached_at = models.DateTimeField(null=True, blank=True)
    created_by = person()
    created_at = models.DateTimeField(auto_now_add=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["budget", "pk"]
        constraints = [
            models.CheckConstraint(name="spend_rule_above_zero", condition=Q(amount__gt=0)),
            models.CheckConstraint(
                name="spend_rule_grant_begins",
                condition=(
                    Q(window="grant", grant_start__isnull=False)
                    | (~Q(window="grant") & Q(grant_start__isnull=True, grant_end__isnull=True))
                ),
            ),
            models.CheckConstraint(
                name="spend_rule_grant_ends_later",
                condition=Q(grant_end__isnull=True) | Q(grant_end__gt=F("grant_start")),
            ),
            models.CheckConstraint(
                name="spend_rule_grace_of_draining",
                condition=Q(action="hold_and_drain") | Q(grace_minutes=0),
            ),
        ]
        indexes = [
            models.Index(
                fields=["budget"], name="spend_rule_in_force", condition=Q(removed_at=None)
            )
        ]

    @property
    def as_cap(self) -> spending.Cap:
        """The rule in the words of the pure core."""
        return spending.Cap(
            unit=spending.Unit(self.unit),
            amount=Fraction(self.amount),
            counts=spending.Counts(self.counts),
            action=spending.Action(self.action),
            grace=timedelta(minutes=self.grace_minutes),
        )

    @property
    def unit_words(self) -> str:
        """``EUR`` or ``GPU-hours``."""
        return self.currency if self.unit == SpendRule.Unit.MONEY else "GPU-hours"

    def __str__(self) -> str:
        window = "in the whole grant" if self.window == "grant" else f"a {self.window}"
        what = "" if self.counts == SpendRule.Counts.EVERYTHING else " of burst"
        return f"{self.amount.normalize():,f} {self.unit_words}{what} {window}"


class BreakGlass(models.Model):
    """Somebody, by name and with a reason, lets a reached rule do nothing until an instant."""

    rule = models.ForeignKey(SpendRule, on_delete=models.PROTECT, related_name="break_glass")
    person = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    reason = models.CharField(max_length=500)
    since = models.DateTimeField()
    until = models.DateTimeField()

    class Meta:
        ordering = ["-since", "-pk"]
        constraints = [
            models.CheckConstraint(
                name="break_glass_ends_later", condition=Q(until__gte=F("since"))
            )
        ]


class SpendEffect(models.Model):
    """What the rules of a budget do to its queue now; no row: nothing.

    Kept apart from ``Budget.stop_policy``, which is what a person asked for: neither overwrites
    the other, and the stronger is applied (:func:`budgets.plan.strongest_stop`).
    """

    budget = models.OneToOneField(Budget, on_delete=models.PROTECT, related_name="spend_effect")
    stop_policy = models.CharField(
        max_length=16, choices=Budget.StopPolicy.choices, default=Budget.StopPolicy.NONE
    )
    floor_only = models.BooleanField(default=False)
    # In words, such as "500 EUR beyond the floor a month is reached".
    reason = models.CharField(max_length=300)
    since = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="spend_effect_does_something",
                condition=~Q(stop_policy="None") | Q(floor_only=True),
            )
        ]
