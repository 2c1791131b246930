"""What every view does alike: checked input, looked-up names as faults, errors as JSON.

A method of a view is declared by what it takes, what it does and what it tells: see :func:`deed`,
:func:`answers` and :func:`pages`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from django.db.models import QuerySet
from django.http import Http404
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.permissions import SAFE_METHODS, AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from budgets import selectors
from budgets.errors import Fault, NotAllowed, Rejected
from budgets.models import Account, User, Workspace
from budgets.texts import is_storable
from portal.api.paging import Order, expected_version, page
from portal.api.parsing import JSONBody
from portal.api.schema import PAGED, PortalSchema, paged

ARCHIVED = OpenApiParameter("archived", bool, description="With archived ones: true.")
MADE = status.HTTP_201_CREATED
DONE = status.HTTP_204_NO_CONTENT
ASKED = status.HTTP_202_ACCEPTED
POST = frozenset({"POST"})
Shape = type[serializers.Serializer[Any]]
Handler = Callable[..., HttpResponseBase]
By = Callable[[Request], User]


class View(APIView):
    """Base of the API's views.

    Attributes:
        query: Parameters that GET knows; any other one is a fault, because a mistyped filter
            would hand out everything.
        filters: Parameters of a list that a column has to equal, with the column.
        needs_version: Methods that ask for If-Match.
        only_reads: A POST that writes nothing, open to read-only tokens.
    """

    parser_classes = [JSONBody]
    schema = PortalSchema()
    query: Sequence[OpenApiParameter] = ()
    filters: Mapping[str, str] = {}
    needs_version: frozenset[str] = frozenset()
    only_reads = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        more = [OpenApiParameter(name, str) for name in cls.filters]
        more += PAGED if getattr(getattr(cls, "get", None), "is_paged", False) else ()
        known = {parameter.name for parameter in cls.query}
        cls.query = (*cls.query, *(each for each in more if each.name not in known))

    def found(self, user: User, *args: Any, **address: Any) -> Mapping[str, Any]:
        """What the address names, by the names under which services take it.

        Who does not see it finds nothing, whatever the body says.
        """
        return address

    def shown(self, user: User, made: Any, *args: Any, **address: Any) -> Any:
        """What is told after a deed that made, or changed, something."""
        return made

    def flag(self, name: str) -> bool:
        """A true or false parameter, false when left out.

        Raises:
            Rejected: It is something else.
        """
        text = self.request.query_params.get(name, "false").lower()
        if text not in ("true", "false"):
            raise Rejected([Fault(name, "invalid", f"{text[:80]!r} is neither true nor false.")])
        return text == "true"

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


def checked(takes: Shape, request: Request) -> dict[str, Any]:
    """The validated body, with rows for names; everything wrong is a 422."""
    body = takes(data=request.data, context={"user": request.user})
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


def answers(
    shape: Shape | None,
    *,
    takes: Shape | None = None,
    code: int | Sequence[int] = status.HTTP_200_OK,
    by: By | None = None,
    many: bool = False,
) -> Callable[[Callable[..., Any]], Handler]:
    """Make a method say only what is done: ``method(self, user, **found and given) -> row``.

    Args:
        shape: How the row is told; None for an empty answer. A response is sent as it is.
        takes: Of the body, whose values the method gets by name.
        code: Of the answer; several where the method makes the response.
        by: Who may; everybody who is logged in where left out.
        many: The method finds a list.
    """
    codes = [code] if isinstance(code, int) else code

    def decorate(method: Callable[..., Any]) -> Handler:
        @functools.wraps(method)
        def handler(self: View, request: Request, **address: Any) -> HttpResponseBase:
            user = (by or actor)(request)
            arguments = dict(self.found(user, **address))
            if request.method in self.needs_version:
                arguments["expected_version"] = expected_version(request)
            if takes is not None:
                arguments |= checked(takes, request)
            row = method(self, user, **arguments)
            if shape is None:
                return Response(status=codes[0])
            if request.method not in SAFE_METHODS:
                row = self.shown(user, row, **address)
            if isinstance(row, HttpResponseBase):
                return row
            return Response(shape(row, many=many).data, status=codes[0])

        return cast(Handler, extend_schema(request=takes, responses=responses)(handler))

    responses = dict.fromkeys(codes, shape(many=True) if shape and many else shape)
    return decorate


def shows(shape: Shape) -> Handler:
    """A GET of the one thing that the address names."""

    def get(self: View, user: User, **found: Any) -> Any:
        (row,) = found.values()
        return row

    return answers(shape)(get)


def deed(service: Callable[..., Any], shape: Shape | None, **declared: Any) -> Handler:
    """A method that hands what the address names, and the body, to a service; as for answers."""

    def do(self: View, user: User, **arguments: Any) -> Any:
        return service(user, **arguments)

    return answers(shape, **declared)(do)


def pages(
    shape: Shape, order: Order, *, by: By | None = None
) -> Callable[[Callable[..., Any]], Handler]:
    """Make a method that finds rows a list in pages: ``method(self, user, **found) -> rows``."""

    def decorate(method: Callable[..., Any]) -> Handler:
        @functools.wraps(method)
        def handler(self: View, request: Request, **address: Any) -> HttpResponseBase:
            user = (by or actor)(request)
            rows = method(self, user, **self.found(user, **address))
            for name, column in self.filters.items():
                if value := request.query_params.get(name):
                    rows = rows.filter(**{column: value})
            return page(request, rows, shape, order)

        handler.is_paged = True  # type: ignore[attr-defined]  # read where the class is made
        return cast(Handler, extend_schema(responses=paged(shape))(handler))

    return decorate


def named(rows: QuerySet[Any], field: str, key: str, value: str) -> Any:
    """The visible row whose ``key`` is ``value``, for a parameter of the query.

    Raises:
        Rejected: there is none, at ``field``.
    """
    found = rows.filter(**{key: value}).first()
    if found is None:
        raise Rejected([Fault(field, "unknown", f"There is no {field} {value!r}.")])
    return found


def account_named(user: User, slug: str) -> Account:
    return cast(Account, named(selectors.visible_accounts(user), "account", "slug", slug))


def workspace_named(user: User, namespace: str) -> Workspace:
    rows = selectors.visible_workspaces(user, include_archived=True)
    return cast(Workspace, named(rows, "workspace", "namespace", namespace))
