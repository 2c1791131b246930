"""Looks at every setting, and tells all that is wrong or missing at once, each with the way out.

Wrong settings are refused by Django's own checks, so by every command; what a server needs besides,
and what is doubtful, is told by ``manage.py check_settings`` and at the start of web, workers and
beat (:func:`require_settings`). No value of a secret is ever shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import structlog
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.http.request import validate_host
from kombu.transport import TRANSPORT_ALIASES

from budgets.addresses import parts_of
from budgets.sealing import usable_keys
from budgets.services.alerts.syslog import Syslog
from budgets.services.billing import seals
from portal.environment import SettingFault, shown

log = structlog.stdlib.get_logger(__name__)

TAG: Final = "settings"
# Seconds; the broker hands a task out again after this time.
_VISIBILITY_S: Final = 3_600
# Setting of Django → the least and the most that it may be.
_RANGES: Final = {
    "PORTAL_EXPORT_DAYS": (1, 3_650),
    "PORTAL_BODY_LIMIT": (1_024, 2**30),
    "PORTAL_METRICS_PORT": (0, 65_535),
    "PORTAL_SIGNIN_DAYS": (1, 365),
    "PORTAL_AUDIT_DAYS": (0, 36_500),
    "PORTAL_EVENT_DAYS": (0, 36_500),
    "SHIFT_SECONDS": (1, _VISIBILITY_S - 1),
    "LEASE_SECONDS": (1, 3_600),
    "SHIFT_WORKERS": (1, 1_000),
    "SHIFT_MEMORY_MB": (0, 2**20),
    "KUEUE_PROOF_SECONDS": (0, 600),
}
_AUDIT_DAYS_LEAST: Final = 400
"""A month is explained to whoever asks a year after its close."""
_EVENT_DAYS_LEAST: Final = 90
"""Last month's statements are still talked about, and jobs of them explained by their time line."""
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_RATE: Final = re.compile(r"[1-9]\d*/(s|sec|second|m|min|minute|h|hour|d|day)")
_NEW_KEY: Final = "python -c 'import secrets; print(secrets.token_urlsafe(48))'"
_NEW_FERNET_KEY: Final = (
    "python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'"
)


