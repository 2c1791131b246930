"""Alerts: what somebody wants to be told about, that it happened, and how the word got out."""

from __future__ import annotations

import uuid

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from budgets import spending
from budgets.models.access import person
from budgets.models.audit import AuditEntry
from budgets.models.base import optional
from budgets.models.billing import BillingPeriod
from budgets.models.exports import Export
from budgets.models.fleet import Account, Workspace
from budgets.models.spending import SpendRule


class Webhook(models.Model):
    """An address that is told of an account's alerts, or of all with ``account`` None.

    No secret is stored: the signing key follows from the portal's own key and ``key_version``.
    """

    name = models.CharField(max_length=80)
    url = models.URLField(max_length=500)
    account = optional(Account, related_name="webhooks")
    key_version = models.PositiveIntegerField(default=1)
    created_by = person()
    created_at = models.DateTimeField(auto_now_add=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name", "pk"]

    def __str__(self) -> str:
        return self.name

    @property
    def takes_audit_log(self) -> bool:
        """Whether it is sent the audit log, and no alert."""
        return hasattr(self, "stream")


class AuditStream(models.Model):
    """How far one receiver has the audit log: syslog, or the webhook that it names.

    Attributes:
        receiver: ``syslog``, or ``webhook-12``: a receiver has one.
        webhook: None: syslog, as PORTAL_AUDIT_SYSLOG says.
        position: Highest key of an entry that arrived.
        missing: Keys up to it that no entry had then: transactions that were still open, or never
            came to their end.
        turn: Counts tries; who is overtaken notes nothing.
        failures: Since something arrived.
    """

    receiver = models.CharField(max_length=40, unique=True)
    webhook = models.OneToOneField(
        Webhook, on_delete=models.PROTECT, null=True, blank=True, related_name="stream"
    )
    position = models.BigIntegerField(default=0)
    missing = models.JSONField(default=list, blank=True)
    turn = models.PositiveBigIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)
    problem = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.webhook.name if self.webhook else "syslog"


class AlertRule(models.Model):
    """When a value of a workspace, or of a whole account, reaches a share of a limit."""

    class Measure(models.TextChoices):
        SPEND = "spend", "Money spent"
        SPEND_FORECAST = "spend_forecast", "Money, forecast to the end of the window"
        HOURS = "hours", "GPU-hours used"
        HOURS_FORECAST = "hours_forecast", "GPU-hours, forecast to the end of the window"
        BURST_SHARE = "burst_share", "Burst share of the use (%)"
        IDLE_SHARE = "idle_share", "Idle share of the committed GPUs (%)"
        PENDING_AGE = "pending_age", "Longest wait of a pending job (hours)"
        BUDGET_END = "budget_end", "Days until the budget ends"
        # Follows a spend rule, and is never made by hand.
        CAP = "cap", "Spend cap"

    # A whole grant only of a cap.
    Window = spending.Window

    workspace = optional(Workspace, related_name="alert_rules")
    spend_rule = optional(SpendRule, related_name="alert_rules")
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="alert_rules")
    measure = models.CharField(max_length=16, choices=Measure.choices)
    window = models.CharField(max_length=5, choices=Window.choices, default=Window.MONTH)
    # Money in the currency of the rate cards, GPU-hours, percent or hours, as the measure says.
    limit = models.DecimalField(max_digits=18, decimal_places=2)
    at_percent = models.PositiveSmallIntegerField(
        default=100, validators=[MinValueValidator(1), MaxValueValidator(1000)]
    )
    snoozed_until = models.DateTimeField(null=True, blank=True)
    created_by = person()
    created_at = models.DateTimeField(auto_now_add=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["account", "workspace", "measure", "limit", "pk"]
        constraints = [
            models.CheckConstraint(name="alert_rule_limit_above_zero", condition=Q(limit__gt=0)),
            models.CheckConstraint(
                name="alert_rule_cap_has_rule",
                condition=Q(measure="cap", spend_rule__isnull=False)
                | (~Q(measure="cap") & Q(spend_rule__isnull=True) & ~Q(window="grant")),
            ),
        ]
        indexes = [
            models.Index(fields=["account"], name="alert_rule_active", condition=Q(removed_at=None))
        ]

    @property
    def subject(self) -> str:
        """What it watches, as people read it; both relations have to be joined."""
        return self.workspace.name if self.workspace else f"account {self.account.name}"


class Alert(models.Model):
    """A rule was met in a window: told once, however often it is looked at."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    rule = models.ForeignKey(AlertRule, on_delete=models.PROTECT, related_name="alerts")
    window_start = models.DateTimeField()
    window_end = models.DateTimeField()
    value = models.DecimalField(max_digits=18, decimal_places=2)
    exhausted_at = models.DateTimeField(null=True, blank=True)
    text = models.CharField(max_length=500)
    raised_at = models.DateTimeField()

    class Meta:
        ordering = ["-raised_at", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["rule", "window_start"], name="alert_once_in_a_window")
        ]


def _one_of(*names: str) -> Q:
    """The condition that exactly one of some columns is filled."""
    found = Q()
    for name in names:
        found |= Q(**{f"{other}__isnull": other != name for other in names})
    return found


class Delivery(models.Model):
    """One alert, or the word of a file, a closed month or a log entry, on its way to one address.

    Tried again until it arrives or is given up.
    """

    class Channel(models.TextChoices):
        MAIL = "mail", "Mail"
        WEBHOOK = "webhook", "Webhook"

    class State(models.TextChoices):
        WAITING = "waiting", "On its way"
        SENT = "sent", "Delivered"
        GIVEN_UP = "given_up", "Given up"

    alert = optional(Alert, related_name="deliveries")
    export = optional(Export, related_name="deliveries")
    period = optional(BillingPeriod, related_name="deliveries")
    entry = optional(AuditEntry, related_name="deliveries")
    channel = models.CharField(max_length=8, choices=Channel.choices)
    address = models.CharField(max_length=500)
    webhook = optional(Webhook, related_name="deliveries")
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)
    problem = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["-next_at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["alert", "channel", "address"], name="delivery_once_to_an_address"
            ),
            models.UniqueConstraint(
                fields=["export", "channel", "address"], name="delivery_of_export_once"
            ),
            models.UniqueConstraint(
                fields=["period", "channel", "address"], name="delivery_of_close_once"
            ),
            models.UniqueConstraint(
                fields=["entry", "channel", "address"], name="delivery_of_entry_once"
            ),
            models.CheckConstraint(
                name="delivery_of_one_thing",
                condition=_one_of("alert", "export", "period", "entry"),
            ),
        ]
        indexes = [
            models.Index(fields=["next_at"], name="delivery_due", condition=Q(state="waiting"))
        ]
