"""The watch over the log sees what it has to see."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from budgets import services
from clusters.vault import seal
from portal.environment import is_secret
from portal.settings import env
from tests.builders import SmallFleet
from tests.second_factors import set_up
from tests.secrets import OPENS, WATCH, given_to
from tests.signin.test_pages import CORP


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


@pytest.mark.django_db
def test_second_factors_are_noticed(fleet: SmallFleet):
    app = set_up(fleet.owner)
    assert leaked(f"otpauth://totp/olga?secret={app.secret}")
    assert leaked(app.recovery[9])
    assert leaked(app.recovery[0].replace("-", ""))


def test_what_is_sealed_is_noticed():
    seal("apiVersion: v1\nusers:\n- user:\n    token: eyJhbGciOi.something.secret\n")
    assert leaked("Bearer eyJhbGciOi.something.secret")
    assert not leaked("apiVersion: v1")


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("SECRET_KEY", "signs-what-nobody-else-may", "signs-what-nobody-else-may"),
        ("PORTAL_CREDENTIAL_KEYS", ["the-newest-of-two", "the-older-of-two"], "the-older-of-two"),
        ("PORTAL_LEDGER_KEYS", ["signs-the-closed-months"], "signs-the-closed-months"),
        ("PORTAL_METRICS_TOKEN", "opens-the-numbers", "opens-the-numbers"),
        ("CELERY_BROKER_URL", "redis://portal:opens-the-broker@h/0", "opens-the-broker"),
        ("EMAIL_HOST_PASSWORD", "opens-the-mail-server", "opens-the-mail-server"),
        (
            "PORTAL_PROVIDERS",
            {"corp": replace(CORP, client_secret="opens-the-provider")},
            "opens-the-provider",
        ),
    ],
)
def test_what_a_setting_opens_is_noticed(settings: Any, name: str, value: Any, secret: str):
    """From the moment at which a test gives the setting a value of its own."""
    setattr(settings, name, value)
    assert leaked(f"found {secret} in it")


def test_no_setting_that_opens_something_is_left_out():
    """What the environment may hold is secret by its name, or named as one."""
    asked = env.names - {"PORTAL_PUBLIC_URL"} | {"PORTAL_OIDC_CORP_CLIENT_SECRET"}
    by_name = {name for name in asked if OPENS.search(name) or name.endswith("_URL")}
    assert by_name == {name for name in asked if is_secret(name)}
    for name in by_name:
        value = "x://u:opens-something@h/0" if name.endswith("_URL") else "opens-something"
        assert set(given_to({name: value})) == {"opens-something"}, name


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
