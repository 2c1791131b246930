"""Wrong passwords: counted per account and per address at every door, and nobody else shut out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import time_machine
from django.conf import settings
from django.core.cache import cache
from django.test import Client, RequestFactory

from budgets.models import AuditEntry, User
from portal.signin import REFUSED, SIGN_IN, Attempt, LoginThrottle, network_of
from tests.builders import PASSWORD
from tests.web.conftest import Visitors

LIMIT = 3
HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"
DOORS = ("/login/", "/api/v1/login", "/admin/login/")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three a minute, and a clock that stands in the middle of it."""
    monkeypatch.setattr(LoginThrottle, "rate", f"{LIMIT}/min", raising=False)
    cache.clear()
    with time_machine.travel("2026-11-22T10:00:20Z", tick=False):
        yield


def attempt(password: str, name: str = "olga", at: str = HERE, door: str = "/login/") -> bool:
    """Whether it opened the door."""
    given = {"username": name, "password": password}
    more = {"content_type": "application/json"} if door.startswith("/api/") else {}
    answer = Client(REMOTE_ADDR=at).post(door, given, **more)
    return answer.status_code == 201 or settings.SESSION_COOKIE_NAME in answer.cookies


@pytest.mark.parametrize("door", DOORS)
def test_account_is_locked_at_its_address_after_too_many_wrong_ones(visitors: Visitors, door: str):
    User.objects.filter(username="olga").update(is_staff=True)  # or one door never opened
    assert not any(attempt("wrong", door=door) for _ in range(LIMIT))
    assert not any(attempt(PASSWORD, door=other) for other in DOORS)
    refused = Client(REMOTE_ADDR=HERE).post("/login/", {"username": "olga", "password": PASSWORD})
    assert (refused.status_code, refused["Retry-After"]) == (429, "40")
    text = refused.content.decode()
    assert "Try again in 40 seconds" in text and "do not match" not in text
    with time_machine.travel("2026-11-22T10:01:00Z", tick=False):
        assert all(attempt(PASSWORD, door=other) for other in DOORS)


def test_wrong_current_passwords_are_counted_as_at_the_sign_in(visitors: Visitors):
    """Who sits at an open session of somebody else may not guess either."""
    client = Client(REMOTE_ADDR=HERE)
    client.force_login(visitors.fleet.owner)
    wanted = {"old_password": "wrong", "password": "a new and long password"}
    for _ in range(LIMIT):
        assert "not your current password" in client.post("/password/", wanted).content.decode()
    refused = client.post("/password/", {**wanted, "old_password": PASSWORD})
    assert (refused.status_code, refused["Retry-After"]) == (429, "40")
    assert "Try again in 40 seconds" in refused.content.decode()
    assert not any(attempt(PASSWORD, door=door) for door in DOORS)
    entries = AuditEntry.objects.filter(action=REFUSED, subject="user:olga")
    assert entries.count() == LIMIT and entries[0].after == {"network": HERE}
    with time_machine.travel("2026-11-22T10:01:00Z", tick=False):
        done = client.post("/password/", {**wanted, "old_password": PASSWORD})
    assert done.status_code == 302


def test_django_s_own_page_changes_no_password(visitors: Visitors):
    """It would end no token, write nothing down and count no guesses."""
    User.objects.filter(username="olga").update(is_staff=True)
    olga = User.objects.get(username="olga")
    client = Client()
    client.force_login(olga)
    new = "n3w!" * 9
    given = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    address = "/admin/password_change/"
    for answer in (client.get(address), client.post(address, given)):
        assert (answer.status_code, answer["Location"]) == (302, "/password/")
    olga.refresh_from_db()
    assert olga.check_password(PASSWORD)


def test_right_ones_do_not_count(visitors: Visitors):
    assert all(attempt(PASSWORD) for _ in range(LIMIT + 2))


