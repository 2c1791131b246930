"""Rules, what they read, one alert once, and deliveries that arrive or say why not."""

from __future__ import annotations

import hmac
import json
import math
from contextlib import nullcontext
from datetime import datetime, timedelta
from decimal import Decimal
from hashlib import sha256

import pytest
import time_machine
from django.core import mail
from django.db import connection

from budgets import services
from budgets.errors import NotAllowed, Rejected
from budgets.models import (
    Alert,
    AlertRule,
    AuditEntry,
    BillingTerms,
    Delivery,
    MonthOutlook,
    PendingSpan,
    RateCard,
    RatePrice,
    Workspace,
)
from budgets.plan import RevisionDraft
from budgets.selectors.alerts import Reading, read_rule, visible_alerts, visible_rules, window_of
from budgets.selectors.budget.cost_preview import preview_cost
from budgets.selectors.budget.history import ending_revision
from budgets.services import alerts
from budgets.services.alerts import raising
from budgets.services.alerts.deliver import PAUSES
from budgets.services.usage import outlooks
from tests.alerts.conftest import Listener, metered_until, used
from tests.builders import SmallFleet, an_approval, hours, line

NOW = hours(48)


def rule(fleet: SmallFleet, measure: str, limit: str, **more) -> AlertRule:
    subject = {} if "account" in more else {"workspace": fleet.vision}
    made = alerts.create_rule(None, measure=measure, limit=Decimal(limit), **subject, **more)
    return AlertRule.objects.select_related("workspace", "account").get(pk=made.pk)


@pytest.fixture
def busy(fleet: SmallFleet) -> SmallFleet:
    """Two days: eight committed, six used, two burst in every hour."""
    for hour in range(48):
        used(fleet, hour, committed=8, used=6, burst=2)
    metered_until(48)
    return fleet


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        ("hours", 48 * 8),
        ("hours_forecast", 31 * 24 * 8),
        ("burst_share", 25),
        ("idle_share", 25),
        ("pending_age", 30),
    ],
)
def test_values_are_those_of_the_hour_facts(busy, measure, value):
    PendingSpan.objects.create(
        cluster="gpu-east", uid="w", start=hours(18), gpus=8, workspace=busy.vision, namespace="x"
    )
    limit = "50" if measure.endswith("share") else "1000"
    found = read_rule(rule(busy, measure, limit), NOW)
    assert found.value == pytest.approx(value)


def test_a_forecast_names_the_hour_in_which_the_limit_is_reached(busy):
    found = read_rule(rule(busy, "hours_forecast", "1000"), NOW)
    assert found.exhausted_at == hours(48 + (1000 - 384) / 8 - 1)


def test_windows_are_those_of_the_billing_zone(fleet):
    BillingTerms.objects.create(account=fleet.acme, zone="Europe/Berlin")
    day = window_of(rule(fleet, "hours", "1", window="day"), hours(28 * 24 + 12))
    assert (day.end - day.start) == timedelta(hours=23)  # 2026-03-29, the clock went forward
    week = window_of(rule(fleet, "hours", "1", window="week"), hours(3 * 24))
    assert week.start == hours(24 - 1)  # Monday 2026-03-02 in Berlin
    month = window_of(rule(fleet, "hours", "1"), hours(3 * 24))
    assert month.end - month.start == timedelta(hours=743)


def test_an_alert_is_raised_once_in_a_window_and_again_in_the_next(busy):
    rule(busy, "hours", "10", window="day")
    assert alerts.raise_alerts(hours(30)).raised == 1
    assert alerts.raise_alerts(hours(31)).raised == 0
    assert alerts.raise_alerts(NOW + timedelta(hours=-1)).raised == 0
    used(busy, 48, committed=8, used=8, burst=8)
    metered_until(49)
    assert alerts.raise_alerts(hours(49)).raised == 1
    assert Alert.objects.count() == 2


def test_a_share_of_the_limit_warns_before_it(busy):
    early = rule(busy, "hours", "400", at_percent=80)
    rule(busy, "hours", "400")
    assert alerts.raise_alerts(NOW).raised == 1
    alert = Alert.objects.get()
    assert alert.rule == early
    assert alert.text == (
        "Vision has reached 384.00 GPU-hours this month: 96 % of 400.00 GPU-hours. "
        "At the present rate the limit is reached on 2026-03-03 01:00 UTC."
    )


