"""Token login: ``Authorization: Token gbp_…``; for machines ``Bearer``, with the company's token.

A session works too, with CSRF as usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from rest_framework import authentication, exceptions, permissions
from rest_framework.request import Request

from budgets import services
from budgets.errors import Rejected
from budgets.models import ApiToken, User
from budgets.services.company import enter_machine
from portal.machine_tokens import MachineToken, read_machine_token
from portal.oidc import Refused, Unreachable
from portal.signin import OWES, owes_second_factor

if TYPE_CHECKING:
    # REST framework reads these classes while it is still importing its views.
    from rest_framework.views import APIView

log = structlog.stdlib.get_logger(__name__)

KEYWORD = "Token"
BEARER = "Bearer"
SESSION = "session"


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


class MachineAuthentication(authentication.BaseAuthentication):
    """The account of a machine with a token of the company's provider.

    ``request.auth`` is the MachineToken.
    """

    def authenticate(self, request: Request) -> tuple[User, MachineToken] | None:
        words = authentication.get_authorization_header(request).split()
        if not words or words[0].lower() != BEARER.lower().encode():
            return None
        if len(words) != 2:
            raise exceptions.AuthenticationFailed(
                f"Send the header as 'Authorization: {BEARER} <token of your provider>'."
            )
        try:
            vouched, token = read_machine_token(words[1].decode("latin-1"))
            return enter_machine(vouched), token
        except Unreachable as error:
            raise Away from error
        except (Refused, Rejected) as error:
            why = f"This token opens nothing here: {str(error).removesuffix('.')}."
            log.info("machine_refused", why=why)
            raise exceptions.AuthenticationFailed(why) from error

    def authenticate_header(self, request: Request) -> str:
        return BEARER


class Away(exceptions.APIException):
    """The provider's keys are not known, so nobody can tell whose token it is."""

    status_code = 503
    default_detail = "The company's provider does not answer. Try again in a minute."


class ScopeAllows(permissions.BasePermission):
    """A read-only token reads; a view that never writes says so with ``only_reads``."""

    message = "This token may only read. Make one with the scope 'write'."

    def has_permission(self, request: Request, view: APIView) -> bool:
        if request.method in permissions.SAFE_METHODS or getattr(view, "only_reads", False):
            return True
        return scope_of(request) in (SESSION, ApiToken.Scope.WRITE)


def scope_of(request: Request) -> str:
    """What the caller's token allows, or that it is a session."""
    token = request.auth
    return token.scope if isinstance(token, ApiToken | MachineToken) else SESSION
