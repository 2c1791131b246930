"""The watch over the log sees what it has to see."""

from __future__ import annotations

import logging
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

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


@pytest.mark.parametrize(
    ("name", "value", "written", "want"),
    [
        ("PORTAL_SECRET_KEY", "of-a-process-alone", "of-a-process-alone", True),
        ("PORTAL_LEDGER_KEYS", "the-first-of-keys,the-second-of-keys", "the-second-of-keys", True),
        ("CELERY_BROKER_URL", "redis://portal:a-word-to-pass@h/0", "a-word-to-pass", True),
        ("PORTAL_INSTALLATION", "of-no-use-to-anybody", "of-no-use-to-anybody", False),
    ],
)
def test_what_a_process_writes_to_its_log_is_noticed(
    tmp_path: Path, name: str, value: str, written: str, want: bool
):
    with (tmp_path / "process.log").open("wb") as log:
        code = f"print('begun'); print('found {written} in it')"
        subprocess.run(
            [sys.executable, "-c", code], env={name: value}, stdout=log, stderr=log, check=True
        )
    WATCH.read_files()
    found = WATCH.leaks[:]
    WATCH.leaks.clear()
    WATCH.given.clear()
    assert found == (["a line of process.log"] if want else [])
