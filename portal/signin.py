"""Signing in: wrong passwords are counted per account and per address, at every door.

The page, the API and Django's own admin ask the same backend, and the change of one's own password
counts a wrong current one likewise. Counted are wrong passwords alone, in
windows of the rate (``PORTAL_LOGIN_RATE``), for three things: the account from this address, this
address, and this account. The first is a limit for everybody. The other two are limits for those
whom the portal does not know there: an account that signed in from the same address within
``FAMILIAR_DAYS`` is not shut out by what others try behind the same proxy, nor by a stranger who
tries that account elsewhere.

Whoever has a second factor is let in by no password alone, at whatever door: the backend keeps who
it is with the request, and :func:`second_step` takes the code. Wrong codes count as wrong passwords
do.

Counts are in Redis, over all processes of the web; while it is away each process counts for itself.
"""

from __future__ import annotations

import ipaddress
import math
import time
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final

import structlog
from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from rest_framework.throttling import SimpleRateThrottle

from budgets.models import AuditEntry, User
from budgets.selectors import roles_of, utc_now
from budgets.services import audit, has_second_factor, use_code
from budgets.services.company import REFUSED, tell_break_glass
from budgets.texts import storable
from portal.counting import count, counts

log = structlog.stdlib.get_logger(__name__)

FAMILIAR_DAYS: Final = 30
SIGN_IN: Final = "session.sign_in"
IPV6_PREFIX: Final = 64
"""Bits of an IPv6 address that tell customers apart; what follows is theirs to choose."""
SECOND_STEP_S: Final = 300
"""For so long after the password the code is taken."""
REQUIRED: Final = "required"
OWES: Final = (
    "Your role needs a second factor. Sign in to the portal's pages and set one up; until then "
    "nothing else is open to you."
)
_HALF_WAY: Final = "_portal_half_way"
_SALT: Final = "portal.signin.second_step"
_LONGEST_NAME: Final = 150


class LoginThrottle(SimpleRateThrottle):
    """The limit as the API asks for it: before a password is looked at."""

    scope = "login"
    num_requests: int
    duration: int  # seconds

    def allow_request(self, request: Any, view: Any) -> bool:
        """Whether this account may be tried from this address now."""
        data = request.data
        name = data.get("username") if isinstance(data, dict) else None
        self._wait_s = Attempt.of(request, name if isinstance(name, str) else "").wait_s()
        return self._wait_s == 0

    def wait(self) -> float | None:
        """Seconds until then."""
        return float(self._wait_s)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Somebody who tries to sign in.

    Attributes:
        username: As typed, of text that a database keeps; need not exist.
        network: Where from: an IPv4 address, or the first 64 bits of an IPv6 address.
    """

    username: str
    network: str

    @classmethod
    def of(cls, request: HttpRequest, username: str) -> Attempt:
        """Read from a request; only our own proxies are believed about its address."""
        asked: Any = request
        name = storable(username[:_LONGEST_NAME])
        return cls(name, network_of(str(LoginThrottle().get_ident(asked))))

    def wait_s(self) -> int:
        """Seconds until a password may be tried, 0 for now."""
        limit, window_s = self._limits()
        now = time.time()
        keys = self._keys(now, window_s)
        both, *alone = counts(keys)
        if both < limit and (max(alone) < limit or self._is_familiar()):
            return 0
        return math.ceil(window_s - now % window_s)

    def refuse(self) -> None:
        """It was wrong: counted, and in the audit log; what nobody is called only in this one."""
        _, window_s = self._limits()
        count(self._keys(time.time(), window_s), window_s=window_s)
        if User.objects.filter(username=self.username).exists():
            found = {"network": self.network}
            subject = f"user:{self.username}"
            audit(None, action=REFUSED, subject=subject, after=found, actor_name="somebody")
        else:
            log.info("sign_in_refused", network=self.network)

    def _limits(self) -> tuple[int, int]:
        throttle = LoginThrottle()
        return throttle.num_requests, throttle.duration

    def _keys(self, now: float, window_s: int) -> list[str]:
        """Of the account from here, of the address, of the account."""
        window = int(now // window_s)
        name = sha256(self.username.encode("utf-8", "replace")).hexdigest()
        return [f"sign-in:{window}:{of}" for of in (f"{name}@{self.network}", self.network, name)]

    def _is_familiar(self) -> bool:
        since = utc_now() - timedelta(days=FAMILIAR_DAYS)
        return AuditEntry.objects.filter(
            action=SIGN_IN,
            actor__username=self.username,
            at__gte=since,
            after__network=self.network,
        ).exists()


class CountedBackend(ModelBackend):
    """Django's own check of names and passwords, counted and written down."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> User | None:
        """The user, or None.

        Raises:
            PermissionDenied: it was tried too often; no password was looked at.
        """
        if request is None or username is None:
            return super().authenticate(request, username, password, **kwargs)
        attempt = Attempt.of(request, username)
        if attempt.wait_s():
            raise PermissionDenied
        user = super().authenticate(request, username, password, **kwargs)
        if user is not None and not _opens_by_password(user):
            user = None  # after as long a look as at any other
        if user is None:
            attempt.refuse()
            return None
        if has_second_factor(user):
            setattr(request, _HALF_WAY, user)
            return None
        _write_down(user, attempt)
        return user


