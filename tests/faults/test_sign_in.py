"""Attempts to sign in, counted in a real Redis by several processes of the web."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from tests.servers import free_port, redis_server

pytestmark = [pytest.mark.redis, pytest.mark.django_db]
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


def test_nobody_is_locked_out_while_redis_is_away(settings, caplog) -> None:
    counted_in(f"redis://127.0.0.1:{free_port()}/0", settings)
    assert [guess() for _ in range(12)] == [200] * 12
    assert "sign_in_not_counted" in caplog.text
