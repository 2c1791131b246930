"""Signing in with a second factor, at every door; setting it up; who has to."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import time_machine
from django.conf import settings as in_force
from django.core.cache import cache
from django.test import Client

from budgets import services
from budgets.models import ApiToken, AuditEntry, SecondFactor, User
from portal.signin import REFUSED, SIGN_IN, LoginThrottle
from portal.web import company
from tests.builders import PASSWORD
from tests.second_factors import App, set_up
from tests.web.conftest import Visitors

LIMIT = 3
HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"
PART = {"HX-Request": "true"}
PAGE = "/second-factor/"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[time_machine.Traveller]:
    monkeypatch.setattr(LoginThrottle, "rate", f"{LIMIT}/min", raising=False)
    cache.clear()
    with time_machine.travel("2026-11-22T10:00:10Z", tick=False) as clock:
        yield clock


@pytest.fixture
def app(visitors: Visitors) -> App:
    """Olga's."""
    return set_up(visitors.fleet.owner)


def is_in(client: Client) -> bool:
    return client.get("/profile/").status_code == 200


def asked(client: Client, *, password: str = PASSWORD, **more) -> str:
    """The ticket of the second step."""
    given = {"username": "olga", "password": password, **more}
    text = client.post("/login/", given).content.decode()
    found = re.search(r'name="ticket" value="([^"]+)"', text)
    return found[1] if found else ""


def token(client: Client, **given):
    body = {"username": "olga", "password": PASSWORD, **given}
    return client.post("/api/v1/login", body, content_type="application/json")


# --- signing in


def test_a_password_alone_opens_no_door(visitors: Visitors, app: App):
    User.objects.filter(username="olga").update(is_staff=True)  # or one door never opened
    for door in ("/login/", "/admin/login/"):
        client = Client()
        client.post(door, {"username": "olga", "password": PASSWORD})
        assert in_force.SESSION_COOKIE_NAME not in client.cookies, door
        assert not is_in(client), door
    answer = token(Client())
    assert (answer.status_code, answer.json()["code"]) == (401, "authentication_failed")
    assert "second factor" in answer.json()["message"]
    assert not ApiToken.objects.exists()
    assert not AuditEntry.objects.filter(action=SIGN_IN).exists()


def test_django_s_own_admin_names_the_page_that_asks_for_the_code(visitors: Visitors, app: App):
    User.objects.filter(username="olga").update(is_staff=True)
    given = {"username": "olga", "password": PASSWORD}
    text = Client().post("/admin/login/", given).content.decode()
    assert "Sign in on the portal&#x27;s own page" in text
    wrong = Client().post("/admin/login/", {**given, "password": "wrong"}).content.decode()
    assert "own page" not in wrong


def test_the_code_after_the_password_opens_and_leads_where_one_wanted_to_go(
    visitors: Visitors, app: App
):
    client = Client()
    ticket = asked(client, next="/usage/")
    given = {"ticket": ticket, "code": app.code(), "next": "/usage/"}
    assert client.post("/login/", given)["Location"] == "/usage/"
    assert is_in(client)
    entry = AuditEntry.objects.get(action=SIGN_IN)
    assert (entry.actor_name, entry.after) == ("olga", {"network": "127.0.0.1"})


def test_it_leads_to_no_other_site(visitors: Visitors, app: App):
    client = Client()
    given = {"ticket": asked(client), "code": app.code(), "next": "https://evil.example/"}
    assert client.post("/login/", given)["Location"] == "/"


def test_a_recovery_code_opens_in_place_of_the_app(visitors: Visitors, app: App):
    client = Client()
    client.post("/login/", {"ticket": asked(client), "code": app.recovery[0]})
    assert is_in(client)
    again = Client()
    answer = again.post("/login/", {"ticket": asked(again), "code": app.recovery[0]})
    assert answer.status_code == 422 and not is_in(again)


def test_one_code_opens_one_session(visitors: Visitors, app: App):
    code = app.code()
    first, second = Client(), Client()
    for client in (first, second):
        client.post("/login/", {"ticket": asked(client), "code": code})
    assert is_in(first) and not is_in(second)
    assert token(Client(), code=code).status_code == 401


