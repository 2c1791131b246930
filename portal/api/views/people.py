"""People and their roles."""

from __future__ import annotations

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import selectors
from budgets import services as promises
from budgets.errors import NotAllowed
from budgets.models import Membership, User
from portal.api.paging import CREATED, USERNAME, page
from portal.api.schema import PAGED, paged
from portal.api.serializers import access as shapes
from portal.api.views.base import View, account_named, actor, admin, checked, named, workspace_named


class UsersView(View):
    """Everybody who can log in; for admins."""

    query = PAGED

    @extend_schema(responses=paged(shapes.UserSerializer))
    def get(self, request: Request) -> Response:
        admin(request)
        return page(request, User.objects.all(), shapes.UserSerializer, USERNAME)

    @extend_schema(request=shapes.UserInput, responses={201: shapes.UserSerializer})
    def post(self, request: Request) -> Response:
        user = admin(request)
        made = promises.create_user(user, **checked(shapes.UserInput, request))
        return Response(shapes.UserSerializer(made).data, status=status.HTTP_201_CREATED)


class PasswordView(View):
    """A new password for somebody else; one's own is changed on its page, with the old one."""

    @extend_schema(request=shapes.PasswordInput, responses={204: None})
    def put(self, request: Request, username: str) -> Response:
        user = admin(request)
        if username == user.username:
            raise NotAllowed("Change your own password on its page, where the old one is asked.")
        given = checked(shapes.PasswordInput, request)
        found = User.objects.filter(username=username).first()
        if found is None:
            raise Http404
        promises.set_password(user, user=found, password=given["password"])
        return Response(status=status.HTTP_204_NO_CONTENT)


class MembersView(View):
    """Roles: all for platform roles, else one's own and those of what one owns."""

    query = (
        *PAGED,
        *(OpenApiParameter(name, str) for name in ("username", "role", "account", "workspace")),
    )

    @extend_schema(responses=paged(shapes.MemberSerializer))
    def get(self, request: Request) -> Response:
        rows = selectors.visible_memberships(actor(request))
        for name, column in (
            ("username", "user__username"),
            ("role", "role"),
            ("account", "account__slug"),
            ("workspace", "workspace__namespace"),
        ):
            if value := request.query_params.get(name):
                rows = rows.filter(**{column: value})
        return page(request, rows, shapes.MemberSerializer, CREATED)

    @extend_schema(request=shapes.MemberInput, responses={201: shapes.MemberSerializer})
    def post(self, request: Request) -> Response:
        """Gives a role; giving it twice changes nothing."""
        user = admin(request)
        given = checked(shapes.MemberInput, request)
        account, workspace = given.get("account"), given.get("workspace")
        made = promises.grant_role(
            user,
            user=named(User.objects.all(), "username", "username", given["username"]),
            role=given["role"],
            account=account_named(user, account) if account else None,
            workspace=workspace_named(user, workspace) if workspace else None,
        )
        return Response(shapes.MemberSerializer(made).data, status=status.HTTP_201_CREATED)


class MemberView(View):
    """One role of one person."""

    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        member: Membership = selectors.visible_memberships(actor(request)).get(pk=pk)
        promises.revoke_role(actor(request), membership=member)
        return Response(status=status.HTTP_204_NO_CONTENT)
