"""How often one address may try passwords: at the API and at the page together."""

from __future__ import annotations

from typing import Any, cast

from django.http import HttpRequest
from rest_framework.throttling import AnonRateThrottle


class LoginThrottle(AnonRateThrottle):
    """Attempts per address; a wrong password and a right one count alike."""

    scope = "login"

    def get_cache_key(self, request: Any, view: Any) -> str:
        return self.cache_format % {"scope": self.scope, "ident": self.get_ident(request)}


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
        self.history.insert(0, self.now)
        self.cache.set(self.key, self.history, self.duration)
