"""Alerts, the rules behind them, and the addresses that are told."""

from __future__ import annotations

import re
from typing import Any

from rest_framework import serializers

from budgets import models
from budgets.models import User, Webhook
from budgets.selectors import alerts as seen
from budgets.selectors.alerts import MEASURES, WINDOWS
from budgets.services import alerts as alerting
from portal.api.paging import CREATED, Order
from portal.api.shapes import (
    InstantField,
    RowSerializer,
    Strict,
    account_field,
    name_of,
    workspace_field,
)
from portal.api.views import DONE, MADE, Noun, answers, deed, finds, lists
from portal.bounds import MONEY, TELL_AT_PERCENT

RAISED = Order("id", re.compile(r"[0-9a-f-]{36}"))


class AlertRuleSerializer(RowSerializer[models.AlertRule]):
    """A rule; ``workspace`` null watches the whole account."""

    account = name_of("account.slug")
    told = "id account workspace measure window limit at_percent snoozed_until created_at"


class AlertRuleInput(Strict):
    """A new rule about a workspace, or about an account as a whole."""

    workspace = workspace_field(required=False)
    account = account_field(required=False)
    measure = serializers.ChoiceField(MEASURES)
    window = serializers.ChoiceField(WINDOWS, default="month")
    limit = serializers.DecimalField(**MONEY)
    at_percent = serializers.IntegerField(**TELL_AT_PERCENT, default=100)


class SnoozeInput(Strict):
    """Until when the rule is snoozed; null ends that."""

    until = InstantField(allow_null=True)


class AlertSerializer(RowSerializer[models.Alert]):
    """One alert, as webhooks get it too."""

    account = name_of("rule.account.slug")
    workspace = name_of("rule.workspace.namespace")
    measure = serializers.CharField(source="rule.measure", read_only=True)
    told = (
        "id rule account workspace measure window_start window_end value exhausted_at text "
        "raised_at"
    )


class WebhookSerializer(RowSerializer[models.Webhook]):
    """An address that is told, without its signing key."""

    takes_audit_log = serializers.BooleanField(read_only=True)
    told = "id name url account takes_audit_log created_at"


class NewWebhookSerializer(WebhookSerializer):
    """A fresh address, with its signing key this one time."""

    signing_key = serializers.CharField(read_only=True)
    told = f"signing_key {WebhookSerializer.told}"


class WebhookInput(Strict):
    """A new address; without an account it is told of everything, or sent the audit log."""

    name = serializers.CharField(max_length=80)
    url = serializers.CharField(max_length=500)
    account = account_field(required=False)
    takes_audit_log = serializers.BooleanField(default=False)


class Alerts(Noun):
    """Alerts about what the caller may see."""

    shape = AlertSerializer
    list = lists(seen.visible_alerts, RAISED)


class AlertRules(Noun):
    """Rules about what the caller may see."""

    each = "One rule."
    shape = AlertRuleSerializer
    found = finds("rule", lambda user, pk: seen.visible_rules(user).get(pk=pk))
    list = lists(seen.visible_rules, CREATED)
    create = deed(alerting.create_rule, takes=AlertRuleInput, code=MADE)
    destroy = deed(alerting.remove_rule, code=DONE)

    @answers(takes=SnoozeInput)
    def snooze(self, user: User, **given: Any) -> Any:
        """Snoozes a rule for a while."""
        alerting.snooze_rule(user, **given)
        return given["rule"]


class Webhooks(Noun):
    """Addresses that are told, for platform roles; finance and admins change them."""

    each = "One address."
    shape = NewWebhookSerializer
    found = finds("webhook", lambda user, pk: seen.visible_webhooks(user).get(pk=pk))
    list = lists(seen.visible_webhooks, CREATED, shape=WebhookSerializer)
    destroy = deed(alerting.remove_webhook, code=DONE)
    test = deed(
        alerting.test_webhook,
        code=DONE,
        text="Sends a test message; 422 says why it did not arrive.",
    )

    @answers(takes=WebhookInput, code=MADE)
    def create(self, user: User, **given: Any) -> Any:
        return _with_key(*alerting.create_webhook(user, **given))

    @answers()
    def key(self, user: User, webhook: Webhook) -> Any:
        """Signs with a new key from now on."""
        return _with_key(webhook, alerting.rotate_webhook(user, webhook=webhook))


def _with_key(webhook: Webhook, key: str) -> Webhook:
    webhook.signing_key = key  # type: ignore[attr-defined]  # told this once, kept sealed
    return webhook
