"""Alert rules, alerts, webhooks."""

from __future__ import annotations

from decimal import Decimal

from rest_framework import serializers

from budgets import models
from budgets.selectors.alerts import MEASURES, WINDOWS
from portal.api.serializers.base import (
    InstantField,
    RowSerializer,
    Strict,
    account_field,
    name_of,
    workspace_field,
)


class AlertRuleSerializer(RowSerializer[models.AlertRule]):
    """A rule; ``workspace`` null watches the whole account."""

    account = name_of("account.slug")
    told = [
        "id", "account", "workspace", "measure", "window", "limit", "at_percent",
        "snoozed_until", "created_at",
    ]  # fmt: skip


class AlertRuleInput(Strict):
    """A new rule about a workspace, or about an account as a whole."""

    workspace = workspace_field(required=False)
    account = account_field(required=False)
    measure = serializers.ChoiceField(MEASURES)
    window = serializers.ChoiceField(WINDOWS, default="month")
    limit = serializers.DecimalField(max_digits=18, decimal_places=2, min_value=Decimal("0.01"))
    at_percent = serializers.IntegerField(min_value=1, max_value=1000, default=100)


class SnoozeInput(Strict):
    """Until when the rule is quiet; null wakes it."""

    until = InstantField(allow_null=True)


class AlertSerializer(RowSerializer[models.Alert]):
    """One alert, as webhooks get it too."""

    account = name_of("rule.account.slug")
    workspace = name_of("rule.workspace.namespace")
    measure = serializers.CharField(source="rule.measure", read_only=True)
    told = [
        "id", "rule", "account", "workspace", "measure", "window_start", "window_end", "value",
        "exhausted_at", "text", "raised_at",
    ]  # fmt: skip


class WebhookSerializer(RowSerializer[models.Webhook]):
    """An address that is told, without its signing key."""

    told = ["id", "name", "url", "account", "created_at"]


class NewWebhookSerializer(WebhookSerializer):
    """A fresh address, with its signing key this one time."""

    signing_key = serializers.CharField(read_only=True)
    told = ["signing_key", *WebhookSerializer.told]


class WebhookInput(Strict):
    """A new address; without an account it is told of everything."""

    name = serializers.CharField(max_length=80)
    url = serializers.CharField(max_length=500)
    account = account_field(required=False)