def test_in_place_too_a_code_is_asked_for(visitors: Visitors, app: App):
    client = Client(headers=PART)
    given = {"username": "olga", "password": PASSWORD, "was": "olga"}
    text = client.post("/login/", given).content.decode()
    assert "Your session has ended" in text and "data-token" not in text
    ticket = re.search(r'name="ticket" value="([^"]+)"', text)[1]
    wrong = client.post("/login/", {"ticket": ticket, "code": "000000", "was": "olga"})
    assert wrong.status_code == 422 and "This code is wrong" in wrong.content.decode()
    right = client.post("/login/", {"ticket": ticket, "code": app.code(), "was": "olga"})
    assert "data-token" in right.content.decode()
    assert is_in(client)


def test_the_api_gives_a_token_for_password_and_code(visitors: Visitors, app: App):
    assert token(Client(), code=app.code()).status_code == 201
    assert token(Client(), code=app.code()).status_code == 401, "the code is used up"


@pytest.mark.parametrize("door", ["page", "api"])
def test_wrong_codes_count_as_wrong_passwords_do(visitors: Visitors, app: App, door: str):
    client = Client(REMOTE_ADDR=HERE)
    ticket = asked(client)
    for _ in range(LIMIT):
        if door == "api":
            assert token(client, code="000000").status_code == 401
        else:
            answer = client.post("/login/", {"ticket": ticket, "code": "000000"})
            assert answer.status_code == 422
    refused = client.post("/login/", {"ticket": ticket, "code": app.code()})
    assert (refused.status_code, refused["Retry-After"]) == (429, "50")
    assert token(client, code=app.code()).status_code == 429
    given = {"username": "olga", "password": PASSWORD}
    assert client.post("/login/", given).status_code == 429
    assert not is_in(client)
    entries = AuditEntry.objects.filter(action=REFUSED, subject="user:olga")
    assert entries.count() == LIMIT and entries[0].after == {"network": HERE}


def test_whose_password_alone_was_right_is_not_known_at_an_address(visitors: Visitors, app: App):
    """Or a stranger with the password would be let off the limits of address and account."""
    assert asked(Client(REMOTE_ADDR=HERE))
    for number in range(LIMIT * 3):
        Client(REMOTE_ADDR=HERE).post("/login/", {"username": f"x-{number}", "password": "wrong"})
    given = {"username": "olga", "password": PASSWORD}
    assert Client(REMOTE_ADDR=HERE).post("/login/", given).status_code == 429


def test_a_ticket_ends(visitors: Visitors, app: App, few: time_machine.Traveller):
    late = "Too much time has passed"
    client = Client()
    ticket = asked(client)
    for made_up in ("", "x", ticket[:-1], "\x00"):
        given = {"ticket": made_up, "code": app.code()}
        assert late in client.post("/login/", given).content.decode()
    services.set_password(None, user=visitors.fleet.owner, password="another long one 77")
    given = {"ticket": ticket, "code": app.code()}
    assert late in client.post("/login/", given).content.decode(), "with the password"
    ticket = asked(client, password="another long one 77")
    few.shift(301)
    given = {"ticket": ticket, "code": app.code()}
    assert late in client.post("/login/", given).content.decode(), "after five minutes"
    ticket = asked(client, password="another long one 77")
    User.objects.filter(username="olga").update(is_active=False)
    given = {"ticket": ticket, "code": app.code()}
    assert late in client.post("/login/", given).content.decode(), "with the account"
    assert not is_in(client)


# --- one's own page


def begun(client: Client) -> tuple[App, str]:
    answer = client.post(PAGE, {"deed": "begin", "old_password": PASSWORD})
    text = answer.content.decode()
    return App(re.search(r"<pre>((?:[A-Z2-7]{4} ?){8})</pre>", text)[1].replace(" ", "")), text


