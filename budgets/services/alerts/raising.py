"""The look at all rules: who is over a limit and has not been told yet in this window."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import structlog
from django.db import transaction
from django.db.models import Q, QuerySet

from budgets.models import Alert, AlertRule, SpendRule
from budgets.selectors.alerts import (
    Reading,
    is_met,
    read_rule,
    recipients_of,
    shown,
    window_of,
)
from budgets.selectors.clock import utc_now
from budgets.services.alerts.webhooks import put_into_outbox
from budgets.spending import effect_words

log = structlog.stdlib.get_logger(__name__)
Measure = AlertRule.Measure
MONEY = (Measure.SPEND, Measure.SPEND_FORECAST)
FORECASTS = (Measure.SPEND_FORECAST, Measure.HOURS_FORECAST)
LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True)
class Raised:
    """What one look came to."""

    looked_at: int
    raised: int


def raise_alerts(now: datetime | None = None) -> Raised:
    """Look at every rule that is awake and was not met yet in its window; idempotent.

    Each alert is written with its deliveries in one transaction, so that a kill in between
    neither loses a word nor says it twice.

    Args:
        now: UTC; None for the present.

    Raises:
        ExceptionGroup: Some rules could not be looked at; the others were.
    """
    instant = now or utc_now()
    awake = AlertRule.objects.filter(removed_at=None).filter(
        Q(snoozed_until=None) | Q(snoozed_until__lte=instant)
    )
    looks: list[bool] = []
    errors: list[Exception] = []
    for rule in list(awake.values_list("pk", flat=True)):
        try:
            found = _look(awake.filter(pk=rule), instant)
        except Exception as error:  # noqa: BLE001, RUF100  collected and raised below: one never stops the rest
            log.exception("alert_rule_not_looked_at", rule=rule)
            errors.append(error)
        else:
            looks += [] if found is None else [found]
    raised = sum(looks)
    if raised:
        log.info("alerts_raised", count=raised)
    if errors:
        raise ExceptionGroup("some alert rules could not be looked at", errors)
    return Raised(len(looks), raised)


@transaction.atomic
def _look(one: QuerySet[AlertRule], now: datetime) -> bool | None:
    """Whether a rule is met; None where it was in this window, or has gone. Reads its row."""
    rule = one.select_related(
        "workspace__budget__in_force", "account", "spend_rule__budget__workspace__account"
    ).first()
    if rule is None:
        return None
    if Alert.objects.filter(rule=rule, window_start=window_of(rule, now).start).exists():
        return None
    reading = read_rule(rule, now)
    return is_met(rule, reading) and _raise(rule, reading, now)


def _raise(rule: AlertRule, reading: Reading, now: datetime) -> bool:
    alert, is_new = Alert.objects.get_or_create(
        rule=rule,
        window_start=reading.window.start,
        defaults={
            "window_end": reading.window.end,
            "value": shown(reading.value),
            "exhausted_at": reading.exhausted_at,
            "text": sentence(rule, reading)[:LONGEST_TEXT],
            "raised_at": now,
        },
    )
    if not is_new:
        return False
    hooks = Q(account=None) | Q(account=rule.account_id)
    put_into_outbox(hooks, recipients_of(rule), alert=alert, next_at=now)
    return True


def sentence(rule: AlertRule, reading: Reading) -> str:
    """The alert in one sentence, two where a date of exhaustion is known."""
    value, limit = shown(reading.value), rule.limit
    unit = f" {reading.currency}" if rule.measure in MONEY and reading.currency else ""
    window = f"this {rule.window}"
    subject = rule.subject
    if rule.measure in (Measure.BURST_SHARE, Measure.IDLE_SHARE):
        part = (
            "of what was used was burst"
            if rule.measure == Measure.BURST_SHARE
            else "of the committed GPU-hours were idle"
        )
        return f"{subject}: {value} % {part} {window}; the limit is {limit} %."
    if rule.measure == Measure.BUDGET_END:
        return (
            f"The budget of {subject} ends on {reading.window.end:%Y-%m-%d %H:%M} UTC. Renew it on "
            "the page of the workspace if its jobs still need GPUs then."
        )
    if rule.measure == Measure.PENDING_AGE:
        return f"{subject}: a job has been waiting for {value} hours; the limit is {limit} hours."
    if rule.spend_rule is not None:
        return _cap_sentence(rule, rule.spend_rule, reading)
    what = "" if rule.measure in MONEY else " GPU-hours"
    share = round(100 * value / limit)
    verb = "is likely to reach" if rule.measure in FORECASTS else "has reached"
    end = f" by the end of {window}" if rule.measure in FORECASTS else f" {window}"
    text = f"{subject} {verb} {value}{unit}{what}{end}: {share} % of {limit}{unit}{what}."
    at, is_ahead = reading.exhausted_at, value < limit or rule.measure in FORECASTS
    if at is not None and is_ahead:
        text += f" At the present rate the limit is reached on {at:%Y-%m-%d %H:%M} UTC."
    return text


def _cap_sentence(rule: AlertRule, cap: SpendRule, reading: Reading) -> str:
    """How far the cap is used up, and what it does to jobs."""
    value = shown(reading.value)
    text = f"{rule.subject}: {value} {cap.unit_words} of the cap of {cap} are used up."
    if value >= cap.amount:
        return f"{text} {effect_words(cap.as_cap)}"
    at = reading.exhausted_at
    if at is not None:
        text += f" At the present rate it is reached on {at:%Y-%m-%d %H:%M} UTC."
    return f"{text} Then: {effect_words(cap.as_cap)}"
