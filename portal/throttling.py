"""How often one address may try passwords: at the API and at the page together.

Attempts are counted over all processes of the web where there is a Redis. While it is away nobody
is counted: who has the right password is not locked out by it.
"""

from __future__ import annotations

from typing import Any, cast

import structlog
from django.http import HttpRequest
from redis.exceptions import RedisError
from rest_framework.throttling import AnonRateThrottle

log = structlog.stdlib.get_logger(__name__)


class LoginThrottle(AnonRateThrottle):
    """Attempts per address; a wrong password and a right one count alike."""

    scope = "login"

    def get_cache_key(self, request: Any, view: Any) -> str:
        return self.cache_format % {"scope": self.scope, "ident": self.get_ident(request)}

    def allow_request(self, request: Any, view: Any) -> bool:
        """Whether this attempt may be made; counts it."""
        try:
            return bool(super().allow_request(request, view))
        except RedisError as error:
            log.warning("sign_in_not_counted", error=error)
            return True


class WrongPasswordThrottle(LoginThrottle):
    """As the API's, but only what turns out to be wrong counts: an office shares an address."""

    duration: int  # seconds; the parent's, which its type stubs leave out

    def allows(self, request: HttpRequest) -> bool:
        """Whether a request of a page, which is none of the API's, may try."""
        asked: Any = request
        return self.allow_request(asked, view=cast(Any, None))

    def throttle_success(self) -> bool:
        return True

    def count(self) -> None:
        """The attempt that was let through was wrong."""
        try:
            attempts = self.cache.get(self.key, [])
            self.cache.set(self.key, [self.timer(), *attempts], self.duration)
        except RedisError as error:
            log.warning("sign_in_not_counted", error=error)
