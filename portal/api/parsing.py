"""Bodies: JSON, of bounded size and depth, in text that every database can keep."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import IO, Any

from rest_framework import exceptions, parsers, status

from budgets.texts import is_storable

MOST_BYTES = 1_000_000


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
