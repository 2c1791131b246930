"""Alerts: rules and webhooks of people, the look at all of them, and getting the word out."""

from __future__ import annotations

from budgets.services.alerts.deliver import deliver_alerts, retry_delivery
from budgets.services.alerts.raising import raise_alerts
from budgets.services.alerts.rules import create_rule, remove_rule, snooze_rule
from budgets.services.alerts.streaming import stream_audit
from budgets.services.alerts.webhooks import (
    create_webhook,
    remove_webhook,
    rotate_webhook,
    test_webhook,
)