def test_it_is_set_up_with_password_and_code_and_each_secret_shown_once(visitors: Visitors):
    client = visitors["owner"]
    assert client.post(PAGE, {"deed": "begin", "old_password": "wrong"}).status_code == 422
    app, text = begun(client)
    picture = text[text.index('<svg role="img"') :].split("</svg>")[0]
    assert "style" not in picture and "script" not in picture
    wrong = client.post(PAGE, {"deed": "confirm", "code": "000000"})
    assert wrong.status_code == 422 and app.secret[:4] not in wrong.content.decode()
    assert app.secret[:4] not in visitors.text("owner", PAGE)
    done = client.post(PAGE, {"deed": "confirm", "code": app.code()})
    codes = re.findall(r"[a-z2-9]{4}(?:-[a-z2-9]{4}){3}", done.content.decode())
    assert (done.status_code, len(codes)) == (200, 10)
    text = visitors.text("owner", PAGE)  # this session goes on
    assert "10 recovery codes unused" in text and codes[0] not in text
    assert "no-store" in done["Cache-Control"]
    assert services.use_code(visitors.fleet.owner, code=codes[0])


def test_other_sessions_end_when_it_is_set_up(visitors: Visitors):
    other = Client()
    other.force_login(visitors.fleet.owner)
    app, _ = begun(visitors["owner"])
    visitors["owner"].post(PAGE, {"deed": "confirm", "code": app.code()})
    assert not is_in(other) and is_in(visitors["owner"])


def test_it_is_removed_with_password_and_code(visitors: Visitors, app: App):
    client = Client(REMOTE_ADDR=HERE)
    client.force_login(User.objects.get(username="olga"))
    code = app.code()
    for old_password, given in (("wrong", code), (PASSWORD, "000000")):
        answer = client.post(PAGE, {"deed": "drop", "old_password": old_password, "code": given})
        assert answer.status_code == 422
    assert SecondFactor.objects.exists()
    assert client.post(PAGE, {"deed": "begin", "old_password": PASSWORD}).status_code == 404
    done = client.post(PAGE, {"deed": "drop", "old_password": PASSWORD, "code": code})
    assert done.status_code == 302 and not SecondFactor.objects.exists()


def test_wrong_ones_on_that_page_count_as_at_the_sign_in(visitors: Visitors, app: App):
    client = Client(REMOTE_ADDR=HERE)
    client.force_login(User.objects.get(username="olga"))
    for old_password, code in (("wrong", app.code()), (PASSWORD, "000000"), (PASSWORD, "000001")):
        client.post(PAGE, {"deed": "renew", "old_password": old_password, "code": code})
    given = {"deed": "renew", "old_password": PASSWORD, "code": app.code()}
    assert client.post(PAGE, given).status_code == 429
    assert token(Client(REMOTE_ADDR=HERE), code=app.code()).status_code == 429


def test_new_recovery_codes_take_the_place_of_the_old_ones(visitors: Visitors, app: App):
    client = Client()
    client.force_login(User.objects.get(username="olga"))
    given = {"deed": "renew", "old_password": PASSWORD, "code": app.code()}
    text = client.post(PAGE, given).content.decode()
    codes = re.findall(r"[a-z2-9]{4}(?:-[a-z2-9]{4}){3}", text)
    assert len(codes) == 10 and not set(codes) & set(app.recovery)


def test_an_admin_removes_it_on_the_person_s_page(visitors: Visitors, app: App):
    admin, address = visitors["admin"], f"/setup/people/{visitors.fleet.owner.pk}/"
    assert "Remove the second factor" in visitors.text("admin", address)
    admin.post(address, {"section": "second_factor", "reason": "lost the phone"})
    assert not SecondFactor.objects.exists()
    assert "Remove the second factor" not in visitors.text("admin", address)


def test_an_admin_s_own_is_not_removed_there(visitors: Visitors):
    set_up(visitors.fleet.admin)
    admin = Client()
    admin.force_login(User.objects.get(username="ada"))
    address = f"/setup/people/{visitors.fleet.admin.pk}/"
    assert admin.post(address, {"section": "second_factor", "reason": "x"}).status_code == 404
    assert SecondFactor.objects.exists()


# --- who has to


@pytest.fixture
def required(settings) -> None:
    settings.PORTAL_SECOND_FACTOR = "required"