def test_snoozed_and_removed_rules_are_quiet(busy):
    quiet = rule(busy, "hours", "10")
    quiet.snoozed_until = NOW + timedelta(hours=1)
    quiet.save()
    gone = rule(busy, "burst_share", "10")
    alerts.remove_rule(None, rule=gone)
    assert alerts.raise_alerts(NOW).raised == 0
    assert alerts.raise_alerts(NOW + timedelta(hours=2)).raised == 1


def test_a_rule_that_cannot_be_looked_at_keeps_no_other_from_being_told(busy, monkeypatch):
    broken, sound = (rule(busy, "hours", limit) for limit in ("5", "10"))

    def read(given: AlertRule, now: datetime) -> Reading:
        if given == broken:
            raise ArithmeticError("more than there is")
        return read_rule(given, now)

    monkeypatch.setattr(raising, "read_rule", read)
    with pytest.raises(ExceptionGroup, match="could not be looked at") as told:
        alerts.raise_alerts(NOW)
    assert [str(error) for error in told.value.exceptions] == ["more than there is"]
    assert [alert.rule for alert in Alert.objects.all()] == [sound]


def test_a_row_that_cannot_be_read_keeps_no_other_from_being_told(busy):
    broken, sound = rule(busy, "hours", "5"), rule(busy, "hours_forecast", "10")
    AlertRule.objects.filter(pk=broken.pk).update(limit=Decimal("9999999999999999.99"))
    # SQLite has a float there, and more digits are read than were written.
    is_unread = connection.vendor == "sqlite"
    with pytest.raises(ExceptionGroup) if is_unread else nullcontext():
        alerts.raise_alerts(NOW)
    assert list(Alert.objects.values_list("rule", flat=True)) == [sound.pk]


def test_owners_and_the_author_are_told_by_mail_once(busy):
    made = alerts.create_rule(
        busy.finance, measure="hours", limit=Decimal(10), workspace=busy.vision
    )
    alerts.raise_alerts(NOW)
    done = alerts.deliver_alerts(NOW)
    again = alerts.deliver_alerts(NOW + timedelta(days=2))
    assert (done.sent, again.sent) == (2, 0)
    assert sorted(message.to[0] for message in mail.outbox) == [
        "fin@example.org",
        "olga@example.org",
    ]
    assert mail.outbox[0].subject == "GPU budget alert: Vision"
    assert "/alerts/" in mail.outbox[0].body
    assert set(made.alerts.get().deliveries.values_list("state", flat=True)) == {"sent"}


def test_a_webhook_gets_a_signed_message(busy, listener: Listener):
    hook, key = alerts.create_webhook(busy.finance, name="Team", url=listener.url)
    rule(busy, "hours", "10")
    alerts.raise_alerts(NOW)
    alerts.deliver_alerts(NOW)

    path, headers, body = listener.requests[0]
    assert path == "/alerts?team=gpu"
    parts = dict(part.split("=") for part in headers["Portal-Signature"].split(","))
    signed = hmac.new(key.encode(), f"{parts['t']}.".encode() + body, sha256).hexdigest()
    assert parts["v1"] == signed
    told = json.loads(body)
    assert told["workspace"] == "acme-vision"
    assert told["value"] == "384.00"
    assert headers["Portal-Delivery"] == told["id"] == str(Alert.objects.get().pk)
    assert key not in str(AuditEntry.objects.get(action="webhook.create").after)
    assert alerts.rotate_webhook(busy.finance, webhook=hook) != key


def test_what_does_not_arrive_is_tried_again_and_given_up_with_a_reason(busy, listener):
    alerts.create_webhook(None, name="Team", url=listener.url)
    rule(busy, "hours", "10", account=busy.acme)
    alerts.raise_alerts(NOW)
    listener.status = 503
    at = NOW
    row = Delivery.objects.get(channel="webhook")
    for pause in PAUSES:
        assert alerts.deliver_alerts(at).failed == 1
        assert alerts.deliver_alerts(at).failed == 0
        row.refresh_from_db()
        assert (row.state, row.problem) == ("waiting", "127.0.0.1 answered with status 503")
        at += pause
    assert alerts.deliver_alerts(at).failed == 1
    row.refresh_from_db()
    assert row.state == "given_up"
    listener.status = 204
    assert alerts.deliver_alerts(at + timedelta(days=9)).sent == 0
    alerts.retry_delivery(busy.finance, delivery=row)
    alerts.retry_delivery(busy.finance, delivery=row)
    told = AuditEntry.objects.get(action="delivery.retry")
    assert (told.actor, told.subject) == (busy.finance, f"delivery:{row.pk}")
    assert told.before["state"] == "given_up"
    assert told.before["problem"] == "127.0.0.1 answered with status 503"
    assert told.after == {"channel": "webhook", "state": "waiting", "attempts": 0}
    assert alerts.deliver_alerts(services.utc_now()).sent == 1
    assert len(listener.requests) == len(PAUSES) + 2


