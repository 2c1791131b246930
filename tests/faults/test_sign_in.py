"""Attempts to sign in, counted in a real Redis by several processes of the web."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from budgets import services
from portal import fairness
from portal.counting import own
from tests.servers import redis_server

pytestmark = [
    pytest.mark.redis,
    pytest.mark.django_db,
    pytest.mark.usefixtures("at_one_moment"),  # counts are those of a minute
]
GUESS = {"username": "olga", "password": "wrong"}


@pytest.fixture
def url() -> Iterator[str]:
    with redis_server() as url:
        yield url


def counted_in(url: str, settings) -> None:
    """As a process that has just begun."""
    options = {"socket_timeout": 1, "socket_connect_timeout": 1}
    backend = "django.core.cache.backends.redis.RedisCache"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": url, "OPTIONS": options}}


def guess() -> int:
    return Client(REMOTE_ADDR="192.0.2.9").post("/login/", GUESS).status_code


def test_wrong_passwords_count_in_every_process(url: str, settings) -> None:
    counted_in(url, settings)
    first = [guess() for _ in range(5)]
    counted_in(url, settings)  # another one
    assert first == [200] * 5
    assert [guess() for _ in range(6)][-1] == 429


@pytest.fixture
def stopped(settings) -> Iterator[str]:
    """Five wrong passwords were counted in a Redis that has stopped since."""
    own.clear()
    with redis_server() as url:
        counted_in(url, settings)
        assert [guess() for _ in range(5)] == [200] * 5
    yield url
    own.clear()


def test_while_redis_is_away_each_process_counts_by_itself(stopped: str, caplog) -> None:
    found = [guess() for _ in range(12)]
    assert found == [200] * 10 + [429] * 2, "as many as one process may take, and no more"
    assert "counted_by_one_process" in caplog.text


def test_who_has_the_password_comes_in_while_redis_is_away(stopped: str) -> None:
    services.create_user(None, username="vera", email="", password="a long word of vera")
    [guess() for _ in range(12)]
    client = Client(REMOTE_ADDR="192.0.2.10")
    right = {"username": "vera", "password": "a long word of vera"}
    assert client.post("/login/", right).status_code == 302


def test_allowances_are_counted_while_redis_is_away(stopped: str, fleet, monkeypatch) -> None:
    monkeypatch.setitem(fairness.MOST, fairness.WHAT_IF, (2, "what-if questions"))
    client = Client()
    client.force_login(fleet.admin)
    found = [client.post("/what-if/", {"change": "none"}) for _ in range(3)]
    assert "You have asked for 2 what-if questions" in found[-1].content.decode()
    assert [answer.status_code for answer in found][:2] == [403, 403]
    assert found[-1].has_header("Retry-After")