@pytest.mark.parametrize("role", ["admin", "finance"])
def test_who_has_to_is_led_to_set_it_up_from_everywhere(
    visitors: Visitors, required: None, role: str
):
    client = visitors[role]
    company_s = "/signin/corp/"  # or a stranger with the password would tie an account to it
    pages = ("/", "/usage/", "/setup/people/", "/tokens/", "/password/", "/admin/", company_s)
    for address in pages:
        assert client.get(address)["Location"] == PAGE, address
    assert client.post("/tokens/", {"name": "x", "scope": "write", "days": 7})["Location"] == PAGE
    assert client.get("/usage/", headers=PART)["HX-Redirect"] == PAGE
    assert client.post(company_s)["Location"] == PAGE
    for method in (client.get, client.post):
        answer = method("/api/v1/me")
        assert (answer.status_code, answer.json()["code"]) == (403, "second_factor_required")
    assert "Your role needs a second factor" in visitors.text(role, PAGE)
    app, _ = begun(client)
    client.post(PAGE, {"deed": "confirm", "code": app.code()})
    assert client.get("/usage/").status_code == 200
    assert client.get("/api/v1/me").status_code == 200


def test_who_has_to_can_sign_out(visitors: Visitors, required: None):
    visitors["admin"].post("/logout/")
    assert visitors["admin"].get("/")["Location"] == "/login/?next=/"


@pytest.mark.parametrize("role", ["auditor", "owner", "viewer", "nobody"])
def test_nobody_else_has_to(visitors: Visitors, required: None, role: str):
    assert visitors[role].get("/profile/").status_code == 200


def test_nobody_has_to_where_it_is_voluntary(visitors: Visitors):
    assert visitors["admin"].get("/").status_code == 200


def test_tokens_of_who_has_to_open_nothing_until_then(visitors: Visitors, required: None):
    admin = visitors.fleet.admin
    in_force_until = services.utc_now().replace(year=2027)
    _, text = services.create_api_token(
        admin, user=admin, name="ci", scope="read", expires_at=in_force_until
    )
    client = Client(headers={"Authorization": f"Token {text}"})
    answer = client.get("/api/v1/me")
    assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
    assert "Your role needs a second factor" in answer.json()["message"]
    answer = token(Client(), username="ada")
    assert answer.status_code == 403 and ApiToken.objects.count() == 1
    set_up(admin)
    assert client.get("/api/v1/me").status_code == 200


def test_who_came_by_the_company_is_not_asked(visitors: Visitors, required: None):
    """The provider asks for what it wants; in a session by password the same person has to."""
    client = visitors["admin"]
    session = client.session
    session[company.KEPT] = ["corp", ""]
    session.save()
    assert client.get("/").status_code == 200
    by_password = Client()
    by_password.post("/login/", {"username": "ada", "password": PASSWORD})
    assert by_password.get("/")["Location"] == PAGE


def test_who_has_no_password_is_not_asked(visitors: Visitors, required: None):
    admin = visitors.fleet.admin
    admin.set_unusable_password()
    admin.save()
    client = Client()
    client.force_login(admin)
    assert client.get("/").status_code == 200


def test_where_passwords_are_off_the_account_for_emergencies_has_to(
    visitors: Visitors, required: None, settings
):
    settings.PORTAL_LOCAL_PASSWORDS, settings.PORTAL_BREAK_GLASS = False, "ada"
    assert visitors["admin"].get("/")["Location"] == PAGE
    assert visitors["finance"].get("/").status_code == 200, "no password opens this one"


def test_the_account_for_emergencies_is_told_once_the_code_is_right(
    visitors: Visitors, settings, required: None
):
    settings.PORTAL_LOCAL_PASSWORDS, settings.PORTAL_BREAK_GLASS = False, "ada"
    app = set_up(visitors.fleet.admin)
    told = AuditEntry.objects.filter(action="session.break_glass")
    client = Client()
    ticket = asked(client, username="ada")
    assert not told.exists()
    client.post("/login/", {"ticket": ticket, "code": app.code()})
    assert told.count() == 1 and client.get("/").status_code == 200
