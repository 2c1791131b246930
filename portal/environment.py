"""Reads settings out of the environment and keeps every fault, so that all are told at once.

A value that cannot be read gives way to the setting's preset, for as long as it takes to tell:
:mod:`portal.checks` refuses it before anything is done with it.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

import environ
from django.core.exceptions import ImproperlyConfigured

SECRET: Final = frozenset(
    {
        "PORTAL_SECRET_KEY",
        "PORTAL_CREDENTIAL_KEYS",
        "PORTAL_LEDGER_KEYS",
        "PORTAL_METRICS_TOKEN",
        "PORTAL_EMAIL_URL",
        "DATABASE_URL",
        "CELERY_BROKER_URL",
    }
)
"""Settings whose value, or a part of it, opens something: never shown."""
_SECRET_OF_A_PROVIDER: Final = re.compile(r"PORTAL_OIDC_\w+_CLIENT_SECRET")
_TRUE: Final = frozenset({"true", "on", "ok", "y", "yes", "1"})
_FALSE: Final = frozenset({"false", "off", "n", "no", "0", ""})
_FORMS: Final = {bool: "true or false", int: "a whole number", float: "a number"}
_ENGINES: Final = ("django.db.backends.postgresql", "django.db.backends.sqlite3")
# What a database is whose address cannot be read: nothing can be asked of it, or written to it.
_NO_DATABASE: Final = {"ENGINE": "django.db.backends.dummy", "NAME": ""}


@dataclass(frozen=True, slots=True)
class SettingFault:
    """One setting that is wrong or missing: what is wrong, and the way out."""

    name: str
    says: str
    advice: str


class Environment(environ.Env):  # type: ignore[misc]  # environ has no types
    """As `environ.Env`, but stricter, and it raises nothing.

    Attributes:
        faults: What could not be read so far, in the order of reading.
        names: Every setting that was asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[SettingFault] = []
        self.names: set[builtins.str] = set()

    def get_value(
        self, var: builtins.str, cast: Any = None, default: Any = None, parse_default: Any = False
    ) -> Any:
        """The value, or the preset where it cannot be read."""
        self.names.add(var)
        raw = self.ENVIRON.get(var)
        try:
            if cast is bool and raw is not None and raw.strip().lower() not in _TRUE | _FALSE:
                raise ValueError
            if cast is float and raw is not None:
                return float(raw)
            return super().get_value(var, cast, default, parse_default)
        except (ValueError, ImproperlyConfigured):
            self._keep(var, f"Write {_FORMS.get(cast, 'it as README.md describes')}.")
            return default

    def choice(
        self, name: builtins.str, *, among: Collection[builtins.str], default: builtins.str
    ) -> builtins.str:
        """One of a few words."""
        found = str(self.get_value(name, str, default))
        if found in among:
            return found
        self._keep(name, f"Write {' or '.join(map(repr, among))}.")
        return default

    def db(self, name: builtins.str, default: builtins.str) -> dict[builtins.str, Any]:
        """A database by its address: PostgreSQL's or SQLite's."""
        advice = (
            "Write postgres://USER:PASSWORD@HOST:5432/NAME; in passwords write @ as %40 and so on."
        )
        found = self._address(name, default, self.db_url_config, advice)
        if found is not None and found["ENGINE"] not in _ENGINES:
            self._keep(name, advice)
            found = None
        return dict(_NO_DATABASE if found is None else found)

    def email_url(self, name: builtins.str, default: builtins.str) -> dict[builtins.str, Any]:
        """A mail server by its address."""
        advice = (
            "Write smtp+tls://USER:PASSWORD@HOST:587, or leave it out to write mail to the log."
        )
        found = self._address(name, default, self.email_url_config, advice)
        return dict(found or self.email_url_config(default))

    def _address(
        self,
        name: builtins.str,
        default: builtins.str,
        read: Callable[[builtins.str], dict[builtins.str, Any]],
        advice: builtins.str,
    ) -> dict[builtins.str, Any] | None:
        try:
            return read(str(self.get_value(name, str, default)))
        except (ValueError, LookupError, ImproperlyConfigured):
            self._keep(name, advice)
            return None

    def _keep(self, name: builtins.str, advice: builtins.str) -> None:
        self.faults.append(SettingFault(name, f"{shown(name)} cannot be read.", advice))


def is_secret(name: str) -> bool:
    """Whether a setting of the environment opens something."""
    return name in SECRET or _SECRET_OF_A_PROVIDER.fullmatch(name) is not None


def shown(name: str) -> str:
    """A setting with its value as the environment has it; of a secret the name alone."""
    value = os.environ.get(name)
    if is_secret(name) or value is None:
        return name
    return f"{name} is {value[:200]!r}, which" if value else f"{name} is empty, which"