@register(TAG)
def wrong_settings(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """Whatever nothing can be done with; every command refuses it."""
    faults = (*settings.SETTING_FAULTS, *_out_of_range(), *_malformed(), *_not_there())
    return [Error(each.says, each.advice, each.name, "portal.E001") for each in faults]


@register(TAG, deploy=True)
def missing_settings(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """What a server cannot do without."""
    return [Error(each.says, each.advice, each.name, "portal.E002") for each in _missing()]


@register(TAG, deploy=True)
def doubtful_settings(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """What works and is most likely not meant."""
    return [Warning(each.says, each.advice, each.name, "portal.W001") for each in _doubtful()]


def found() -> list[CheckMessage]:
    """Everything about the settings of a server, without what SILENCED_SYSTEM_CHECKS names."""
    messages = run_checks(tags=[TAG], include_deployment_checks=True)
    return [message for message in messages if not message.is_silenced()]


def told(message: CheckMessage) -> str:
    """One line: what is wrong, and the way out."""
    return f"{message.msg} {message.hint}"


def require_settings() -> None:
    """Begin nothing with settings that are wrong or missing; log what is doubtful.

    Raises:
        SystemExit: with one line for each of them.
    """
    messages = found()
    refused = [told(message) for message in messages if message.is_serious()]
    if refused:
        raise SystemExit("\n  ".join(["These settings are wrong or missing:", *refused]))
    for message in messages:
        log.warning("setting_is_doubtful", setting=str(message.obj), says=told(message))


def _out_of_range() -> Iterator[SettingFault]:
    ranges = {name: (getattr(settings, name), *limits) for name, limits in _RANGES.items()}
    ranges["PORTAL_PROXIES"] = (settings.REST_FRAMEWORK["NUM_PROXIES"], 0, 20)
    ranges["PORTAL_DB_CONN_MAX_AGE"] = (settings.DATABASES["default"]["CONN_MAX_AGE"], 0, 86_400)
    for name, (value, least, most) in ranges.items():
        if not least <= value <= most:
            says = f"{shown(name)} is out of range."
            yield SettingFault(name, says, f"Write a number from {least} to {most}.")


def _malformed() -> Iterator[SettingFault]:
    """Words whose form is known, and keys."""
    if 0 < settings.PORTAL_AUDIT_DAYS < _AUDIT_DAYS_LEAST:
        name = "PORTAL_AUDIT_DAYS"
        says = f"{shown(name)} leaves closed months without what explains them."
        advice = f"Write 0, for ever, or at least {_AUDIT_DAYS_LEAST} days."
        yield SettingFault(name, says, advice)
    if 0 < settings.PORTAL_EVENT_DAYS < _EVENT_DAYS_LEAST:
        name = "PORTAL_EVENT_DAYS"
        says = f"{shown(name)} leaves the jobs of recent statements without what explains them."
        advice = f"Write 0, for ever, or at least {_EVENT_DAYS_LEAST} days."
        yield SettingFault(name, says, advice)
    try:
        if settings.PORTAL_AUDIT_SYSLOG:
            Syslog.of(settings.PORTAL_AUDIT_SYSLOG)
    except ValueError:
        name = "PORTAL_AUDIT_SYSLOG"
        advice = "Write tls://HOST:6514, tcp://HOST:601 or udp://HOST:514."
        yield SettingFault(name, f"{shown(name)} is no address of a syslog.", advice)
    for name, test, advice in (
        (
            "PORTAL_INSTALLATION",
            _NAME,
            "Use only a-z, 0-9, '-' and '.', and at most 63 of them.",
        ),
        ("PORTAL_LEASE_NAMESPACE", _NAME, "Name a namespace that every cluster has."),
    ):
        if not test.fullmatch(getattr(settings, name)):
            yield SettingFault(name, f"{shown(name)} is not a valid name in Kubernetes.", advice)
    if not _RATE.fullmatch(settings.REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"]["login"]):
        name = "PORTAL_LOGIN_RATE"
        yield SettingFault(name, f"{shown(name)} is not a rate.", "Write it as 10/min.")
    public = parts_of(settings.PORTAL_PUBLIC_URL)
    if public.scheme not in ("http", "https") or not public.hostname:
        name = "PORTAL_PUBLIC_URL"
        advice = "Write the address that people open, such as https://gpu.example.com."
        yield SettingFault(name, f"{shown(name)} is not the address of a web server.", advice)
    own = parts_of(settings.PORTAL_OWN_CLUSTER_ADDRESS)
    if settings.PORTAL_OWN_CLUSTER_ADDRESS and (own.scheme != "https" or not own.hostname):
        name = "PORTAL_OWN_CLUSTER_ADDRESS"
        says = f"{shown(name)} is not the address of an API server."
        yield SettingFault(name, says, "Write https://HOST:PORT, or leave it out.")
    if parts_of(settings.CELERY_BROKER_URL).scheme.partition("+")[0] not in TRANSPORT_ALIASES:
        advice = "Write redis://USER:PASSWORD@HOST:6379/0, or rediss:// for TLS."
        yield SettingFault(
            "CELERY_BROKER_URL", "CELERY_BROKER_URL is not the address of a broker.", advice
        )
    for name, read in (
        ("PORTAL_CREDENTIAL_KEYS", usable_keys),
        ("PORTAL_LEDGER_KEYS", lambda: list(seals.ledger_keys())),
    ):
        try:
            if getattr(settings, name):
                read()
        except ImproperlyConfigured as error:
            says, _, advice = str(error).partition("; ")
            yield SettingFault(name, f"{says}.", f"{advice[:1].upper()}{advice[1:]}")


def _not_there() -> Iterator[SettingFault]:
    """Files and folders that are named and are not there."""
    for name, is_there, advice in (
        ("PORTAL_ACCESS_PROVIDERS", Path.is_file, "Name a file that this server can read."),
        ("PORTAL_KUBECONFIG_FOLDER", Path.is_dir, "Name a folder that this server can read."),
    ):
        value = getattr(settings, name)
        if value and not is_there(Path(value)):
            yield SettingFault(name, f"{shown(name)} does not exist.", advice)


def _missing() -> Iterator[SettingFault]:
    if not os.environ.get("PORTAL_SECRET_KEY"):
        says = "PORTAL_SECRET_KEY is not set, so each process would sign sessions with its own key."
        yield SettingFault("PORTAL_SECRET_KEY", says, f"Make one with: {_NEW_KEY}")
    if not settings.PORTAL_CREDENTIAL_KEYS:
        says = "PORTAL_CREDENTIAL_KEYS is not set, so no cluster could be registered."
        yield SettingFault("PORTAL_CREDENTIAL_KEYS", says, f"Make one with: {_NEW_FERNET_KEY}")


def _doubtful() -> Iterator[SettingFault]:
    known = settings.SETTING_NAMES
    for name in sorted(os.environ.keys() - known):
        close = get_close_matches(name, known, n=1, cutoff=0.88)
        if close and close[0] not in os.environ:
            yield SettingFault(name, f"{name} is not a setting.", f"{close[0]} is one; correct it.")
    host = parts_of(settings.PORTAL_PUBLIC_URL).hostname or ""
    if host and not validate_host(host, settings.ALLOWED_HOSTS):
        says = f"PORTAL_PUBLIC_URL names {host}, but the portal does not answer to that name."
        yield SettingFault("PORTAL_ALLOWED_HOSTS", says, f"Add {host} to PORTAL_ALLOWED_HOSTS.")
    if settings.DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
        says = "The database is SQLite, which does not protect the ledger from changes."
        yield SettingFault("DATABASE_URL", says, "In production, use PostgreSQL.")
    if settings.SECURE_SSL_REDIRECT and not settings.REST_FRAMEWORK["NUM_PROXIES"]:
        says = "PORTAL_PROXIES is 0, so behind a proxy everybody seems to have its address."
        advice = "Set it to the number of proxies in front, or set PORTAL_HTTPS=false if none is."
        yield SettingFault("PORTAL_PROXIES", says, advice)
    if not settings.PORTAL_LEDGER_KEYS:
        says = "PORTAL_LEDGER_KEYS is not set, so months are closed without a signature."
        yield SettingFault("PORTAL_LEDGER_KEYS", says, "Make one with: openssl rand -base64 32")
