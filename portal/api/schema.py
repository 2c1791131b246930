"""What the OpenAPI document says of every operation, from what the views declare."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_doc, is_list_serializer
from drf_spectacular.utils import OpenApiParameter, inline_serializer
from rest_framework import serializers, status

from portal.api.paging import Order
from portal.api.shapes import ProblemSerializer
from portal.signin import LoginThrottle

VERBS = {"GET": "read", "POST": "create", "PUT": "set", "PATCH": "edit", "DELETE": "remove"}
DEEDS = frozenset(
    {"archive", "decide", "deregister", "inspect", "login", "preview", "resolve", "restore"}
    | {"withdraw"}
)
IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, required=True, description="The budget's ETag."
)
CURSOR = OpenApiParameter("cursor", str, description="Continues a list; taken out of 'next'.")
LIMIT = OpenApiParameter("limit", int, description="1 to 1000 rows; 100 when left out.")
PAGED = (CURSOR, LIMIT)
Shape = type[serializers.Serializer[Any]]


@cache
def paged(serializer: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """The shape of one page of a list."""
    name = serializer.__name__.removesuffix("Serializer")
    return inline_serializer(
        f"{name}Page",
        {
            "next": serializers.URLField(allow_null=True),
            "results": serializers.ListField(child=serializer()),
        },
    )


@dataclass(frozen=True, slots=True)
class Declared:
    """What is said of a method of a view, for its answers and for the document.

    Attributes:
        shape: How a row is told; None: as the view's others.
        codes: Of its answers; 204 is empty.
        takes: Of the body.
        many: The method finds a list.
        order: Of rows that are told in pages.
        query: Parameters that a GET reads.
        filters: Further parameters of with the column that has to equal each.
        more: Further keys of an answer in pages.
        needs_version: It asks for If-Match.
        only_reads: A POST that writes nothing, open to read-only tokens.
        method, at: Of an address below a noun: its HTTP method and path, of the name if empty.
        is_of_all: That address stands below the list, not below one.
    """

    shape: Shape | None = None
    codes: tuple[int, ...] = (status.HTTP_200_OK,)
    takes: Shape | None = None
    many: bool = False
    order: Order | None = None
    query: Sequence[OpenApiParameter] = ()
    filters: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    needs_version: bool = False
    only_reads: bool = False
    method: str = "POST"
    at: str = ""
    is_of_all: bool = False

    @property
    def parameters(self) -> Sequence[OpenApiParameter]:
        """Everything that a GET knows."""
        read = {parameter.name for parameter in self.query}
        equal = (OpenApiParameter(name, str) for name in self.filters if name not in read)
        return (*self.query, *equal, *(PAGED if self.order else ()))

    def filtered(self, rows: Any, given: Mapping[str, str]) -> Any:
        """The rows whose columns equal the parameters that were given."""
        equal = {column: given[name] for name, column in self.filters.items() if given.get(name)}
        return rows.filter(**equal) if equal else rows


UNDECLARED = Declared()


def _method_of(view: Any, method: str) -> Any:
    """What of a view, or of a noun, answers to an HTTP method."""
    return getattr(view, getattr(view, "action", None) or method.lower(), None)


def declared_of(view: Any, method: str) -> Declared:
    """What is said of the method of a view that answers to an HTTP method."""
    found: Declared = getattr(_method_of(view, method), "declared", UNDECLARED)
    return found


class PortalSchema(AutoSchema):
    """What views declare, If-Match where it is needed, the errors of everything."""

    @property
    def _declared(self) -> Declared:
        return declared_of(self.view, self.method)

    def get_override_parameters(self) -> list[Any]:
        return [IF_MATCH] if self._declared.needs_version else list(self._declared.parameters)

    def get_request_serializer(self) -> Any:
        return self._declared.takes

    def get_response_serializers(self) -> Any:
        declared = self._declared
        if status.HTTP_204_NO_CONTENT in declared.codes:
            return dict.fromkeys(declared.codes)
        view: Any = self.view
        shape: Shape = declared.shape or view.shape
        told = paged(shape) if declared.order else shape(many=True) if declared.many else shape
        return dict.fromkeys(declared.codes, told)

    def _is_list_view(self, serializer: Any = None) -> bool:
        return bool(is_list_serializer(serializer))

    def get_description(self) -> str:  # type: ignore[override]  # as its base does
        own = get_doc(_method_of(self.view, self.method))
        each = getattr(self.view, "each", "") if getattr(self.view, "detail", False) else ""
        return own or each or super().get_description()

    def get_operation_id(self) -> str:
        path = self.path.removeprefix("/api/v1/")
        words = [re.sub(r"\W", "_", part) for part in path.split("/") if not part.startswith("{")]
        is_list = any(parameter.name == "cursor" for parameter in self._declared.parameters)
        verb = "list" if self.method == "GET" and is_list else VERBS[self.method]
        if self.method == "POST" and words[-1] in DEEDS:
            verb = words.pop()
        one = "_one" if path.endswith("}") else ""
        return "_".join([verb, *words]) + one

    def get_tags(self) -> list[str]:
        return [self.path.removeprefix("/api/v1/").split("/")[0]]

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        codes = {
            "401": "No valid sign-in or token was sent.",
            "403": "Your role or token does not allow it.",
        }
        if "{" in self.path:
            codes["404"] = "There is no such object, or you may not see it."
        if self.method != "DELETE":
            codes["422"] = "Everything that is wrong, at once."
        if LoginThrottle in self.view.throttle_classes:
            codes["429"] = "Too many attempts; Retry-After says when to come back."
        if self._declared.needs_version:
            codes |= {"412": "Somebody else saved in between.", "428": "If-Match is missing."}
        describe: Any = self._get_response_for_code
        for code, description in codes.items():
            body = describe(ProblemSerializer, code) | {"description": description}
            bodies.setdefault(code, body)
        return bodies


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # its base registers subclasses untyped
    """How the schema names the token."""

    target_class = "portal.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "Token gbp_…, from POST login or from the page API tokens.",
        }


class MachineScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # its base registers subclasses untyped
    """How the schema names the token of a machine."""

    target_class = "portal.api.authentication.MachineAuthentication"
    name = "machine"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "A token of the company's provider, by client credentials.",
        }