def test_a_worker_that_dies_while_sending_leaves_it_to_the_next_try(busy, listener, monkeypatch):
    alerts.create_webhook(None, name="Team", url=listener.url)
    rule(busy, "hours", "10", account=busy.acme)
    alerts.raise_alerts(NOW)

    def die(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("budgets.services.alerts.deliver.send", die)
        with pytest.raises(KeyboardInterrupt):
            alerts.deliver_alerts(NOW)
    assert alerts.deliver_alerts(NOW).sent == 0
    assert alerts.deliver_alerts(NOW + PAUSES[0]).sent == 1


def test_a_redirect_is_not_followed(busy, listener):
    hook, _ = alerts.create_webhook(None, name="Team", url=listener.url)
    listener.status = 307
    with pytest.raises(Rejected, match="answered with status 307"):
        alerts.test_webhook(None, webhook=hook)
    assert len(listener.requests) == 1


def test_private_addresses_are_refused_unless_allowed(fleet, settings, listener):
    hook, _ = alerts.create_webhook(None, name="Team", url=listener.url)
    settings.PORTAL_WEBHOOK_PRIVATE = False
    with pytest.raises(Rejected, match=r"127\.0\.0\.1 is not a public address"):
        alerts.test_webhook(None, webhook=hook)
    assert listener.requests == []


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://example.org/hook", "not_https"),
        ("https://me:secret@example.org/", "credentials_in_url"),
        ("https:///hook", "no_host"),
        ("https://example.org:70000/", "no_port"),
        ("https://example.org:0/", "no_port"),
        ("https://example.org:-1/", "no_port"),
        ("https://[", "not_an_address"),
        ("https://[::1", "not_an_address"),
        ("https://\N{ACCOUNT OF}.com/", "not_an_address"),
    ],
)
def test_unusable_addresses_are_refused(fleet, url, code):
    with pytest.raises(Rejected) as found:
        alerts.create_webhook(None, name="Team", url=url)
    assert code in {fault.code for fault in found.value.faults}


def test_rules_are_checked_in_full(fleet):
    def faults(**more) -> set[str]:
        given = {"measure": "hours", "limit": Decimal(10), "workspace": fleet.vision, **more}
        with pytest.raises(Rejected) as found:
            alerts.create_rule(None, **given)
        return {fault.code for fault in found.value.faults}

    assert faults(measure="idle_share", limit=Decimal(101)) == {"not_a_share"}
    assert faults(account=fleet.acme) == {"one_subject"}
    assert faults(at_percent=0) == {"min_value"}
    assert faults(measure="nonsense") == {"invalid_choice"}
    rule(fleet, "hours", "10")
    assert faults() == {"exists"}


def test_each_sees_and_changes_only_what_is_theirs(busy):
    stranger = services.create_user(
        None, username="stan", email="stan@example.org", password="correct horse battery"
    )
    own = rule(busy, "hours", "10")
    whole = rule(busy, "hours", "10", account=busy.acme)
    alerts.raise_alerts(NOW)
    assert list(visible_rules(busy.owner)) == [own]
    assert {row.rule for row in visible_alerts(busy.owner)} == {own}
    assert set(visible_rules(busy.finance)) == {own, whole}
    assert not visible_rules(stranger).exists()
    assert not visible_alerts(stranger).exists()
    with pytest.raises(NotAllowed):
        alerts.remove_rule(busy.owner, rule=whole)
    with pytest.raises(NotAllowed):
        alerts.create_webhook(busy.owner, name="x", url="https://example.org")
    alerts.snooze_rule(busy.owner, rule=own, until=services.utc_now() + timedelta(days=1))
    assert AuditEntry.objects.filter(action="alert.snooze_rule", actor=busy.owner).exists()


