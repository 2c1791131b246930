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


PART = {"HX-Request": "true"}
BOOSTED = {"HX-Request": "true", "HX-Boosted": "true"}


@pytest.mark.parametrize(("method", "headers"), [("get", PART), ("post", PART), ("post", BOOSTED)])
def test_open_page_is_asked_to_sign_in_in_place(visitors: Visitors, method: str, headers):
    answer = getattr(Client(), method)("/workspaces/acme-vision/", headers=headers)
    assert answer.status_code == 401
    assert answer["HX-Push-Url"] == "false"
    assert "Your session has ended" in answer.content.decode()


def test_link_of_a_page_whose_session_ended_leads_to_the_sign_in(visitors: Visitors):
    answer = Client().get("/usage/", headers=BOOSTED)
    assert answer["Location"] == "/login/?next=/usage/"


def test_who_signs_in_in_place_gets_the_token_for_the_forms_that_stand_open(visitors: Visitors):
    client = Client()
    values = {"username": "olga", "password": PASSWORD, "was": "olga"}
    answer = client.post("/login/", values, headers=PART)
    assert (answer.status_code, "Location" in answer) == (200, False)
    assert "data-token" in answer.content.decode()
    assert client.get("/profile/").status_code == 200


def test_somebody_else_who_signs_in_in_place_leaves_the_page(visitors: Visitors):
    values = {"username": "ada", "password": PASSWORD, "was": "olga"}
    answer = Client().post("/login/", values, headers=PART)
    assert answer["HX-Redirect"] == "/"


@pytest.mark.usefixtures("at_one_moment")
def test_wrong_password_in_place_is_told_there(visitors: Visitors):
    values = {"username": "olga", "password": "wrong", "was": "olga"}
    answer = Client().post("/login/", values, headers=PART)
    assert answer.status_code == 422
    assert "do not match" in answer.content.decode()
    for _ in range(20):
        answer = Client().post("/login/", values, headers=PART)
    assert answer.status_code == 429
    assert "<html" not in answer.content.decode()


def test_page_asks_before_a_form_leaves_it(visitors: Visitors):
    assert Client().get("/login/", headers=PART).status_code == 401
    assert visitors["owner"].get("/login/", headers=PART).status_code == 204
