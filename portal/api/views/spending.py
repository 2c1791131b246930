"""Spend rules of a workspace: caps with their state, changing them, breaking the glass."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from budgets import selectors
from budgets.models import SpendRule, User, Workspace
from budgets.selectors import spending as seen
from budgets.services import spending
from budgets.services.spending import RuleDraft
from portal.api.serializers import spending as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import DONE, MADE, View, answers, deed


def _state(rule: SpendRule) -> seen.CapState:
    """The rule as it stands now."""
    return seen.cap_states(seen.active_rules().filter(pk=rule.pk))[0]


class SpendRulesView(View):
    """Rules in force, ten at most."""

    def found(self, user: User, namespace: str) -> dict[str, Any]:
        return {"workspace": selectors.workspace_for(user, namespace)}

    @answers(shapes.CapSerializer, many=True)
    def get(self, user: User, workspace: Workspace) -> Any:
        return seen.cap_states(seen.rules_of(workspace))

    @answers(shapes.CapSerializer, takes=shapes.RuleInput, code=MADE)
    def post(self, user: User, workspace: Workspace, reason: str, **given: Any) -> Any:
        draft = RuleDraft(**given)
        return _state(
            spending.create_spend_rule(user, workspace=workspace, draft=draft, reason=reason)
        )


class SpendRulePart(View):
    """One visible rule; a deed is answered with how it stands then."""

    def found(self, user: User, namespace: str, pk: int) -> dict[str, Any]:
        return {"rule": seen.rule_for(selectors.roles_of(user), namespace, pk)}


class SpendRuleView(SpendRulePart):
    """One rule in force."""

    @answers(shapes.CapSerializer)
    def get(self, user: User, rule: SpendRule) -> Any:
        return _state(rule)

    @answers(shapes.CapSerializer, takes=shapes.RuleChange)
    def patch(self, user: User, **given: Any) -> Any:
        """A raise lets go at once what the cap held back."""
        return _state(spending.change_spend_rule(user, **given))


class RemoveSpendRuleView(SpendRulePart):
    """Ends a rule."""

    post = deed(spending.remove_spend_rule, None, takes=ReasonInput, code=DONE)


class BreakGlassView(SpendRulePart):
    """Suspends a rule for a while, by name, or lets a suspended one act again."""

    @answers(shapes.CapSerializer, takes=shapes.GlassInput)
    def post(self, user: User, rule: SpendRule, reason: str, until: datetime | None) -> Any:
        if until is None:
            spending.mend_glass(user, rule=rule, reason=reason)
        else:
            spending.break_glass(user, rule=rule, until=until, reason=reason)
        return _state(rule)
