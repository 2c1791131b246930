"""Settings of providers: complete and encrypted, or the portal does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from portal.environment import Environment, SettingFault
from portal.providers import Provider, miss_a_way_in, read_providers

ROOT = Path(__file__).parents[2]
WHOLE = {
    "PORTAL_OIDC_CORP_ISSUER": "https://sso.example.com/realms/company",
    "PORTAL_OIDC_CORP_CLIENT_ID": "portal",
    "PORTAL_OIDC_CORP_CLIENT_SECRET": "not in a log",
}


def read(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], *names: str
) -> tuple[dict[str, Provider], list[SettingFault]]:
    """Providers of these settings, and what is wrong with them."""
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    env = Environment()
    return read_providers(env, names), env.faults


def test_a_provider_is_read_with_its_presets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    second = {
        key.replace("CORP", "NEW_CORP"): value
        for key, value in WHOLE.items()
        if not key.endswith("SECRET")
    } | {
        "PORTAL_OIDC_NEW_CORP_CLIENT_SECRET_FILE": str(tmp_path / "secret"),
        "PORTAL_OIDC_NEW_CORP_SCOPES": "email groups",
    }
    found, faults = read(monkeypatch, WHOLE | second, "corp", "new-corp")
    assert list(found) == ["corp", "new-corp"] and faults == []
    corp = found["corp"]
    assert (corp.label, corp.scopes, corp.groups) == ("corp", "openid profile email", "groups")
    assert corp.origin == "https://sso.example.com"
    assert "not in a log" not in repr(corp)
    assert found["new-corp"].client_secret == "from a file"
    assert found["new-corp"].scopes == "openid email groups"


def test_everything_that_is_wrong_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {
        "PORTAL_OIDC_A_ISSUER": "http://sso.example.com",
        "PORTAL_OIDC_A_CLIENT_SECRET": "never-to-be-seen",
        "PORTAL_OIDC_A_CLIENT_SECRET_FILE": str(tmp_path / "none"),
        "PORTAL_OIDC_B_CLIENT_SECRET_FILE": str(tmp_path / "none"),
    }
    found, faults = read(monkeypatch, WHOLE | wrong, "a", "b", "corp", "Ç")
    assert list(found) == ["corp"]
    text = " ".join(f"{fault.says} {fault.advice}" for fault in faults)
    for words in (
        "PORTAL_OIDC_A_ISSUER is 'http://sso.example.com'.",
        "PORTAL_OIDC_A_CLIENT_ID is not set.",
        "PORTAL_OIDC_A_CLIENT_SECRET and CLIENT_SECRET_FILE are both set.",
        "PORTAL_OIDC_B_ISSUER is not set.",
        "which cannot be read or is empty",
        "PORTAL_SIGNIN names 'Ç', which is not the name of a provider.",
    ):
        assert words in text
    assert "never-to-be-seen" not in text


def test_an_address_that_a_provider_names_is_encrypted_or_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    corp = read(monkeypatch, WHOLE, "corp")[0]["corp"]
    assert corp.is_fit("https://keys.example.com/jwks")
    assert corp.is_fit("http://127.0.0.1:8080/jwks")
    for address in ("http://keys.example.com/", "file:///etc/passwd", "https://[", "", None, 5):
        assert not corp.is_fit(address)


def test_without_passwords_something_else_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    providers, _ = read(monkeypatch, WHOLE, "corp")
    assert miss_a_way_in(providers, break_glass="emergency") == []
    (no_account,) = miss_a_way_in(providers, break_glass="")
    assert "PORTAL_BREAK_GLASS names no account" in no_account.says
    (no_provider,) = miss_a_way_in({}, break_glass="emergency")
    assert "names no provider" in no_provider.says


def test_nothing_is_done_with_a_provider_that_is_half_there() -> None:
    environment = {**os.environ, "PORTAL_SIGNIN": "corp", "PORTAL_LOCAL_PASSWORDS": "false"}
    environment["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    command = [sys.executable, "manage.py", "check"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "PORTAL_OIDC_CORP_ISSUER is not set" in done.stderr
    assert "PORTAL_BREAK_GLASS names no account" in done.stderr


def test_portal_reads_them_and_sends_forms_to_the_provider_alone() -> None:
    code = (
        "from django.conf import settings as s;"
        "print(list(s.PORTAL_PROVIDERS), s.CONTENT_SECURITY_POLICY['DIRECTIVES']['form-action'])"
    )
    environment = {**os.environ, **WHOLE, "PORTAL_SIGNIN": "corp"}
    environment["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "['corp'] [\"'self'\", 'https://sso.example.com']", done.stderr
