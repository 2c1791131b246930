"""Whose accounts open the portal besides its own: providers of OpenID Connect, by the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult

from budgets.addresses import parts_of
from portal.environment import Environment, SettingFault

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider.

    Attributes:
        name: As in addresses, rules and the log.
        label: As people call it.
        issuer: Exactly as it names itself; its discovery document stands below it.
        client_id: The portal's name there.
        client_secret: The portal's password there.
        scopes: That are asked for.
        groups: Claim with the names of somebody's groups.
        username: Claim with the name of a new account.
        api_audience: Of the tokens of machines that the API takes; empty for none.
    """

    name: str
    label: str
    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: str
    groups: str
    username: str
    api_audience: str = ""

    @property
    def origin(self) -> str:
        """Where pages of the provider stand."""
        parts = parts_of(self.issuer)
        return f"{parts.scheme}://{parts.netloc}"

    def is_fit(self, address: object) -> bool:
        """Whether an address that the provider names is asked: nothing goes over the wire open."""
        parts = parts_of(str(address))
        return parts.scheme == "https" or _is_here(parts)


def read_providers(env: Environment, names: Sequence[str]) -> dict[str, Provider]:
    """Providers by name, in the order of the setting; one with a fault is none.

    Args:
        env: With ``PORTAL_OIDC_NAME_…`` of each; keeps everything that is missing or wrong.
        names: Of ``PORTAL_SIGNIN``.
    """
    found = {}
    for name in dict.fromkeys(names):
        faults: list[SettingFault] = []
        provider = _read(env, name, faults)
        env.faults += faults
        if not faults:
            found[name] = provider
    return found


def miss_a_way_in(providers: Mapping[str, Provider], *, break_glass: str) -> list[SettingFault]:
    """What has to stand in the place of passwords where they are off, and does not."""
    faults = []
    says = "PORTAL_LOCAL_PASSWORDS is off and"
    if not providers:
        words = f"{says} PORTAL_SIGNIN names no provider that can be asked."
        faults.append(SettingFault("PORTAL_LOCAL_PASSWORDS", words, "Name one, or leave it on."))
    if not break_glass:
        words = f"{says} PORTAL_BREAK_GLASS names no account."
        advice = "Name the one that keeps its password for the day on which no provider answers."
        faults.append(SettingFault("PORTAL_LOCAL_PASSWORDS", words, advice))
    return faults


def _read(env: Environment, name: str, faults: list[SettingFault]) -> Provider:
    before = f"PORTAL_OIDC_{name.upper().replace('-', '_')}_"

    def value(key: str, default: str = "") -> str:
        return str(env.str(before + key, default="")).strip() or default

    def fault(key: str, says: str, advice: str) -> None:
        faults.append(SettingFault(before + key, f"{before}{key} {says}.", advice))

    if not _NAME.fullmatch(name):
        words = f"PORTAL_SIGNIN names {name[:80]!r}, which is not the name of a provider."
        advice = "Write lower-case letters, digits and dashes, 40 at most."
        faults.append(SettingFault("PORTAL_SIGNIN", words, advice))
        before = "PORTAL_OIDC_"
    issuer = parts_of(value("ISSUER"))
    if not (issuer.scheme == "https" and issuer.hostname) and not _is_here(issuer):
        says = f"is {value('ISSUER')[:200]!r}" if value("ISSUER") else "is not set"
        fault("ISSUER", says, "Write the issuer exactly as it names itself: https://….")
    if not value("CLIENT_ID"):
        fault("CLIENT_ID", "is not set", "Write the portal's name at the provider.")
    given, file = value("CLIENT_SECRET"), value("CLIENT_SECRET_FILE")
    if bool(given) == bool(file):
        says = "and CLIENT_SECRET_FILE are both set" if given else "is not set"
        fault("CLIENT_SECRET", says, f"Set {before}CLIENT_SECRET or {before}CLIENT_SECRET_FILE.")
    elif file and not (given := _text_of(file)):
        says = f"is {file[:200]!r}, which cannot be read or is empty"
        fault("CLIENT_SECRET_FILE", says, "Name a file that this server can read.")
    if (audience := value("API_AUDIENCE")) and audience == value("CLIENT_ID"):
        advice = "Name the API at the provider with a name of its own, such as its address."
        fault("API_AUDIENCE", "is the same as CLIENT_ID, so that a person's token fits", advice)
    return Provider(
        name=name,
        label=value("LABEL", name),
        issuer=value("ISSUER"),
        client_id=value("CLIENT_ID"),
        client_secret=given,
        scopes=" ".join(dict.fromkeys(("openid", *value("SCOPES", "profile email").split()))),
        groups=value("GROUPS_CLAIM", "groups"),
        username=value("USERNAME_CLAIM", "preferred_username"),
        api_audience=audience,
    )


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError, ValueError):
        return ""


def _is_here(address: SplitResult) -> bool:
    """Plain http stays within this machine."""
    return address.scheme == "http" and address.hostname in _LOOPBACK
