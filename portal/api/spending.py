"""Spend rules of a workspace: caps with their state, changing them, breaking the glass."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rest_framework import serializers

from budgets import selectors
from budgets.models import SpendRule, User, Workspace
from budgets.selectors import spending as seen
from budgets.selectors.spending import CapState
from budgets.services import spending
from budgets.services.spending import RuleDraft
from budgets.spending import new_jobs_words, running_jobs_words
from budgets.units import quantise
from portal.api.shapes import InstantField, ReasonInput, Strict
from portal.api.views import DONE, MADE, Noun, answers, deed
from portal.bounds import MONEY, REASON, WARN_AT_PERCENT

MOST_MINUTES = 7 * 24 * 60


class RuleInput(Strict):
    """A new rule; money is in the currency of the rate cards."""

    unit = serializers.ChoiceField(SpendRule.Unit.choices)
    amount = serializers.DecimalField(**MONEY)
    window = serializers.ChoiceField(SpendRule.Window.choices, default="month")
    counts = serializers.ChoiceField(SpendRule.Counts.choices, default="above_floor")
    action = serializers.ChoiceField(SpendRule.Action.choices, default="warn")
    grace_minutes = serializers.IntegerField(min_value=0, max_value=MOST_MINUTES, default=0)
    warn_at_percent = serializers.IntegerField(**WARN_AT_PERCENT, default=80)
    grant_start = InstantField(allow_null=True, default=None)
    grant_end = InstantField(allow_null=True, default=None)
    reason = serializers.CharField(**REASON)


class RuleChange(Strict):
    """What changes; the rest stays."""

    amount = serializers.DecimalField(**MONEY, required=False)
    action = serializers.ChoiceField(SpendRule.Action.choices, required=False)
    grace_minutes = serializers.IntegerField(min_value=0, max_value=MOST_MINUTES, required=False)
    warn_at_percent = serializers.IntegerField(**WARN_AT_PERCENT, required=False)
    grant_end = InstantField(allow_null=True, required=False)
    reason = serializers.CharField(**REASON)


class GlassInput(Strict):
    """Until when a rule does nothing; null lets it act again."""

    until = InstantField(allow_null=True)
    reason = serializers.CharField(**REASON)


class GlassSerializer(serializers.Serializer[Any]):
    """Who suspended the rule."""

    person = serializers.CharField(source="person.username")
    reason = serializers.CharField()
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()


class CapSerializer(serializers.Serializer[CapState]):
    """One rule with its state of this second."""

    id = serializers.IntegerField(source="rule.pk")
    unit = serializers.CharField(source="rule.unit")
    amount = serializers.DecimalField(max_digits=18, decimal_places=2, source="rule.amount")
    currency = serializers.CharField(source="rule.currency")
    window = serializers.CharField(source="rule.window")
    counts = serializers.CharField(source="rule.counts")
    action = serializers.CharField(source="rule.action")
    grace_minutes = serializers.IntegerField(source="rule.grace_minutes")
    warn_at_percent = serializers.IntegerField(source="rule.warn_at_percent")
    is_platform = serializers.BooleanField(source="rule.is_platform")
    window_start = serializers.DateTimeField(source="window.start")
    window_end = serializers.DateTimeField(source="window.end")
    spent = serializers.SerializerMethodField(help_text="Rounded; rules compare the exact amount.")
    spent_per_hour = serializers.SerializerMethodField()
    unpriced = serializers.ListField(child=serializers.CharField())
    exhausted_at = serializers.DateTimeField(allow_null=True)
    reached_at = serializers.DateTimeField(source="verdict.reached_at", allow_null=True)
    stops_running_jobs_at = serializers.DateTimeField(source="verdict.drains_at", allow_null=True)
    new_jobs = serializers.SerializerMethodField(
        help_text="What happens to them when it is reached."
    )
    running_jobs = serializers.SerializerMethodField()
    suspended = GlassSerializer(source="glass", allow_null=True)

    def get_spent(self, state: CapState) -> str:
        return str(quantise(state.spent, digits=2))

    def get_spent_per_hour(self, state: CapState) -> str:
        return str(quantise(state.per_hour, digits=2))

    def get_new_jobs(self, state: CapState) -> str:
        return new_jobs_words(state.rule.as_cap)

    def get_running_jobs(self, state: CapState) -> str:
        return running_jobs_words(state.rule.as_cap)


class SpendRules(Noun):
    """Rules in force, ten at most."""

    each = "One rule in force."
    shape = CapSerializer
    remove = deed(spending.remove_spend_rule, takes=ReasonInput, code=DONE, text="Ends a rule.")

    def found(self, user: User, namespace: str, pk: int | None = None) -> dict[str, Any]:
        """The workspace, or one visible rule of it."""
        if pk is None:
            return {"workspace": selectors.workspace_for(user, namespace)}
        return {"rule": seen.rule_for(selectors.roles_of(user), namespace, pk)}

    @answers(many=True)
    def list(self, user: User, workspace: Workspace) -> Any:
        return seen.cap_states(seen.rules_of(workspace))

    @answers(takes=RuleInput, code=MADE)
    def create(self, user: User, workspace: Workspace, reason: str, **given: Any) -> Any:
        draft = RuleDraft(**given)
        return _state(
            spending.create_spend_rule(user, workspace=workspace, draft=draft, reason=reason)
        )

    @answers()
    def retrieve(self, user: User, rule: SpendRule) -> Any:
        return _state(rule)

    @answers(takes=RuleChange)
    def partial_update(self, user: User, **given: Any) -> Any:
        """A raise lets go at once what the cap held back."""
        return _state(spending.change_spend_rule(user, **given))

    @answers(takes=GlassInput)
    def glass(self, user: User, rule: SpendRule, reason: str, until: datetime | None) -> Any:
        """Suspends a rule for a while, by name, or lets a suspended one act again."""
        if until is None:
            spending.mend_glass(user, rule=rule, reason=reason)
        else:
            spending.break_glass(user, rule=rule, until=until, reason=reason)
        return _state(rule)


def _state(rule: SpendRule) -> seen.CapState:
    """The rule as it stands now."""
    return seen.cap_states(seen.active_rules().filter(pk=rule.pk))[0]
