"""Token login: ``Authorization: Token gbp_…``. A session works too, with CSRF as usual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework import authentication, exceptions, permissions
from rest_framework.request import Request

from budgets import services
from budgets.models import ApiToken, User
from portal.signin import OWES, owes_second_factor

if TYPE_CHECKING:
    # REST framework reads these classes while it is still importing its views.
    from rest_framework.views import APIView

KEYWORD = "Token"


class TokenAuthentication(authentication.BaseAuthentication):
    """The user of an unexpired, unrevoked token; ``request.auth`` is the ApiToken."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        words = authentication.get_authorization_header(request).split()
        if not words or words[0].lower() != KEYWORD.lower().encode():
            return None
        if len(words) != 2:
            raise exceptions.AuthenticationFailed(
                f"Send the header as 'Authorization: {KEYWORD} <your token>'."
            )
        token = services.authenticate_api_token(words[1].decode("latin-1"))
        if token is None:
            raise exceptions.AuthenticationFailed(
                "This token is unknown, expired or revoked. Make a new one on the page API tokens."
            )
        if token.user.vouched_until is None and owes_second_factor(token.user):
            raise exceptions.PermissionDenied(OWES)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return KEYWORD


class ScopeAllows(permissions.BasePermission):
    """A read-only token reads; a view that never writes says so with ``only_reads``."""

    message = "This token may only read. Make one with the scope 'write'."

    def has_permission(self, request: Request, view: APIView) -> bool:
        if request.method in permissions.SAFE_METHODS or getattr(view, "only_reads", False):
            return True
        token = request.auth
        return not isinstance(token, ApiToken) or token.scope == ApiToken.Scope.WRITE
