from __future__ import annotations

import pytest
from django.test import Client

from budgets.models import ApiToken
from tests.builders import PASSWORD
from tests.web.conftest import Visitors


def test_login_leads_to_the_page_that_was_asked_for(visitors: Visitors):
    client = Client()
    asked = client.get("/usage/?days=30")

    assert asked["Location"] == "/login/?next=/usage/%3Fdays%3D30"
    answer = client.post(
        asked["Location"], {"username": "olga", "password": PASSWORD, "next": "/usage/?days=30"}
    )
    assert answer["Location"] == "/usage/?days=30"


def test_login_does_not_lead_elsewhere(visitors: Visitors):
    values = {"username": "olga", "password": PASSWORD, "next": "https://evil.example/"}

    assert Client().post("/login/", values)["Location"] == "/"


def test_wrong_password_says_nothing_about_the_name(visitors: Visitors):
    known = Client().post("/login/", {"username": "olga", "password": "wrong"}).content.decode()
    unknown = Client().post("/login/", {"username": "nope", "password": "wrong"}).content.decode()

    assert "do not match" in known and "do not match" in unknown


def test_logout_is_a_post(visitors: Visitors):
    client = visitors["owner"]

    assert client.get("/logout/").status_code == 405
    client.post("/logout/")
    assert client.get("/").status_code == 302


def test_token_is_shown_once_and_opens_until_it_is_ended(visitors: Visitors):
    client = visitors["owner"]
    answer = client.post("/tokens/", {"name": "ci", "scope": "read", "days": 30})
    plaintext = answer.context["plaintext"]

    assert plaintext in answer.content.decode()
    assert plaintext not in visitors.text("owner", "/tokens/")
    token = ApiToken.objects.get()
    assert visitors["stranger"].post(f"/tokens/{token.pk}/revoke/").status_code == 404
    client.post(f"/tokens/{token.pk}/revoke/")
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_password_change_needs_the_old_one_and_keeps_this_session(visitors: Visitors):
    client, owner = visitors["owner"], visitors.fleet.owner
    values = {"old_password": "wrong", "password": "another long one 77"}

    assert client.post("/password/", values).status_code == 422
    short = client.post("/password/", {"old_password": PASSWORD, "password": "short"})
    assert "password" in short.context["form"].errors
    assert client.post("/password/", {**values, "old_password": PASSWORD}).status_code == 302
    owner.refresh_from_db()
    assert owner.check_password("another long one 77")
    assert client.get("/").status_code == 200


def test_times_are_shown_in_the_readers_zone_with_utc_on_hover(visitors: Visitors):
    client = visitors["admin"]

    assert client.post("/profile/", {"time_zone": "Mars/Olympus"}).status_code == 422
    client.post("/profile/", {"time_zone": "Asia/Tokyo"})
    text = visitors.text("admin", "/setup/capacity/")

    # The small fleet states its capacity at midnight UTC.
    assert 'title="2026-02-28 00:00:00 UTC">2026-02-28 09:00</time>' in text


@pytest.mark.parametrize("address", ["/tokens/", "/password/"])
def test_pages_with_secrets_are_kept_nowhere(visitors: Visitors, address: str):
    assert "no-store" in visitors["owner"].get(address)["Cache-Control"]
