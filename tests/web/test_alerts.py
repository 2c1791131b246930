"""The page of alerts: what was raised, rules, webhooks, deliveries."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from budgets.models import Alert, AlertRule, Delivery, Webhook
from budgets.selectors.clock import utc_now
from budgets.services import alerts
from budgets.services.alerts.webhooks import signing_key
from tests.web.conftest import Visitors

RULE = {
    "section": "rules",
    "subject": "workspace:acme-vision",
    "measure": "hours",
    "limit": "100",
    "at_percent": "80",
    "window": "month",
}


def test_an_owner_adds_snoozes_and_removes_a_rule(visitors: Visitors):
    assert visitors["owner"].post("/alerts/", RULE).status_code == 302
    rule = AlertRule.objects.get()
    page = visitors.text("owner", "/alerts/")
    assert "80 % of 100.00 GPU-hours" in page
    assert 'data-label="Told at"' in page
    assert f'name="remove" value="{rule.pk}"' in page

    visitors["owner"].post("/alerts/", {"section": "snooze", "rule": rule.pk, "hours": "24"})
    rule.refresh_from_db()
    assert rule.snoozed_until is not None and rule.snoozed_until > utc_now()

    visitors["owner"].post("/alerts/", {"section": "rules", "remove": rule.pk})
    assert "80 % of 100.00" not in visitors.text("owner", "/alerts/")


def test_a_rule_that_is_wrong_says_what_is_wrong(visitors: Visitors):
    answer = visitors["owner"].post("/alerts/", {**RULE, "measure": "idle_share", "limit": "120"})
    assert answer.status_code == 422
    assert "120 is not a percentage; write a number from 1 to 100." in answer.content.decode()
    answer = visitors["owner"].post("/alerts/", {**RULE, "subject": "workspace:globex-search"})
    assert answer.status_code == 422
    assert not AlertRule.objects.exists()


def test_a_viewer_reads_and_changes_nothing(visitors: Visitors):
    made = alerts.create_rule(
        None, measure="hours", limit=Decimal(10), workspace=visitors.fleet.vision
    )
    text = visitors.text("viewer", "/alerts/")
    assert "100 % of 10.00" in text
    assert "Add rule" not in text
    visitors["viewer"].post("/alerts/", {"section": "rules", "remove": made.pk})
    made.refresh_from_db()
    assert made.removed_at is None
    assert "100 % of 10.00" not in visitors.text("stranger", "/alerts/")
    assert visitors["stranger"].post(
        "/alerts/", {"section": "rules", "remove": made.pk}
    ).status_code == 404  # fmt: skip


def test_a_signing_key_is_shown_once_and_to_platform_roles_only(visitors: Visitors):
    asked = {"section": "webhooks", "name": "Team", "url": "https://example.org/hook"}
    assert visitors["owner"].post("/alerts/", asked).status_code == 404
    page = visitors["finance"].post("/alerts/", asked, follow=True).content.decode()
    key = signing_key(Webhook.objects.get())
    assert re.search(rf"shown this once: {key}", page)
    assert key not in visitors.text("finance", "/alerts/")
    assert "https://example.org/hook" not in visitors.text("owner", "/alerts/")


def test_the_delivery_log_says_why_and_offers_another_try(visitors: Visitors):
    rule = alerts.create_rule(
        None, measure="hours", limit=Decimal(10), workspace=visitors.fleet.vision
    )
    now = utc_now()
    alert = Alert.objects.create(
        rule=rule,
        window_start=now,
        window_end=now,
        value=11,
        text="Vision has reached <b>11</b> GPU-hours.",
        raised_at=now,
    )
    row = Delivery.objects.create(
        alert=alert,
        channel="mail",
        address="olga@example.org",
        state="given_up",
        problem="the mail server did not accept it",
        next_at=now,
    )
    assert "&lt;b&gt;11" in visitors.text("owner", "/alerts/")
    assert "olga@example.org" not in visitors.text("owner", "/alerts/")
    page = visitors.text("finance", "/alerts/")
    assert "the mail server did not accept it" in page
    visitors["finance"].post("/alerts/", {"section": "deliveries", "remove": row.pk})
    row.refresh_from_db()
    assert row.state == "waiting"


@pytest.mark.parametrize("key", ["9" * 5_000, "9" * 4_000, "9" * 19, "٣", "-1", "", "1\n"])
def test_a_key_that_no_row_has_is_not_there(visitors: Visitors, key: str):
    for address, section, role in (
        ("/alerts/", "rules", "owner"),
        ("/alerts/", "webhooks", "admin"),
        ("/alerts/", "deliveries", "admin"),
        ("/setup/installation/", "labels", "admin"),
    ):
        answer = visitors[role].post(address, {"section": section, "remove": key})
        assert answer.status_code == 404, section
