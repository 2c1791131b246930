"""Spend rules as the API takes and gives them."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Any

from rest_framework import serializers

from budgets.models import SpendRule
from budgets.selectors.spending import CapState
from budgets.spending import new_jobs_words, running_jobs_words
from portal.api.serializers.base import InstantField, Strict

AMOUNT: dict[str, Any] = {"max_digits": 18, "decimal_places": 2}
MOST_MINUTES = 7 * 24 * 60


class RuleInput(Strict):
    """A new rule; money is in the currency of the rate cards."""

    unit = serializers.ChoiceField(SpendRule.Unit.choices)
    amount = serializers.DecimalField(**AMOUNT, min_value=Decimal("0.01"))
    window = serializers.ChoiceField(SpendRule.Window.choices, default="month")
    counts = serializers.ChoiceField(SpendRule.Counts.choices, default="above_floor")
    action = serializers.ChoiceField(SpendRule.Action.choices, default="warn")
    grace_minutes = serializers.IntegerField(min_value=0, max_value=MOST_MINUTES, default=0)
    warn_at_percent = serializers.IntegerField(min_value=1, max_value=100, default=80)
    grant_start = InstantField(allow_null=True, default=None)
    grant_end = InstantField(allow_null=True, default=None)
    reason = serializers.CharField(max_length=500)


class RuleChange(Strict):
    """What changes; the rest stays."""

    amount = serializers.DecimalField(**AMOUNT, min_value=Decimal("0.01"), required=False)
    action = serializers.ChoiceField(SpendRule.Action.choices, required=False)
    grace_minutes = serializers.IntegerField(min_value=0, max_value=MOST_MINUTES, required=False)
    warn_at_percent = serializers.IntegerField(min_value=1, max_value=100, required=False)
    grant_end = InstantField(allow_null=True, required=False)
    reason = serializers.CharField(max_length=500)


class GlassInput(Strict):
    """Until when a rule does nothing; null lets it act again."""

    until = InstantField(allow_null=True)
    reason = serializers.CharField(max_length=500)


class GlassSerializer(serializers.Serializer[Any]):
    """Who broke the glass."""

    person = serializers.CharField(source="person.username")
    reason = serializers.CharField()
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()


class CapSerializer(serializers.Serializer[CapState]):
    """One rule with its state of this second."""

    id = serializers.IntegerField(source="rule.pk")
    unit = serializers.CharField(source="rule.unit")
    amount = serializers.DecimalField(**AMOUNT, source="rule.amount")
    currency = serializers.CharField(source="rule.currency")
    window = serializers.CharField(source="rule.window")
    counts = serializers.CharField(source="rule.counts")
    action = serializers.CharField(source="rule.action")
    grace_minutes = serializers.IntegerField(source="rule.grace_minutes")
    warn_at_percent = serializers.IntegerField(source="rule.warn_at_percent")
    is_platform = serializers.BooleanField(source="rule.is_platform")
    window_start = serializers.DateTimeField(source="window.start")
    window_end = serializers.DateTimeField(source="window.end")
    spent = serializers.SerializerMethodField(help_text="Rounded; rules compare the exact figure.")
    spent_per_hour = serializers.SerializerMethodField()
    unpriced = serializers.ListField(child=serializers.CharField())
    exhausted_at = serializers.DateTimeField(allow_null=True)
    reached_at = serializers.DateTimeField(source="verdict.reached_at", allow_null=True)
    stops_running_jobs_at = serializers.DateTimeField(source="verdict.drains_at", allow_null=True)
    new_jobs = serializers.SerializerMethodField(help_text="What they meet when it is reached.")
    running_jobs = serializers.SerializerMethodField()
    suspended = GlassSerializer(source="glass", allow_null=True)

    def get_spent(self, state: CapState) -> str:
        return _shown(state.spent)

    def get_spent_per_hour(self, state: CapState) -> str:
        return _shown(state.per_hour)

    def get_new_jobs(self, state: CapState) -> str:
        return new_jobs_words(state.rule.as_cap)

    def get_running_jobs(self, state: CapState) -> str:
        return running_jobs_words(state.rule.as_cap)


def _shown(amount: Fraction) -> str:
    exact = Decimal(amount.numerator) / Decimal(amount.denominator)
    return str(exact.quantize(Decimal("0.01"), rounding=ROUND_HALF_EVEN))
