"""What costs much is limited per person, for pages and API together, and says when to come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from portal import fairness
from tests.builders import SmallFleet

pytestmark = pytest.mark.django_db
# Whatever is called so costs something, or is listed here as what does not.
COSTLY = ("preview", "export", "what-if", "what_if", "why", "inspection", "kubeconfig", "check")
CHEAP = {
    "export", "export_about", "export_plan_remove", "api:export-detail", "api:export-plan-detail",
    "api:what-if-detail", "admin:budgets_export_changelist", "admin:budgets_exportplan_changelist",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {kind: (2, words) for kind, (_, words) in fairness.MOST.items()}
    monkeypatch.setattr(fairness, "MOST", few)


@pytest.fixture
def admin(fleet: SmallFleet) -> Client:
    client = Client()
    client.force_login(fleet.admin)
    return client


def names(resolver: Any = None, above: str = "") -> Iterator[str]:
    for item in (resolver or get_resolver()).url_patterns:
        if isinstance(item, URLResolver):
            yield from names(item, above + (f"{item.namespace}:" if item.namespace else ""))
        elif isinstance(item, URLPattern) and item.name:
            yield above + item.name


def test_no_costly_door_is_left_out():
    known, doors = set(names()), {name for name, _ in fairness.DOORS}
    assert doors <= known
    costly = {
        name
        for name in known
        if any(word in name for word in COSTLY) and not name.startswith("admin:")
    }
    assert costly - doors - CHEAP == set()


def test_pages_and_api_share_an_allowance_and_say_when_there_is_another(admin: Client):
    for _ in range(2):
        assert admin.post("/what-if/", {"change": "none"}).status_code == 403
    refused = admin.post("/what-if/", {"change": "none"})
    assert refused.status_code == 429
    assert 0 < int(refused["Retry-After"]) <= fairness.WINDOW_S
    assert "You have asked for 2 what-if questions within a minute" in refused.content.decode()
    told = admin.post("/api/v1/what-if", {}, content_type="application/json")
    assert told.status_code == 429
    assert told.json()["code"] == "throttled"
    assert "the most that one person can have" in told.json()["message"]
    assert 0 < int(told["Retry-After"]) <= fairness.WINDOW_S


def test_part_of_a_page_is_told_in_a_sentence(admin: Client, fleet: SmallFleet):
    address = f"/workspaces/{fleet.vision.namespace}/budget/check/"
    for _ in range(2):
        admin.post(address, headers={"HX-Request": "true"})
    refused = admin.post(address, headers={"HX-Request": "true"})
    assert refused.status_code == 429
    assert refused.content.decode().startswith('<p class="note trouble" role="alert">You have')


def test_others_and_other_things_go_on(admin: Client, fleet: SmallFleet):
    for _ in range(3):
        admin.post("/what-if/", {"change": "none"})
    assert admin.get("/what-if/").status_code == 200
    assert admin.post("/exports/", {}).status_code != 429
    owner = Client()
    owner.force_login(fleet.owner)
    assert owner.post("/what-if/", {"change": "none"}).status_code == 403


def test_next_minute_has_an_allowance_of_its_own(admin: Client, monkeypatch: pytest.MonkeyPatch):
    for _ in range(3):
        admin.post("/what-if/", {"change": "none"})
    later = fairness.time.time() + fairness.WINDOW_S
    monkeypatch.setattr(fairness.time, "time", lambda: later)
    assert admin.post("/what-if/", {"change": "none"}).status_code == 403
