"""What the OpenAPI document says of every operation, from what the views declare."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, inline_serializer
from rest_framework import serializers

from portal.api.serializers.base import ProblemSerializer

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


class PortalSchema(AutoSchema):
    """Parameters out of ``view.query``, If-Match where it is needed, the errors of everything."""

    @property
    def _declared(self) -> Any:
        """The view, with the attributes of ``portal.api.views.base.View``."""
        return self.view

    def get_override_parameters(self) -> list[Any]:
        if self.method == "GET":
            return list(self._declared.query)
        return [IF_MATCH] if self.method in self._declared.needs_version else []

    def get_operation_id(self) -> str:
        path = self.path.removeprefix("/api/v1/")
        words = [re.sub(r"\W", "_", part) for part in path.split("/") if not part.startswith("{")]
        is_list = any(parameter.name == "cursor" for parameter in self._declared.query)
        verb = "list" if self.method == "GET" and is_list else VERBS[self.method]
        if self.method == "POST" and words[-1] in DEEDS:
            verb = words.pop()
        one = "_one" if path.endswith("}") else ""
        return "_".join([verb, *words]) + one

    def get_tags(self) -> list[str]:
        return [self.path.removeprefix("/api/v1/").split("/")[0]]

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        codes = {"401": "Who are you?", "403": "Your role or token does not allow it."}
        if "{" in self.path:
            codes["404"] = "There is no such object for you."
        if self.method != "DELETE":
            codes["422"] = "Everything that is wrong, at once."
        if self._declared.throttle_classes:
            codes["429"] = "Too many attempts; Retry-After says when to come back."
        if self.method in self._declared.needs_version:
            codes |= {"412": "Somebody saved in between.", "428": "If-Match is missing."}
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
            "description": "Token gbp_…, from POST login or from the page Account, Tokens.",
        }
