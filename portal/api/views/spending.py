"""Spend rules of a workspace: caps with their state, changing them, breaking the glass."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import selectors
from budgets.models import SpendRule
from budgets.selectors import spending as seen
from budgets.services import spending
from portal.api.serializers import spending as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import View, actor, checked


def _answer(rule: SpendRule, code: int = status.HTTP_200_OK) -> Response:
    """The rule as it stands now."""
    state = seen.cap_states(seen.active_rules().filter(pk=rule.pk))[0]
    return Response(shapes.CapSerializer(state).data, status=code)


class SpendRulesView(View):
    """Rules in force, ten at most."""

    @extend_schema(responses=shapes.CapSerializer(many=True))
    def get(self, request: Request, namespace: str) -> Response:
        workspace = selectors.workspace_for(actor(request), namespace)
        states = seen.cap_states(seen.rules_of(workspace))
        return Response([shapes.CapSerializer(state).data for state in states])

    @extend_schema(request=shapes.RuleInput, responses={201: shapes.CapSerializer})
    def post(self, request: Request, namespace: str) -> Response:
        user = actor(request)
        workspace = selectors.workspace_for(user, namespace)
        given = checked(shapes.RuleInput, request)
        made = spending.create_spend_rule(
            user, workspace=workspace, draft=shapes.draft_of(given), reason=given["reason"]
        )
        return _answer(made, status.HTTP_201_CREATED)


class SpendRulePart(View):
    """One visible rule."""

    def rule(self, request: Request, namespace: str, pk: int) -> SpendRule:
        return seen.rule_for(selectors.roles_of(actor(request)), namespace, pk)


class SpendRuleView(SpendRulePart):
    """One rule in force."""

    @extend_schema(responses=shapes.CapSerializer)
    def get(self, request: Request, namespace: str, pk: int) -> Response:
        return _answer(self.rule(request, namespace, pk))

    @extend_schema(request=shapes.RuleChange, responses=shapes.CapSerializer)
    def patch(self, request: Request, namespace: str, pk: int) -> Response:
        """A raise lets go at once what the cap held back."""
        rule = self.rule(request, namespace, pk)
        given = checked(shapes.RuleChange, request)
        return _answer(spending.change_spend_rule(actor(request), rule=rule, **given))


class RemoveSpendRuleView(SpendRulePart):
    """Ends a rule."""

    @extend_schema(request=ReasonInput, responses={204: None})
    def post(self, request: Request, namespace: str, pk: int) -> Response:
        rule = self.rule(request, namespace, pk)
        reason = checked(ReasonInput, request)["reason"]
        spending.remove_spend_rule(actor(request), rule=rule, reason=reason)
        return Response(status=status.HTTP_204_NO_CONTENT)


class BreakGlassView(SpendRulePart):
    """Suspends a rule for a while, by name, or lets a suspended one act again."""

    @extend_schema(request=shapes.GlassInput, responses=shapes.CapSerializer)
    def post(self, request: Request, namespace: str, pk: int) -> Response:
        rule, user = self.rule(request, namespace, pk), actor(request)
        given = checked(shapes.GlassInput, request)
        if given["until"] is None:
            spending.mend_glass(user, rule=rule, reason=given["reason"])
        else:
            spending.break_glass(user, rule=rule, **given)
        return _answer(rule)
