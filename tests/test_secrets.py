"""The watch over the log sees what it has to see."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from budgets import services
from clusters.vault import seal
from tests.builders import SmallFleet
from tests.secrets import WATCH


def leaked(text: str) -> bool:
    """Whether a line with this text is noticed."""
    logging.getLogger("tests.leaky").warning("told too much", extra={"detail": text})
    found = bool(WATCH.leaks)
    WATCH.leaks.clear()
    return found


@pytest.mark.django_db
def test_tokens_and_passwords_are_noticed(fleet: SmallFleet):
    until = services.utc_now() + timedelta(days=1)
    _, token = services.create_api_token(
        None, user=fleet.owner, name="ci", scope="read", expires_at=until
    )
    services.set_password(None, user=fleet.owner, password="a rather long secret 7")
    assert leaked(f"Authorization: Token {token}")
    assert leaked("a rather long secret 7")
    assert not leaked("a harmless line")


def test_what_is_sealed_is_noticed():
    seal("apiVersion: v1\nusers:\n- user:\n    token: eyJhbGciOi.something.secret\n")
    assert leaked("Bearer eyJhbGciOi.something.secret")
    assert not leaked("apiVersion: v1")
