"""Spend rules on their page and in the API."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import pytest
from django.test import Client

from budgets import selectors, services
from budgets.models import AuditEntry, BreakGlass, Role, SpendEffect, SpendRule
from budgets.selectors.spending import effect_of
from budgets.services.spending import settle_spending
from tests.builders import PASSWORD, hours
from tests.spending.conftest import at, ruled, running

PAGE = "/workspaces/acme-vision/spend/"
API = "/api/v1/workspaces/acme-vision/budget/spend-rules"


def client_of(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def owner(fleet) -> Client:
    return client_of(fleet.owner)


def posted(client: Client, section: str, **typed):
    return client.post(PAGE, {"section": section, **typed}, follow=True)


NEW = {
    "amount": "40",
    "unit": "gpu_hours",
    "window": "day",
    "counts": "above_floor",
    "action": "hold_and_drain",
    "grace_minutes": "30",
    "warn_at_percent": "80",
    "reason": "the grant says so",
}


def test_a_cap_is_typed_as_a_sentence_and_what_means_nothing_is_left_out(fleet, owner):
    page = owner.get(PAGE).content.decode()
    words = re.sub(r"<label.*?</label>", "", page, flags=re.S)
    words = re.sub(r"<select.*?</select>|<input[^>]*>", "[]", words, flags=re.S)
    assert "[] when [] passes [] [] in a []" in re.sub(r"\s+", " ", words)
    assert 'class="means-with drain"' in page and 'class="means-with grant"' in page

    typed = {**NEW, "action": "drop_to_floor", "grant_start": "2026-01-01T00:00"}
    posted(owner, "add", **typed)
    rule = SpendRule.objects.get()
    assert (rule.grace_minutes, rule.grant_start) == (0, None)


def test_an_owner_adds_changes_and_removes_a_cap(fleet, owner):
    assert "There is no cap yet" in owner.get(PAGE).content.decode()
    text = posted(owner, "add", **NEW).content.decode()
    assert "The cap is in force." in text
    assert "40 GPU-hours of burst a day" in text
    assert "Running jobs are stopped 30 minutes later" in text
    assert text.count('class="primary"') == 1
    assert "admission check" not in text
    rule = SpendRule.objects.get()
    posted(owner, "change", rule=rule.pk, amount="60", reason="topped up")
    rule.refresh_from_db()
    assert (rule.amount, rule.grace_minutes) == (Decimal(60), 30)
    posted(owner, "remove", rule=rule.pk, reason="enough")
    assert not SpendRule.objects.filter(removed_at=None).exists()
    assert AuditEntry.objects.filter(action="budget.spend_rule", actor=fleet.owner).count() == 3


def test_the_page_shows_how_full_a_cap_is_and_when_it_will_be_reached(fleet, owner):
    ruled(fleet, 40)
    running(fleet, 0)
    with at(2):
        text = owner.get(PAGE).content.decode()
    assert '<progress max="100" value="40"' in text
    assert "16.00 of 40" in text
    assert "2026-03-01 05:00" in text
    assert "at the present rate" in text
    assert "Room left" in text
    with at(5):
        settle_spending()
        text = owner.get(PAGE).content.decode()
        home = owner.get("/workspaces/acme-vision/").content.decode()
    assert "Reached" in text
    assert "New jobs are held; running jobs go on." in text
    assert "New jobs are held, and running jobs go on." in home


def test_broken_glass_stands_beside_the_cap(fleet, owner):
    rule = ruled(fleet, 40)
    running(fleet, 0)
    with at(6):
        settle_spending()
        text = posted(
            owner, "glass", rule=rule.pk, until="2026-03-01T08:00", reason="deadline"
        ).content.decode()
        assert "Suspended by olga" in text
        assert "deadline" in text
        assert not SpendEffect.objects.exists()
        posted(owner, "glass", rule=rule.pk, until="", reason="done")
        assert SpendEffect.objects.exists()


def test_faults_stand_beside_their_field(fleet, owner):
    answer = owner.post(PAGE, {"section": "add", **NEW, "counts": "everything"})
    assert answer.status_code == 422
    text = answer.content.decode()
    assert "below what the committed GPUs alone come to" in text
    assert "200" in text
    assert owner.post(PAGE, {"section": "nothing"}).status_code == 404


def test_who_may_not_change_sees_caps_without_forms(fleet):
    ruled(fleet, 40)
    auditor = client_of(fleet.auditor)
    text = auditor.get(PAGE).content.decode()
    assert "40 GPU-hours" in text
    assert "Add a cap" not in text
    assert auditor.post(PAGE, {"section": "add", **NEW}).status_code == 404
    stranger = services.create_user(
        None, username="sam", email="sam@example.org", password=PASSWORD
    )
    services.grant_role(None, user=stranger, role=Role.OWNER, workspace=fleet.search)
    assert client_of(stranger).get(PAGE).status_code == 404


def test_an_owner_cannot_choose_a_rule_of_the_platform(fleet, owner):
    rule = ruled(fleet, 40, actor=fleet.finance)
    assert "Remove a cap" not in owner.get(PAGE).content.decode()
    own = ruled(fleet, 50)
    answer = owner.post(PAGE, {"section": "remove", "rule": rule.pk, "reason": "x"})
    assert answer.status_code == 422
    assert SpendRule.objects.filter(removed_at=None).count() == 2
    assert own.pk


def test_the_page_costs_the_same_queries_however_many_rules(
    fleet, owner, django_assert_max_num_queries
):
    ruled(fleet, 40)
    with django_assert_max_num_queries(30):
        owner.get(PAGE)
    for amount in (50, 60, 70):
        ruled(fleet, amount)
    with django_assert_max_num_queries(30):
        owner.get(PAGE)


def test_what_rules_do_now_costs_other_pages_no_query(fleet, django_assert_num_queries):
    found = selectors.workspace_for(fleet.owner, "acme-vision")
    with django_assert_num_queries(0):
        assert effect_of(found) is None


# API


def call(client: Client, method: str, path: str, body=None):
    return client.generic(
        method, path, json.dumps(body) if body is not None else "", "application/json"
    )


def test_api_walks_a_rule_from_its_making_to_its_end(fleet, owner):
    body = {"unit": "gpu_hours", "amount": "40", "window": "day", "action": "hold", "reason": "x"}
    made = call(owner, "POST", API, body)
    assert made.status_code == 201, made.content
    key = made.json()["id"]
    running(fleet, 0)
    with at(6):
        settle_spending()
        found = owner.get(API).json()
    assert (found[0]["spent"], found[0]["spent_per_hour"]) == ("48.00", "8.00")
    assert found[0]["reached_at"] == "2026-03-01T06:00:00Z"
    assert found[0]["running_jobs"] == "Running jobs go on at their price until they end."
    with at(7):
        body = {"until": "2026-03-01T09:00:00Z", "reason": "deadline"}
        broken = call(owner, "POST", f"{API}/{key}/glass", body)
        assert broken.json()["suspended"]["person"] == "olga", broken.content
        call(owner, "POST", f"{API}/{key}/glass", {"until": None, "reason": "done"})
        assert BreakGlass.objects.get().until == hours(7)
        raised = call(owner, "PATCH", f"{API}/{key}", {"amount": "90", "reason": "topped up"})
        assert raised.json()["reached_at"] is None
        gone = call(owner, "POST", f"{API}/{key}/remove", {"reason": "enough"})
    assert gone.status_code == 204
    assert owner.get(f"{API}/{key}").status_code == 404


def test_api_names_what_is_wrong(fleet, owner):
    body = {"unit": "gpu_hours", "amount": "40", "window": "day", "counts": "everything"}
    answer = call(owner, "POST", API, {**body, "reason": "x"})
    assert answer.status_code == 422
    assert "below_floor" in answer.content.decode()
    assert call(owner, "POST", API, body).status_code == 422, "no reason"
    rule = ruled(fleet, 40, actor=fleet.finance)
    body = {"amount": "90", "reason": "x"}
    assert call(owner, "PATCH", f"{API}/{rule.pk}", body).status_code == 403
    other = API.replace("acme-vision", "globex-search")
    assert owner.get(other).status_code == 404
    assert owner.get(f"{other}/{rule.pk}").status_code == 404


def test_pages_tell_when_a_cap_will_stop_running_jobs(fleet, owner):
    ruled(fleet, 40, action="hold_and_drain", grace_minutes=30)
    running(fleet, 0)
    with at(5):
        settle_spending()
        text = owner.get(PAGE).content.decode()
        home = owner.get("/workspaces/acme-vision/").content.decode()
    said = "running jobs are stopped <time"
    assert said in text.partition("</h1>")[2].partition("</p>")[0]
    assert "and running jobs are stopped <time" in home and "2026-03-01 05:30" in home
