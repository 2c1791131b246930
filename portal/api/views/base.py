"""What every view does alike: checked input, looked-up names as faults, errors as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from budgets import selectors
from budgets.errors import Fault, NotAllowed, Rejected
from budgets.models import Account, Flavor, User, Workspace
from budgets.texts import is_storable
from portal.api.parsing import JSONBody
from portal.api.schema import PortalSchema

ARCHIVED = OpenApiParameter("archived", bool, description="With archived ones: true.")


class View(APIView):
    """Base of the API's views.

    Attributes:
        query: Parameters that GET knows; any other one is a fault, because a mistyped filter
            would hand out everything.
        needs_version: Methods that ask for If-Match.
        only_reads: A POST that writes nothing, open to read-only tokens.
    """

    parser_classes = [JSONBody]
    schema = PortalSchema()
    query: Sequence[OpenApiParameter] = ()
    needs_version: frozenset[str] = frozenset()
    only_reads = False

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if any(not is_storable(str(value)) for value in kwargs.values()):
            raise Http404
        known = {parameter.name for parameter in self.query} if request.method == "GET" else set()
        faults = [
            Fault(name[:80], "unknown_parameter", "There is no such parameter here.")
            for name in request.query_params
            if name not in known
        ]
        faults += [
            Fault(name, "invalid", "The value has a NUL or half a surrogate pair.")
            for name in known
            if not is_storable(request.query_params.getlist(name))
        ]
        if faults:
            raise Rejected(faults)


class NowhereView(View):
    """Every address that the API does not have."""

    authentication_classes: list[type] = []
    permission_classes = [AllowAny]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise Http404

    @extend_schema(exclude=True)
    def get(self, request: Request, **kwargs: Any) -> Response:
        raise Http404

    post = put = patch = delete = get


def actor(request: Request) -> User:
    """The authenticated user."""
    return cast(User, request.user)


def admin(request: Request) -> User:
    """The authenticated user, when an admin; asked before a name is looked up.

    Raises:
        NotAllowed: For everybody else.
    """
    user = actor(request)
    if not selectors.roles_of(user).is_admin:
        raise NotAllowed("Only a platform admin can do this.")
    return user


def checked(
    serializer: type[serializers.BaseSerializer[Any]], request: Request, *, partial: bool = False
) -> dict[str, Any]:
    """The validated body; everything wrong is a 422."""
    body = serializer(data=request.data, partial=partial)
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


def flag(request: Request, name: str) -> bool:
    """A true or false parameter, false when left out.

    Raises:
        Rejected: It is something else.
    """
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false"):
        raise Rejected([Fault(name, "invalid", f"{text[:80]!r} is neither true nor false.")])
    return text == "true"


def named(rows: QuerySet[Any], field: str, key: str, value: str) -> Any:
    """The visible row whose ``key`` is ``value``.

    Raises:
        Rejected: there is none, at ``field``.
    """
    try:
        return rows.get(**{key: value})
    except ObjectDoesNotExist:
        raise Rejected([Fault(field, "unknown", f"There is no {field} {value!r}.")]) from None


def flavor_named(user: User, slug: str, field: str = "flavor") -> Flavor:
    return cast(Flavor, named(selectors.visible_flavors(user), field, "slug", slug))


def account_named(user: User, slug: str) -> Account:
    return cast(Account, named(selectors.visible_accounts(user), "account", "slug", slug))


def workspace_named(user: User, namespace: str) -> Workspace:
    rows = selectors.visible_workspaces(user, include_archived=True)
    return cast(Workspace, named(rows, "workspace", "namespace", namespace))
