"""Alerts, the rules behind them, and the addresses that are told."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from budgets.models import Webhook
from budgets.selectors import alerts as seen
from budgets.services import alerts as alerting
from portal.api.paging import CREATED, Order, page
from portal.api.schema import PAGED, paged
from portal.api.serializers import alerts as shapes
from portal.api.views.base import View, account_named, actor, checked, workspace_named

MADE = status.HTTP_201_CREATED
RAISED = Order("id", re.compile(r"[0-9a-f-]{36}"))


class AlertsView(View):
    """Alerts about what the caller may see."""

    query = PAGED

    @extend_schema(responses=paged(shapes.AlertSerializer))
    def get(self, request: Request) -> Response:
        return page(request, seen.visible_alerts(actor(request)), shapes.AlertSerializer, RAISED)


class AlertRulesView(View):
    """Rules about what the caller may see."""

    query = PAGED

    @extend_schema(responses=paged(shapes.AlertRuleSerializer))
    def get(self, request: Request) -> Response:
        rows = seen.visible_rules(actor(request))
        return page(request, rows, shapes.AlertRuleSerializer, CREATED)

    @extend_schema(request=shapes.AlertRuleInput, responses={201: shapes.AlertRuleSerializer})
    def post(self, request: Request) -> Response:
        user = actor(request)
        given: dict[str, Any] = checked(shapes.AlertRuleInput, request)
        if "workspace" in given:
            given["workspace"] = workspace_named(user, given["workspace"])
        if "account" in given:
            given["account"] = account_named(user, given["account"])
        made = alerting.create_rule(user, **given)
        return Response(shapes.AlertRuleSerializer(made).data, status=MADE)


class AlertRuleView(View):
    """One rule."""

    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        user = actor(request)
        alerting.remove_rule(user, rule=seen.visible_rules(user).get(pk=pk))
        return Response(status=status.HTTP_204_NO_CONTENT)


class SnoozeView(View):
    """Keeps a rule quiet for a while."""

    @extend_schema(request=shapes.SnoozeInput, responses=shapes.AlertRuleSerializer)
    def post(self, request: Request, pk: int) -> Response:
        user = actor(request)
        rule = seen.visible_rules(user).get(pk=pk)
        alerting.snooze_rule(user, rule=rule, until=checked(shapes.SnoozeInput, request)["until"])
        return Response(shapes.AlertRuleSerializer(rule).data)


class WebhooksView(View):
    """Addresses that are told, for platform roles; finance and admins change them."""

    query = PAGED

    @extend_schema(responses=paged(shapes.WebhookSerializer))
    def get(self, request: Request) -> Response:
        rows = seen.visible_webhooks(actor(request))
        return page(request, rows, shapes.WebhookSerializer, CREATED)

    @extend_schema(request=shapes.WebhookInput, responses={201: shapes.NewWebhookSerializer})
    def post(self, request: Request) -> Response:
        user = actor(request)
        given: dict[str, Any] = checked(shapes.WebhookInput, request)
        if "account" in given:
            given["account"] = account_named(user, given["account"])
        made, key = alerting.create_webhook(user, **given)
        return Response(_with_key(made, key), status=MADE)


class WebhookView(View):
    """One address."""

    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        user = actor(request)
        alerting.remove_webhook(user, webhook=seen.visible_webhooks(user).get(pk=pk))
        return Response(status=status.HTTP_204_NO_CONTENT)


class WebhookKeyView(View):
    """Signs with a new key from now on."""

    @extend_schema(request=None, responses=shapes.NewWebhookSerializer)
    def post(self, request: Request, pk: int) -> Response:
        user = actor(request)
        webhook = seen.visible_webhooks(user).get(pk=pk)
        return Response(_with_key(webhook, alerting.rotate_webhook(user, webhook=webhook)))


class WebhookTestView(View):
    """Sends a message that says that it is a test; 422 says why it did not arrive."""

    @extend_schema(request=None, responses={204: None})
    def post(self, request: Request, pk: int) -> Response:
        user = actor(request)
        alerting.test_webhook(user, webhook=seen.visible_webhooks(user).get(pk=pk))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _with_key(webhook: Webhook, key: str) -> dict[str, Any]:
    return {"signing_key": key, **shapes.WebhookSerializer(webhook).data}
