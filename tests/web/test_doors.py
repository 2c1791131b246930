"""What holds for every request and answer, whoever asks."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys

import pytest
from cryptography.fernet import Fernet
from django.test import Client

from tests.lanes import ROOT
from tests.web.conftest import Visitors

KEPT_NOWHERE = "no-store"


@pytest.mark.parametrize(
    "path", ["/", "/usage/", "/login/", "/audit/", "/api/v1/me", "/api/v1/workspaces", "/nowhere/"]
)
def test_nothing_that_somebody_may_see_stays_in_a_cache(visitors: Visitors, path: str):
    for client in (visitors["owner"], Client()):
        assert KEPT_NOWHERE in client.get(path)["Cache-Control"]


def test_a_body_over_the_limit_is_refused_before_it_is_parsed(visitors: Visitors, settings):
    settings.PORTAL_BODY_LIMIT = 1_000
    client = visitors["admin"]
    page = client.post("/password/", {"old_password": "x" * 2_000})
    assert page.status_code == 413
    assert "more than the 1,000 bytes that one request can have" in page.content.decode()
    part = client.post("/password/", {"old_password": "x" * 2_000}, headers={"HX-Request": "true"})
    assert part.status_code == 413 and "<html" not in part.content.decode()
    answer = client.post("/api/v1/login", "x" * 2_000, content_type="application/json")
    assert answer.status_code == 413
    assert answer.json()["code"] == "too_large" and "1,000 bytes" in answer.json()["message"]
    assert client.post("/password/", {"old_password": "x"}).status_code != 413


def settings_of(**environment: str) -> dict[str, object]:
    names = ("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_SSL_REDIRECT", "NUM_PROXIES")
    code = (
        "import json; from portal import settings as s; "
        "s.NUM_PROXIES = s.REST_FRAMEWORK['NUM_PROXIES']; "
        f"print(json.dumps({{name: getattr(s, name) for name in {names!r}}}))"
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PORTAL_")}
    said = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, env=clean | environment)
    return dict(json.loads(said))


def test_https_is_on_unless_somebody_switches_it_off():
    assert settings_of()["SESSION_COOKIE_SECURE"] is True
    assert settings_of()["SECURE_SSL_REDIRECT"] is True
    assert settings_of(PORTAL_HTTPS="false")["CSRF_COOKIE_SECURE"] is False


def test_health_is_asked_for_without_tls(visitors: Visitors, settings):
    settings.SECURE_SSL_REDIRECT = True
    assert Client().get("/healthz").status_code == 200
    assert Client().get("/readyz").status_code == 200
    assert Client().get("/login/").status_code == 301


def test_deployment_is_as_django_asks():
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PORTAL_")},
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "PORTAL_SECRET_KEY": "only-to-be-checked-" + "aB3-xY9_" * 8,
        "PORTAL_CREDENTIAL_KEYS": Fernet.generate_key().decode(),
        "PORTAL_LEDGER_KEYS": base64.b64encode(os.urandom(32)).decode(),
        "PORTAL_PROXIES": "2",
        "DATABASE_URL": "postgres://portal_app@127.0.0.1/portal",
    }
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
