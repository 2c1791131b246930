"""What every view does alike: checked input, looked-up names as faults, errors as JSON.

Bodies are JSON, of bounded size and depth, in text that every database can keep.

A noun is a class with its list, its single ones and its deeds, which the router of
``portal.api.urls`` gives their addresses. Each method is declared by what it takes, does and
tells: see :func:`answers`, :func:`deed` and :func:`lists`.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping
from typing import IO, Any, Final, cast

from django.db.models import QuerySet
from django.http import Http404
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import exceptions, parsers, status
from rest_framework.decorators import action
from rest_framework.permissions import SAFE_METHODS, AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSetMixin

from budgets import selectors
from budgets.errors import Fault, NotAllowed, Rejected
from budgets.models import Account, User, Workspace
from budgets.texts import is_storable
from portal.api.paging import Order, expected_version, page
from portal.api.schema import Declared, PortalSchema, Shape, declared_of

MOST_BYTES: Final = 1_000_000
ARCHIVED: Final = OpenApiParameter("archived", bool, description="With archived ones: true.")
MADE: Final = status.HTTP_201_CREATED
DONE: Final = status.HTTP_204_NO_CONTENT
ASKED: Final = status.HTTP_202_ACCEPTED
ROUTED: Final = frozenset({"list", "create", "retrieve", "partial_update", "update", "destroy"})
"""What the router knows by these names; every other method of a noun is an address below it."""
Handler = Callable[..., HttpResponseBase]


class BodyTooLarge(exceptions.APIException):
    """More than any request of this API needs."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = f"The body is larger than {MOST_BYTES:,} bytes."
    default_code = "too_large"


class JSONBody(parsers.JSONParser):
    """JSON alone; nonsense of any kind is a 400 with the place where reading stopped."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        text = stream.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise BodyTooLarge
        try:
            body = super().parse(io.BytesIO(text), media_type, dict(parser_context or {}))
        except RecursionError:
            raise exceptions.ParseError("The body is nested too deeply.") from None
        if not is_storable(body):
            raise exceptions.ParseError(
                "The body has a NUL or half a surrogate pair in a text, or a number beyond a float."
            )
        return body


class View(APIView):
    """Base of the API's views.

    A parameter of the query that a GET does not declare is a fault, because a mistyped filter
    would hand out everything.

    Attributes:
        shape: How a row is told, where a method names no other.
        only_reads: A POST that writes nothing, open to read-only tokens.
    """

    parser_classes = [JSONBody]
    schema = PortalSchema()
    shape: Shape
    only_reads = False

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
        declared = declared_of(self, "GET").parameters if request.method == "GET" else ()
        known = {parameter.name for parameter in declared}
        faults = [
            Fault(name[:80], "unknown_parameter", "This address has no such parameter.")
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


class Noun(ViewSetMixin, View):
    """Things of one kind: their list, each of them, and what is done to one.

    What is told of the list stands in the docstring. A method that no router knows by its name
    is an address of that name below one of them.

    Attributes:
        each: What is told of one of them.
    """

    each = ""
    lookup_field = "pk"
    lookup_value_converter = "int"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, handler in [*vars(cls).items()]:
            declared = getattr(handler, "declared", None)
            if declared is not None and name not in ROUTED:
                handler.__name__ = name
                address = declared.at or name.replace("_", "-")
                action(
                    [declared.method],
                    detail=not declared.is_of_all,
                    url_path=address,
                    only_reads=declared.only_reads,
                )(handler)


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


def admin_in_session(request: Request) -> User:
    """The authenticated user, when an admin who signed in to a browser session.

    Whoever finds an admin's token is not to make people and roles with it.

    Raises:
        NotAllowed: For everybody else.
    """
    user = admin(request)
    if request.auth is not None:
        raise NotAllowed(
            "People, roles and tokens of others are changed in a browser session, never with an"
            " API token. Sign in to the portal."
        )
    return user


def checked(takes: Shape, request: Request) -> dict[str, Any]:
    """The validated body, with rows for names; everything wrong is a 422."""
    body = takes(data=request.data, context={"user": request.user})
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


def answers(
    shape: Shape | None = None,
    *,
    code: int | tuple[int, ...] = status.HTTP_200_OK,
    by: Callable[[Request], User] = actor,
    **declared: Any,
) -> Callable[[Callable[..., Any]], Handler]:
    """Make a method say only what is done: ``method(self, user, **found and given) -> row``.

    Args:
        shape: How the row is told, if not in the view's own. A response is sent as it is.
        code: Of the answer, which is empty with 204; several where the method makes the response.
        by: Who may; everybody who is logged in where left out.
        declared: The rest of :class:`Declared`; a method takes the body's values by name.
    """
    codes = code if isinstance(code, tuple) else (code,)
    said = Declared(shape=shape, codes=codes, **declared)

    def decorate(method: Callable[..., Any]) -> Handler:
        @functools.wraps(method)
        def handler(self: View, request: Request, **address: Any) -> HttpResponseBase:
            user = by(request)
            arguments = dict(self.found(user, **address)) if address else {}
            if said.needs_version:
                arguments["expected_version"] = expected_version(request)
            if said.takes is not None:
                arguments |= checked(said.takes, request)
            made = method(self, user, **arguments)
            told = shape or getattr(self, "shape", None)
            if DONE in codes or told is None:
                return Response(status=DONE)
            if said.order is not None:
                rows = said.filtered(made, request.query_params)
                return page(request, rows, told, said.order, **said.more)
            if request.method not in SAFE_METHODS:
                made = self.shown(user, made, **address)
            if isinstance(made, HttpResponseBase):
                return made
            return Response(told(made, many=said.many).data, status=codes[0])

        handler.declared = said  # type: ignore[attr-defined]  # the view and the document read it
        return cast(Handler, handler)

    return decorate


def shows(shape: Shape | None = None, **declared: Any) -> Handler:
    """A GET of the one thing that the address names."""

    def get(self: View, user: User, /, **found: Any) -> Any:
        (row,) = found.values()
        return row

    return answers(shape, **declared)(get)


def deed(
    service: Callable[..., Any], shape: Shape | None = None, *, text: str = "", **declared: Any
) -> Handler:
    """A method that hands what the address names, and the body, to a service.

    Args:
        service: Called with the user, and the rest by name.
        shape: As for :func:`answers`.
        text: What the document says of it, where the view does not say it.
        declared: As for :func:`answers`.
    """

    def do(self: View, user: User, /, **arguments: Any) -> Any:
        return service(user, **arguments)

    do.__doc__ = text or None
    return answers(shape, **declared)(do)


def lists(
    rows: Callable[..., Any], order: Order, *, can_be_archived: bool = False, **declared: Any
) -> Handler:
    """A list in pages of what a selector hands out.

    Args:
        rows: Called with the user, and what the address names.
        order: Of the rows.
        can_be_archived: The selector leaves archived ones out, unless they are asked for.
        declared: As for :func:`answers`.
    """

    def find(self: View, user: User, **found: Any) -> Any:
        if can_be_archived:
            found["include_archived"] = self.flag("archived")
        return rows(user, **found)

    query = (ARCHIVED,) if can_be_archived else ()
    return answers(order=order, query=query, **declared)(find)


def finds(name: str, find: Callable[..., Any]) -> Callable[..., Mapping[str, Any]]:
    """``found`` of a view whose address names one thing.

    Args:
        name: Under which services take it.
        find: ``find(user, the name or number in the address) -> row``.
    """
    return lambda self, user, **address: {name: find(user, *address.values())}


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
