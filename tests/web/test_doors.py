"""What holds for every request and answer, whoever asks."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from cryptography.fernet import Fernet
from django.test import Client

from portal.middleware import Handler
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


COMPLETE = {
    "DJANGO_SETTINGS_MODULE": "portal.settings",
    "PORTAL_SECRET_KEY": "only-to-be-checked-" + "aB3-xY9_" * 8,
    "PORTAL_CREDENTIAL_KEYS": Fernet.generate_key().decode(),
    "PORTAL_LEDGER_KEYS": base64.b64encode(os.urandom(32)).decode(),
    "PORTAL_PROXIES": "2",
    "DATABASE_URL": "postgres://portal_app@127.0.0.1/portal",
}
OTHER_CHARSETS = (
    "charset=hex", 'Charset="rot13"', "charset=undefined", "charset=bz2", "charset=punycode",
    "charset=unicode_escape", "charset=latin-1", "charset=nobody-knows", "charset*=utf-8''a%00b",
    "charset*0=he; charset*1=x", "x*=undefined''%41", "charset=utf-8; charset=hex",
)  # fmt: skip


def answered(path: str, content_type: str, **more: str) -> tuple[int, str]:
    """Status and text of what the application answers to a server, which is no test's client."""
    environment: dict[str, Any] = {}
    setup_testing_defaults(environment)
    environment |= {
        "PATH_INFO": path, "QUERY_STRING": "a=1", "HTTP_HOST": "127.0.0.1", **more,
        "CONTENT_TYPE": content_type,
    }  # fmt: skip
    application = Handler()
    answer = application.get_response(application.request_class(environment))
    return answer.status_code, answer.content.decode()


@pytest.mark.parametrize("parameter", OTHER_CHARSETS)
def test_what_is_not_in_utf8_is_refused_before_it_is_decoded(db, parameter: str):
    for path in ("/healthz", "/login/", "/metrics"):
        status, text = answered(path, f"text/plain; {parameter}")
        assert (status, "UTF-8 alone" in text) == (415, True), path
    status, text = answered("/api/v1/me", f"application/json; {parameter}")
    assert (status, json.loads(text)["code"]) == (415, "unsupported_media_type")
    assert "name that charset or none" in json.loads(text)["message"]
    part = answered("/login/", f"text/plain; {parameter}", HTTP_HX_REQUEST="true")
    assert part[0] == 415 and "<html" not in part[1]


@pytest.mark.parametrize(
    "parameter",
    [
        "",
        "; charset=utf-8",
        '; charset="UTF-8"',
        "; charset='utf8'",
        "; charset=US-ASCII",
        "; charset=",
        "; boundary=x",
    ],
)
def test_utf8_is_read_however_it_is_named(db, parameter: str):
    assert answered("/healthz", f"text/plain{parameter}")[0] == 200
    form = b"username=nobody&password=wrong"
    given = Client().generic(
        "POST", "/login/", form, content_type=f"application/x-www-form-urlencoded{parameter}"
    )
    assert given.status_code != 415


@pytest.mark.parametrize("charset", ["hex", "unicode_escape", "utf-16"])
def test_no_part_of_a_form_is_decoded_as_somebody_likes(db, charset: str):
    body = b"".join(
        b'--B\r\nContent-Disposition: form-data; name="%b"\r\n\r\n\\ud800\r\n' % name
        for name in (b"username", b"password")
    )
    answer = Client().generic(
        "POST", "/login/", body + b"--B--\r\n",
        content_type=f"multipart/form-data; boundary=B; charset={charset}",
    )  # fmt: skip
    assert answer.status_code == 415


def test_the_server_begins_with_that_application():
    code = (
        "import gc, portal.wsgi as w; print(type(w.application).__module__); "
        "print(len(gc.get_objects()), gc.get_freeze_count())"
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PORTAL_")}
    environment = clean | COMPLETE | {"DATABASE_URL": "sqlite:///:memory:"}
    said = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, env=environment)
    module, watched, frozen = said.decode().split()[-3:]
    assert module == "portal.middleware"
    assert int(watched) < int(frozen) / 100, (
        "the collector looks at what was loaded, again and again"
    )


def test_a_length_of_more_digits_than_any_is_too_large(db):
    assert answered("/healthz", "text/plain", CONTENT_LENGTH="9" * 5_000)[0] == 413


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
        **COMPLETE,
    }
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
