"""Login by token, who one is, audit log, long operations, set-up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth import authenticate
from drf_spectacular.utils import OpenApiParameter, extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework import exceptions
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import selectors
from budgets import services as promises
from budgets.models import ApiToken, Membership, Operation, User
from portal.api.authentication import KEYWORD
from portal.api.paging import CREATED, keyset_page
from portal.api.schema import PAGED, paged
from portal.api.serializers import access as shapes
from portal.api.views.base import (
    DONE,
    MADE,
    View,
    account_named,
    actor,
    answers,
    checked,
    deed,
    pages,
    shows,
    workspace_named,
)
from portal.throttling import LoginThrottle


class SchemaView(SpectacularJSONAPIView):
    """The OpenAPI document, for people who can log in."""

    permission_classes = [IsAuthenticated]


class LoginView(View):
    """A token for a user name and a password; the only time that the token is shown."""

    authentication_classes: list[type] = []
    permission_classes = [AllowAny]
    throttle_classes = [LoginThrottle]

    def get_authenticate_header(self, request: Request) -> str:
        """A wrong password is a 401, though no credential was asked for."""
        return KEYWORD

    @extend_schema(request=shapes.LoginInput, responses={201: shapes.NewTokenSerializer})
    def post(self, request: Request) -> Response:
        given = checked(shapes.LoginInput, request)
        user = authenticate(request, username=given["username"], password=given["password"])
        if not isinstance(user, User):
            raise exceptions.AuthenticationFailed("User name and password do not match.")
        token, text = promises.create_api_token(
            user,
            user=user,
            name=given["name"],
            scope=given["scope"],
            expires_at=selectors.utc_now() + timedelta(days=given["days"]),
        )
        answer = {"token": text, **shapes.TokenSerializer(token).data}
        return Response(answer, status=MADE, headers={"Cache-Control": "no-store"})


class MeView(View):
    """Who is asking, and with which roles."""

    @answers(shapes.MeSerializer)
    def get(self, user: User) -> Any:
        token = self.request.auth
        roles = Membership.objects.filter(user=user).select_related("account", "workspace")
        return {
            "username": user.username,
            "email": user.email,
            "time_zone": user.time_zone,
            "scope": token.scope if isinstance(token, ApiToken) else "session",
            "roles": roles.order_by("role", "pk"),
        }


class TokensView(View):
    """The caller's own tokens, without their texts."""

    @pages(shapes.TokenSerializer, CREATED)
    def get(self, user: User) -> Any:
        return ApiToken.objects.filter(user=user)


class TokenView(View):
    """One of the caller's own tokens."""

    delete = deed(promises.revoke_api_token, None, code=DONE)

    def found(self, user: User, pk: int) -> dict[str, Any]:
        return {"token": ApiToken.objects.get(user=user, pk=pk)}


class AuditView(View):
    """Newest first; ``action`` is the beginning of an action's name, such as ``budget.``."""

    query = (
        *PAGED,
        *(OpenApiParameter(name, str) for name in ("workspace", "account", "cluster", "action")),
    )

    @extend_schema(responses=paged(shapes.AuditSerializer))
    def get(self, request: Request) -> Response:
        user = actor(request)
        given = request.query_params
        workspace = given.get("workspace")
        account = given.get("account")

        def read(limit: int, cursor: str | None) -> tuple[Sequence[Any], str | None]:
            rows = selectors.audit_entries(
                user,
                workspace=workspace_named(user, workspace) if workspace else None,
                account=account_named(user, account) if account else None,
                cluster=given.get("cluster") or None,
                action=given.get("action") or None,
                before=int(cursor) if cursor else None,
                limit=limit + 1,
            )
            following = str(rows[limit - 1].pk) if len(rows) > limit else None
            return list(shapes.AuditSerializer(rows[:limit], many=True).data), following

        return keyset_page(request, read, CREATED.cursor)


class OperationView(View):
    """Progress of long work that this user started (platform roles see all)."""

    get = shows(shapes.OperationSerializer)

    def found(self, user: User, pk: UUID) -> dict[str, Any]:
        rows = Operation.objects.all()
        if not selectors.roles_of(user).sees_everything:
            rows = rows.filter(started_by=user)
        return {"operation": rows.get(pk=pk)}


class SetupView(View):
    """What an empty portal still needs; empty for everybody but admins."""

    @answers(shapes.SetupStepSerializer, many=True)
    def get(self, user: User) -> Any:
        return selectors.setup_steps(user)
