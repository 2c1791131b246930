"""Alerts, the rules behind them, and the addresses that are told."""

from __future__ import annotations

import re
from typing import Any

from budgets.models import User, Webhook
from budgets.selectors import alerts as seen
from budgets.services import alerts as alerting
from portal.api.paging import CREATED, Order
from portal.api.serializers import alerts as shapes
from portal.api.views.base import DONE, MADE, View, answers, deed, pages

RAISED = Order("id", re.compile(r"[0-9a-f-]{36}"))


class AlertsView(View):
    """Alerts about what the caller may see."""

    @pages(shapes.AlertSerializer, RAISED)
    def get(self, user: User) -> Any:
        return seen.visible_alerts(user)


class AlertRulesView(View):
    """Rules about what the caller may see."""

    post = deed(
        alerting.create_rule, shapes.AlertRuleSerializer, takes=shapes.AlertRuleInput, code=MADE
    )

    @pages(shapes.AlertRuleSerializer, CREATED)
    def get(self, user: User) -> Any:
        return seen.visible_rules(user)


class AlertRulePart(View):
    """One visible rule."""

    def found(self, user: User, pk: int) -> dict[str, Any]:
        return {"rule": seen.visible_rules(user).get(pk=pk)}


class AlertRuleView(AlertRulePart):
    """One rule."""

    delete = deed(alerting.remove_rule, None, code=DONE)


class SnoozeView(AlertRulePart):
    """Keeps a rule quiet for a while."""

    @answers(shapes.AlertRuleSerializer, takes=shapes.SnoozeInput)
    def post(self, user: User, **given: Any) -> Any:
        alerting.snooze_rule(user, **given)
        return given["rule"]


class WebhooksView(View):
    """Addresses that are told, for platform roles; finance and admins change them."""

    @pages(shapes.WebhookSerializer, CREATED)
    def get(self, user: User) -> Any:
        return seen.visible_webhooks(user)

    @answers(shapes.NewWebhookSerializer, takes=shapes.WebhookInput, code=MADE)
    def post(self, user: User, **given: Any) -> Any:
        return _with_key(*alerting.create_webhook(user, **given))


class WebhookPart(View):
    """One visible address."""

    def found(self, user: User, pk: int) -> dict[str, Any]:
        return {"webhook": seen.visible_webhooks(user).get(pk=pk)}


class WebhookView(WebhookPart):
    """One address."""

    delete = deed(alerting.remove_webhook, None, code=DONE)


class WebhookKeyView(WebhookPart):
    """Signs with a new key from now on."""

    @answers(shapes.NewWebhookSerializer)
    def post(self, user: User, webhook: Webhook) -> Any:
        return _with_key(webhook, alerting.rotate_webhook(user, webhook=webhook))


class WebhookTestView(WebhookPart):
    """Sends a message that says that it is a test; 422 says why it did not arrive."""

    post = deed(alerting.test_webhook, None, code=DONE)


def _with_key(webhook: Webhook, key: str) -> Webhook:
    webhook.signing_key = key  # type: ignore[attr-defined]  # told this once, kept sealed
    return webhook