@pytest.fixture
def priced(busy: SmallFleet) -> SmallFleet:
    """The floor costs 2, burst 3 an hour."""
    card = RateCard.objects.create(
        name="2026",
        currency="EUR",
        state="active",
        valid_from=hours(-24),
        decided_at=hours(-24),
        approval=an_approval(),
    )
    RatePrice.objects.create(
        card=card,
        flavor=busy.flavors["h100"],
        committed=Decimal(2),
        burst=Decimal(3),
        lending_credit=Decimal(0),
    )
    with time_machine.travel(hours(1), tick=False):
        services.revise_budget(
            None,
            workspace=busy.vision,
            draft=RevisionDraft(lines=(line("h100", 8, 16),), reason="test"),
            expected_version=busy.vision.budget.version,
        )
    busy.vision.budget.refresh_from_db()
    return busy


def test_money_is_that_of_the_charges_and_its_forecast_carries_the_floor_on(priced):
    spent = read_rule(rule(priced, "spend", "10000"), NOW)
    assert (spent.value, spent.currency) == (48 * (8 * 2 + 2 * 3), "EUR")
    assert spent.exhausted_at == hours(math.ceil(10000 / 22) - 1)
    assert read_rule(rule(priced, "spend_forecast", "10000"), NOW).value == 744 * 22
    made = rule(priced, "spend", "1000")
    alerts.raise_alerts(NOW)
    told = Alert.objects.get(rule=made).text
    assert told == "Vision has reached 1056.00 EUR this month: 106 % of 1000.00 EUR."
    forecast = Alert.objects.exclude(rule=made).get().text
    assert forecast == (
        "Vision is likely to reach 16368.00 EUR by the end of this month: 164 % of 10000.00 EUR. "
        "At the present rate the limit is reached on 2026-03-19 22:00 UTC."
    )


def test_the_outlook_of_the_month_is_kept_for_pages(priced):
    assert outlooks.refresh_outlooks(NOW) == 3
    row = priced.vision.outlook
    assert (row.spent, row.expected, row.currency) == (Decimal(1056), Decimal(744 * 22), "EUR")
    assert row.low <= row.expected <= row.high
    assert (row.month_start, row.days_known) == (hours(0), 2)
    outlooks.refresh_outlooks(NOW + timedelta(hours=1))
    assert MonthOutlook.objects.count() == 3


def test_the_cost_of_a_draft_is_floor_likely_and_ceiling(priced):
    found = preview_cost(priced.vision, [line("h100", 4, 10), line("l4", 2)], NOW)
    assert found is not None
    assert found.floor.amount == 4 * 744 * 2
    assert found.ceiling.amount == 4 * 744 * 2 + 6 * 744 * 3
    # Two days of the last thirty had eight GPUs in use: four beyond the new floor.
    assert found.expected.amount == 4 * 744 * 2 + Decimal(48 * 4 * 3) * 744 / 720
    assert found.unpriced == ("l4",)


def test_owners_are_told_once_before_a_budget_ends_and_not_where_another_follows(busy: SmallFleet):
    """Whoever saves an end asks for the word; who took the rule away is not asked again."""
    with time_machine.travel(NOW, tick=False):
        end = NOW + timedelta(days=20)
        busy.revise(busy.vision, line("h100", 8), actor=busy.owner, valid_until=end)
        made = AlertRule.objects.get(measure="budget_end")
        assert (made.workspace, made.limit) == (busy.vision, 14)
        assert alerts.raise_alerts(NOW + timedelta(days=5)).raised == 0
    soon = end - timedelta(days=14)
    with time_machine.travel(soon, tick=False):
        assert [alerts.raise_alerts(soon).raised for _ in range(2)] == [1, 0]
        told = Alert.objects.get(rule=made)
        assert f"ends on {end:%Y-%m-%d %H:%M} UTC. Renew it" in told.text
        assert Delivery.objects.filter(alert=told, address=busy.owner.email).exists()
        # A revision that takes over at the end needs no word, and brings no second rule.
        busy.revise(busy.vision, line("h100", 8), actor=busy.owner, valid_from=end)
        assert ending_revision(Workspace.objects.get(pk=busy.vision.pk), soon) is None
        alerts.remove_rule(busy.owner, rule=made)
        later = end + timedelta(days=40)
        busy.revise(busy.vision, line("h100", 4), actor=busy.owner, valid_until=later)
        assert AlertRule.objects.filter(measure="budget_end").count() == 1


def test_the_end_of_a_budget_is_watched_in_one_workspace(busy: SmallFleet):
    with pytest.raises(Rejected) as caught:
        alerts.create_rule(None, measure="budget_end", limit=Decimal(3), account=busy.acme)
    assert {fault.code for fault in caught.value.faults} == {"one_workspace"}
