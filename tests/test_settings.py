"""Settings that are wrong or missing are told all at once, with the way out and no secret."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.core.checks import run_checks

from portal import checks
from portal.environment import SECRET, Environment

ROOT = Path(__file__).resolve().parent.parent
OURS = ("PORTAL_", "SHIFT_", "LEASE_", "KUEUE_", "DATABASE_", "CELERY_", "DJANGO_")
KEY = Fernet.generate_key().decode()
ENOUGH = {
    "PORTAL_SECRET_KEY": "enough-to-begin-" + "k" * 40,
    "PORTAL_CREDENTIAL_KEYS": KEY,
    "CELERY_BROKER_URL": "memory://",
    "DATABASE_URL": "postgres://portal_app:word-of-the-portal@127.0.0.1:1/portal",
}
# Each of another kind; of secrets the value must not be seen.
WRONG = {
    "PORTAL_HTTPS": "maybe",
    "LEASE_SECONDS": "soon",
    "SHIFT_SECONDS": "7200",
    "PORTAL_SPEND_CHECK": "perhaps",
    "PORTAL_LOG_FORMAT": "xml",
    "PORTAL_INSTALLATION": "Our_Portal",
    "PORTAL_PUBLIC_URL": "gpu.example.com",
    "PORTAL_KUBECONFIG_FOLDER": "/there/is/no/such/folder",
    "PORTAL_CREDENTIAL_KEYS": "never-to-be-seen-a",
    "PORTAL_LEDGER_KEYS": "never-to-be-seen-b",
    "DATABASE_URL": "postgress://portal:never-to-be-seen-c@db/portal",
    "CELERY_BROKER_URL": "reddis://:never-to-be-seen-d@broker",
    "PORTAL_EMAIL_URL": "post://me:never-to-be-seen-e@mail",
}
STARTS = {
    "web": ("-c", "import portal.wsgi"),
    "tasks": ("-m", "celery", "-A", "portal", "worker", "-Q", "sync,meter", "-P", "solo"),
    "shifts": ("-m", "celery", "-A", "portal", "worker", "-Q", "shift", "-P", "threads"),
    "beat": ("-m", "celery", "-A", "portal", "beat", "-s", "/dev/null/none"),
}


def run(*command: str, **environment: str) -> tuple[int, str]:
    """Exit status and all that was printed, with no other settings than these."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**clean, "DJANGO_SETTINGS_MODULE": "portal.settings", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def assert_all_told(said: str, wrong: Mapping[str, str]) -> None:
    lines = [line.split() for line in said.splitlines() if line.startswith("  ")]
    assert {line[0] for line in lines} == set(wrong)
    assert all(len(line) > 6 for line in lines), "each has its way out"
    assert "never-to-be-seen" not in said
    assert "Traceback" not in said


def test_every_wrong_and_missing_setting_is_told_at_once() -> None:
    status, said = run("manage.py", "check_settings", **WRONG)
    assert status == 1
    assert_all_told(said, {**WRONG, "PORTAL_SECRET_KEY": ""})
    for name in WRONG.keys() - SECRET:
        assert WRONG[name] in said


@pytest.mark.parametrize("server", STARTS)
def test_nothing_starts_with_settings_that_are_wrong_or_missing(server: str) -> None:
    wrong = {"PORTAL_HTTPS": "maybe", "SHIFT_SECONDS": "7200"}
    status, said = run(*STARTS[server], **{**ENOUGH, "PORTAL_SECRET_KEY": ""}, **wrong)
    assert status == 1
    assert_all_told(said, {**wrong, "PORTAL_SECRET_KEY": ""})


def test_other_commands_refuse_what_is_wrong_and_do_without_what_only_servers_need() -> None:
    status, said = run("manage.py", "migrate", DATABASE_URL="postgress://portal@db/portal")
    assert status == 1
    assert "DATABASE_URL cannot be read" in said
    status, said = run("manage.py", "check", DATABASE_URL="sqlite:////none/at/all.sqlite3")
    assert status == 0, said