def test_who_signed_in_from_an_address_is_not_shut_out_by_others_there(visitors: Visitors):
    assert attempt(PASSWORD)
    for number in range(LIMIT * 3):
        attempt("wrong", name=f"guess-{number}")
    assert not attempt(PASSWORD, name="ada"), "the address is over its limit"
    assert attempt(PASSWORD), "but olga is known there"


def test_who_signed_in_from_an_address_is_not_shut_out_by_guesses_elsewhere(visitors: Visitors):
    assert attempt(PASSWORD)
    for number in range(LIMIT * 3):
        attempt("wrong", at=f"198.51.100.{number}")
    assert not attempt(PASSWORD, at=ELSEWHERE), "the account is over its limit"
    assert attempt(PASSWORD)


def test_who_signed_in_long_ago_is_no_more_known_there(visitors: Visitors):
    assert attempt(PASSWORD)
    with time_machine.travel("2026-12-23T10:00:20Z", tick=False):
        for number in range(LIMIT * 3):
            attempt("wrong", at=f"198.51.100.{number}")
        assert not attempt(PASSWORD)


def test_even_who_is_known_there_may_not_guess_for_ever(visitors: Visitors):
    assert attempt(PASSWORD)
    assert not any(attempt("wrong") for _ in range(LIMIT))
    assert not attempt(PASSWORD)


def test_addresses_of_one_ipv6_network_are_one(visitors: Visitors):
    for number in range(LIMIT):
        attempt("wrong", name=f"somebody-{number}", at=f"2001:db8:1:2::{number:x}")
    assert not attempt(PASSWORD, at="2001:db8:1:2:ffff::1")
    cache.clear()
    for number in range(LIMIT):
        attempt("wrong", name="nobody", at=f"2001:db8:1:{number}::1")
    assert attempt(PASSWORD, at="2001:db8:1:9::1")


@pytest.mark.parametrize(
    ("address", "want"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("unknown", "unknown"),
    ],
)
def test_what_stands_for_a_client(address: str, want: str):
    assert network_of(address) == want


def test_what_a_client_claims_counts_only_from_our_own_proxies(visitors: Visitors):
    codes = [
        Client(REMOTE_ADDR=HERE, HTTP_X_FORWARDED_FOR=f"10.0.0.{n}").post(
            "/login/", {"username": f"somebody-{n}", "password": "wrong"}
        )
        for n in range(LIMIT + 1)
    ]
    assert [answer.status_code for answer in codes] == [200] * LIMIT + [429]


def test_sign_ins_and_refusals_are_in_the_audit_log(visitors: Visitors):
    assert attempt(PASSWORD)
    attempt("wrong", at=ELSEWHERE)
    attempt("wrong", name="nobody-at-all")
    entries = AuditEntry.objects.filter(action__in=[SIGN_IN, REFUSED]).order_by("pk")
    assert list(entries.values_list("action", "actor_name", "subject", "after__network")) == [
        (SIGN_IN, "olga", "user:olga", HERE),
        (REFUSED, "somebody", "user:olga", ELSEWHERE),
    ]


@pytest.mark.parametrize("name", ["", "x" * 5_000, "\x00", "olga\r\nevent=forged", "\ud800"])
def test_strange_names_are_refused_like_others(visitors: Visitors, name: str):
    for door in DOORS:
        assert not attempt("wrong", name=name.encode("utf-8", "replace").decode(), door=door)


def test_a_name_that_no_database_keeps_is_looked_for_in_none(visitors: Visitors):
    """Once the address is shut out, it is asked who is known there."""
    for number in range(LIMIT):
        attempt("wrong", name=f"somebody-{number}")
    given = {"username": "a\0b", "password": "wrong"}
    assert Client(REMOTE_ADDR=HERE).post("/login/", given).status_code == 429
    assert Attempt.of(RequestFactory().get("/"), "a\0b\ud800").username == "a\ufffdb\ufffd"