def half_way(request: Any) -> User | None:
    """Whose password was right in this request, where a code has to follow."""
    found: User | None = getattr(request, _HALF_WAY, None)
    return found


def ticket_of(user: User) -> str:
    """What a form keeps between password and code: that the password was right, just now."""
    return signing.dumps([user.pk, user.get_session_auth_hash()], salt=_SALT)


def of_ticket(ticket: str) -> User | None:
    """Whose it is; None once it is old, or the password or the access of then holds no more."""
    try:
        key, told = signing.loads(ticket, salt=_SALT, max_age=SECOND_STEP_S)
    except signing.BadSignature:
        return None
    user = User.objects.filter(pk=key, is_active=True).first()
    return user if user is not None and user.get_session_auth_hash() == told else None


def second_step(request: HttpRequest, user: User, *, code: str) -> bool:
    """Whether somebody whose password was right is let in by a code; it is used up then."""
    attempt = Attempt.of(request, user.get_username())
    if attempt.wait_s():
        return False
    if not use_code(user, code=code):
        attempt.refuse()
        return False
    _write_down(user, attempt)
    return True


def owes_second_factor(user: User) -> bool:
    """Whether somebody has to set up a second factor before anything else.

    That is so for platform admins and finance whose password opens something, the account for
    emergencies among them. Who has the company's account is asked there, and not in a session
    that it opened.
    """
    if settings.PORTAL_SECOND_FACTOR != REQUIRED or not user.has_usable_password():
        return False
    roles = roles_of(user)
    is_asked = (roles.is_admin or roles.is_finance) and _opens_by_password(user)
    return is_asked and not has_second_factor(user)


def _write_down(user: User, attempt: Attempt) -> None:
    """Somebody is in, by everything that was asked for."""
    network = attempt.network
    audit(user, action=SIGN_IN, subject=f"user:{user.username}", after={"network": network})
    if not settings.PORTAL_LOCAL_PASSWORDS:
        tell_break_glass(user, network=network)
        log.warning("break_glass_sign_in", username=user.username, network=network)


def _opens_by_password(user: Any) -> bool:
    """Where passwords are off, that of one account still opens."""
    name: str = settings.PORTAL_BREAK_GLASS
    return bool(settings.PORTAL_LOCAL_PASSWORDS) or user.get_username() == name


def network_of(address: str) -> str:
    """What stands for a client: its IPv4 address, or the network of its IPv6 address.

    Args:
        address: As the server or a proxy of ours gives it; what is no address stands as it is.
    """
    try:
        found = ipaddress.ip_address(address.strip())
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), IPV6_PREFIX), strict=False))