def test_doubtful_settings_are_told_and_stop_nobody() -> None:
    doubtful = {
        "PORTAL_ALLOWED_HOST": "gpu.example.com",
        "PORTAL_PUBLIC_URL": "https://gpu.example.com",
    }
    status, said = run("manage.py", "check_settings", **ENOUGH, **doubtful)
    assert status == 0
    assert "PORTAL_ALLOWED_HOSTS is one; correct it" in said
    assert "Add gpu.example.com to PORTAL_ALLOWED_HOSTS" in said
    assert "months are closed without a signature" in said
    assert "PORTAL_PROXIES is 0, so" in said
    assert "word-of-the-portal" not in said and KEY not in said


def test_settings_of_the_test_run_are_neither_wrong_nor_missing() -> None:
    assert not [each for each in run_checks(tags=[checks.TAG]) if each.is_serious()]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SHIFT_SECONDS", 3_600),
        ("LEASE_SECONDS", 0),
        ("PORTAL_METRICS_PORT", 70_000),
        ("PORTAL_AUDIT_DAYS", -1),
        ("PORTAL_EVENT_DAYS", -1),
        ("PORTAL_AUDIT_SYSLOG", "siem.example.com:514"),
        ("SHIFT_MEMORY_MB", -1),
        ("PORTAL_LEASE_NAMESPACE", "Kube System"),
        ("PORTAL_ACCESS_PROVIDERS", "/there/is/no/such/file"),
        ("PORTAL_CREDENTIAL_KEYS", [KEY, "never-to-be-seen"]),
        ("PORTAL_LEDGER_KEYS", ["public:never-to-be-seen"]),
    ],
)
def test_setting_out_of_bounds_is_wrong(settings, name: str, value: object) -> None:
    setattr(settings, name, value)
    told = [each for each in run_checks(tags=[checks.TAG]) if each.obj == name]
    assert len(told) == 1
    assert told[0].hint
    assert "never-to-be-seen" not in checks.told(told[0])


@pytest.mark.parametrize(("days", "is_wrong"), [(0, False), (1, True), (399, True), (400, False)])
def test_what_would_leave_closed_months_unexplained_is_refused(
    settings, days: int, is_wrong: bool
) -> None:
    settings.PORTAL_AUDIT_DAYS = days
    told = [each for each in run_checks(tags=[checks.TAG]) if each.obj == "PORTAL_AUDIT_DAYS"]
    assert [checks.told(each) for each in told] == [
        "PORTAL_AUDIT_DAYS leaves closed months without what explains them. Write 0, for ever, or "
        "at least 400 days."
    ] * is_wrong


@pytest.mark.parametrize(("days", "is_wrong"), [(0, False), (89, True), (90, False)])
def test_raw_events_of_recent_months_are_kept(settings, days: int, is_wrong: bool) -> None:
    settings.PORTAL_EVENT_DAYS = days
    told = [each for each in run_checks(tags=[checks.TAG]) if each.obj == "PORTAL_EVENT_DAYS"]
    assert [checks.told(each) for each in told] == [
        "PORTAL_EVENT_DAYS leaves the jobs of recent statements without what explains them. "
        "Write 0, for ever, or at least 90 days."
    ] * is_wrong


def test_what_cannot_be_read_gives_way_to_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTAL_BODY_LIMIT", "much")
    monkeypatch.setenv("PORTAL_DEBUG", " Yes ")
    monkeypatch.setenv("DATABASE_URL", "oracle://one@two/three")
    env = Environment()
    assert env.int("PORTAL_BODY_LIMIT", default=7) == 7
    assert env.bool("PORTAL_DEBUG", default=False) is True
    assert env.db("DATABASE_URL", default="sqlite:///x")["ENGINE"].endswith("dummy")
    assert [fault.name for fault in env.faults] == ["PORTAL_BODY_LIMIT", "DATABASE_URL"]
