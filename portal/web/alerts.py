"""Alerts: what was raised, the rules behind it, webhooks, and whether the word got out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.utils.html import format_html
from django.utils.safestring import SafeString

from budgets import selectors
from budgets.models import Account, AlertRule, Delivery, User
from budgets.selectors import alerts as seen
from budgets.selectors.billing import portal_currency
from budgets.selectors.clock import utc_now
from budgets.services import alerts as alerting
from portal.bounds import MONEY, TELL_AT_PERCENT
from portal.web.forms import ChoosingForm, OfferedField, PortalForm, choice_of
from portal.web.pages import page
from portal.web.setup_pages import Row, Section, sections_page
from portal.web.tags import when

ALERTS_SHOWN = 50
SNOOZES = [("24", "one day"), ("168", "one week"), ("744", "31 days"), ("0", "not at all")]
KEY_ONCE = "Signing key, shown this once: {key}"


class AlertRuleForm(PortalForm):
    """What to watch, and where the limit is."""

    subject = OfferedField(label="Watch")
    measure = forms.ChoiceField(label="Value", choices=seen.MEASURES)
    limit = forms.DecimalField(
        label="Limit",
        **MONEY,
        help_text="Money, GPU-hours, percent or hours, as the value says.",
    )
    at_percent = forms.IntegerField(
        label="Tell at this percentage of the limit", initial=100, **TELL_AT_PERCENT
    )
    window = forms.ChoiceField(label="At most once in each", choices=seen.WINDOWS, initial="month")
    fault_fields = {"workspace": "subject", "account": "subject"}


class SnoozeForm(PortalForm):
    """Which rule is quiet, and for how long."""

    rule = OfferedField(label="Rule")
    hours = forms.ChoiceField(label="Snooze for", choices=SNOOZES)


class WebhookForm(ChoosingForm):
    """An address that is told."""

    name = forms.CharField(label="Name", max_length=80)
    url = forms.URLField(label="Address", max_length=500, assume_scheme="https")
    account = choice_of(Account, "Alerts of", required=False, empty_label="every account")
    takes_audit_log = forms.BooleanField(
        label="Send it the audit log instead of alerts",
        required=False,
        help_text="The whole log, from its first entry on.",
    )


@page("GET", "POST")
def alerts(request: HttpRequest, user: User) -> HttpResponseBase:
    """What was raised first, then the rules; webhooks and deliveries for platform roles."""
    roles = selectors.roles_of(user)
    rules = list(seen.visible_rules(user))
    currency = portal_currency() if rules else ""
    sections = [_raised(user), _rules(user, rules, currency)]
    if rules:
        sections.append(_snooze(user, rules, currency))
    if roles.sees_everything:
        sections += [_webhooks(request, user), _deliveries(user)]
    headline = "Each alert is told once: by mail to the owners, and to signed webhooks."
    return sections_page(request, title="Alerts", headline=headline, sections=sections)


def _raised(user: Any) -> Section:
    rows = [
        Row(alert.text, when(alert.raised_at)) for alert in seen.visible_alerts(user)[:ALERTS_SHOWN]
    ]
    return Section(
        key="raised",
        title="Raised",
        columns=("What", "When"),
        rows=rows,
        empty="No alert has been raised. Add a rule below to be told about something.",
    )


def _rules(user: Any, rules: list[AlertRule], currency: str) -> Section:
    roles = selectors.roles_of(user)

    def create(typed: dict[str, Any]) -> None:
        alerting.create_rule(user, **typed.pop("subject"), **typed)

    subjects: dict[str, tuple[str, dict[str, Any]]] = {
        f"workspace:{row.namespace}": (f"{row.name} ({row.namespace})", {"workspace": row})
        for row in selectors.visible_workspaces(user)
        if roles.may_edit(row) or roles.is_finance
    } | {
        f"account:{row.slug}": (f"all of {row.name}", {"account": row})
        for row in selectors.visible_accounts(user)
        if roles.is_admin or roles.is_finance or row.pk in roles.owned_accounts
    }
    may_change = bool(subjects)
    return Section(
        key="rules",
        title="Rules",
        text="Each rule tells you at most once a day, week or month.",
        columns=("Watched", "Value", "Told at", "At most once in each", "Snoozed until"),
        rows=[
            Row(
                rule.subject,
                rule.get_measure_display(),
                _limit(rule, currency),
                rule.window,
                when(rule.snoozed_until) if _is_quiet(rule) else "",
                # What follows a spend rule goes with it.
                remove=str(rule.pk) if may_change and rule.spend_rule_id is None else "",
            )
            for rule in rules
        ],
        empty="There is no rule yet.",
        removable=seen.visible_rules(user),
        remove=(lambda row: alerting.remove_rule(user, rule=row)) if may_change else None,
        form=AlertRuleForm if may_change else None,
        arguments={"offered": {"subject": subjects}},
        do=create,
        button="Add rule",
        said="The rule is in force and is checked every minute.",
    )


def _snooze(user: Any, rules: list[AlertRule], currency: str) -> Section:
    def snooze(typed: dict[str, Any]) -> None:
        hours = int(typed["hours"])
        until = utc_now() + timedelta(hours=hours) if hours else None
        alerting.snooze_rule(user, rule=typed["rule"], until=until)

    return Section(
        key="snooze",
        title="Snooze for a while",
        form=SnoozeForm,
        is_folded=True,
        arguments={"offered": {"rule": {str(r.pk): (_words(r, currency), r) for r in rules}}},
        do=snooze,
        button="Snooze a rule",
        said="Done.",
    )


def _webhooks(request: HttpRequest, user: Any) -> Section:
    def create(typed: dict[str, Any]) -> None:
        _, key = alerting.create_webhook(user, **typed)
        messages.info(request, KEY_ONCE.format(key=key))

    return Section(
        key="webhooks",
        title="Webhooks",
        text="The portal sends a JSON document by POST. The header Portal-Signature is "
        "t=SECONDS,v1=HMAC, the HMAC-SHA256 of SECONDS.BODY with the signing key. The header "
        "Portal-Delivery is the same in every attempt.",
        columns=("Name", "Address", "Alerts of"),
        rows=[
            Row(
                row.name,
                row.url,
                "no alert, but the audit log"
                if row.takes_audit_log
                else row.account.name
                if row.account
                else "every account",
                remove=str(row.pk),
            )
            for row in seen.visible_webhooks(user)
        ],
        empty="There is no webhook yet.",
        removable=seen.visible_webhooks(user),
        remove=lambda row: alerting.remove_webhook(user, webhook=row),
        form=WebhookForm,
        do=create,
        button="Add webhook",
        said="The portal sends alerts to {name} from now on.",
    )


def _deliveries(user: Any) -> Section:
    found = seen.visible_deliveries(user)
    return Section(
        key="deliveries",
        title="Deliveries",
        columns=("To", "About", "State", "Attempts", "Problem"),
        numbers=("Attempts",),
        rows=[
            Row(
                row.webhook.name if row.webhook else row.address,
                row.alert.rule.subject if row.alert else str(row.period or row.export),
                _sent(row),
                row.attempts,
                row.problem,
                remove=str(row.pk) if row.state == Delivery.State.GIVEN_UP else "",
            )
            for row in found.select_related("webhook")[:ALERTS_SHOWN]
        ],
        empty="Nothing has been sent yet.",
        removable=found,
        remove=lambda row: alerting.retry_delivery(user, delivery=row),
        remove_label="Try again",
        removed="The portal tries to send it again.",
    )


def _sent(row: Delivery) -> SafeString | str:
    words = row.get_state_display()
    return format_html("{}, {}", words, when(row.sent_at)) if row.sent_at else words


def _is_quiet(rule: AlertRule) -> bool:
    return rule.snoozed_until is not None and rule.snoozed_until > utc_now()


def _words(rule: AlertRule, currency: str) -> str:
    return f"{rule.subject}: {rule.get_measure_display()}, {_limit(rule, currency)}"


def _limit(rule: AlertRule, currency: str) -> str:
    """``80 % of 40,000.00 EUR``: money, GPU-hours, percent or hours, as the measure says."""
    measures = AlertRule.Measure
    if rule.spend_rule is not None:
        unit = rule.spend_rule.unit_words
    elif rule.measure in (measures.SPEND, measures.SPEND_FORECAST):
        unit = currency
    elif rule.measure in (measures.HOURS, measures.HOURS_FORECAST):
        unit = "GPU-hours"
    else:
        units = {measures.PENDING_AGE.value: "hours", measures.BUDGET_END.value: "days"}
        unit = units.get(rule.measure, "%")
    return f"{rule.at_percent} % of {rule.limit:,} {unit}".rstrip()
