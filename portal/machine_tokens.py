"""Access tokens that the company's provider gives to machines, as the API takes them (RFC 9068).

A machine gets its token by client credentials, signs in nowhere and has no session. The provider's
keys are kept in this process alone: whoever writes to the broker or to a cache opens nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, Final

from django.conf import settings
from joserfc import jws, jwt
from joserfc.jwk import KeySet

from budgets.models import ApiToken, Identity
from budgets.services.company import Vouched
from budgets.texts import read_json
from portal import oidc
from portal.oidc import LEEWAY_S, SIGNATURES, Refused
from portal.providers import Provider

READ, WRITE = "portal:read", "portal:write"
"""Scopes as the provider knows them; ``portal:write`` reads, too."""

_LONGEST: Final = 8_192
_LONGEST_LIFE_S: Final = 86_400
_KEYS_FOR_S: Final = 300
"""How long a key that the provider has taken back still opens something."""
_UNKNOWN_AFTER_S: Final = 15
"""How often a token with a key that nobody knows may have the keys read again."""
_WAIT_S: Final = 2
"""How long a request waits for another one that asks the provider."""
_CLIENT: Final = re.compile(r"[A-Za-z0-9._~:/@-]{1,120}")
_CLIENT_CLAIMS: Final = ("client_id", "azp", "appid")
_SCOPE_CLAIMS: Final = ("scope", "scp", "roles")


@dataclass(frozen=True, slots=True)
class MachineToken:
    """What a machine's token allows: ``scope`` has the words of :class:`ApiToken.Scope`."""

    scope: str


def read_machine_token(text: str) -> tuple[Vouched, MachineToken]:
    """Whose token it is, and what it allows.

    Args:
        text: As it stands in the header.

    Raises:
        Unreachable: The provider does not answer, and its keys are not known here.
        Refused: It is no sound token for this portal; in words that tell nothing secret.
    """
    if len(text) > _LONGEST or text.count(".") != 2:
        raise Refused(f"it is not a signed token of at most {_LONGEST // 1024} KiB")
    with oidc.meant():
        unread = jws.extract_compact(text.encode())
        provider = _provider(read_json(unread.payload))
        token = jwt.decode(text, _keys(provider, unread.headers()), algorithms=sorted(SIGNATURES))
        claims = token.claims
        jwt.JWTClaimsRegistry(
            leeway=LEEWAY_S,
            iss={"essential": True, "value": provider.issuer},
            aud={"essential": True, "value": provider.api_audience},
            exp={"essential": True},
            sub={"essential": True},
        ).validate(claims)
        if claims["exp"] > time() + _LONGEST_LIFE_S + LEEWAY_S:
            raise Refused("it is valid for more than a day")
        return _machine(provider, claims), MachineToken(_scope(claims))


def _provider(claims: object) -> Provider:
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    for provider in settings.PORTAL_PROVIDERS.values():
        if provider.api_audience and provider.issuer == issuer:
            found: Provider = provider
            return found
    raise Refused("its issuer is not one whose tokens are taken here")


def _machine(provider: Provider, claims: Mapping[str, Any]) -> Vouched:
    named = {str(claims[name]) for name in _CLIENT_CLAIMS if name in claims}
    client = named.pop() if len(named) == 1 else ""
    if not _CLIENT.fullmatch(client):
        raise Refused("it does not name one client")
    if Identity.objects.filter(issuer=provider.issuer, subject=claims["sub"]).exists():
        raise Refused("it is the token of a person; people sign in")
    name = Identity.MACHINE + client
    return Vouched(
        provider=provider.name,
        issuer=provider.issuer,
        subject=name,
        username="machine." + re.sub(r"[^A-Za-z0-9._@-]", "-", client),
        email="",
        first_name="",
        last_name="",
        groups=frozenset({name}),
    )


def _scope(claims: Mapping[str, Any]) -> str:
    found: set[str] = set()
    for name in _SCOPE_CLAIMS:
        told = claims.get(name, ())
        found.update(told.split() if isinstance(told, str) else map(str, told))
    if WRITE in found:
        return ApiToken.Scope.WRITE
    if READ in found:
        return ApiToken.Scope.READ
    raise Refused(f"it has neither the scope {READ} nor {WRITE}")


@dataclass(slots=True)
class _Kept:
    """A provider's keys, when they were read, and when it was asked last (monotonic seconds)."""

    keys: KeySet | None = None
    read_at: float = float("-inf")
    asked_at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fresh(self) -> KeySet | None:
        """The keys, while they may be used."""
        return self.keys if monotonic() - self.read_at <= _KEYS_FOR_S else None

    def knows(self, kid: object) -> bool:
        """Whether a key that may be used has this name."""
        keys = self.fresh()
        return keys is not None and kid in {key.kid for key in keys.keys}

    def read(self, provider: Provider, kid: object) -> None:
        """Ask for the keys, unless that was just done; what is known stays until others come."""
        if not self.lock.acquire(timeout=_WAIT_S):
            return
        try:
            if self.knows(kid) or monotonic() - self.asked_at <= _UNKNOWN_AFTER_S:
                return
            self.asked_at = monotonic()
            self.keys = KeySet.import_key_set({"keys": oidc.signing_keys(provider)})
            self.read_at = self.asked_at
        finally:
            self.lock.release()


_kept: dict[str, _Kept] = {}


def _keys(provider: Provider, header: Mapping[str, Any]) -> KeySet:
    """The keys that the provider shows; read again when they are old, or lack the token's."""
    kept, kid = _kept.setdefault(provider.issuer, _Kept()), header.get("kid")
    if not kept.knows(kid):
        kept.read(provider, kid)
    keys = kept.fresh()
    if keys is None:
        raise oidc.Unreachable
    return keys
