"""What holds for every request and answer of the web, pages and API alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.http import parse_header_parameters

from portal.web.errors import refused

log = structlog.stdlib.get_logger(__name__)

Handling = Callable[[HttpRequest], HttpResponseBase]
NOWHERE_KEPT: Final = "private, no-store"
UTF_8: Final = frozenset({"", "utf-8", "utf8", "us-ascii", "ascii"})
"""As a Content-Type may name it; ASCII is a part of it."""


class Request(WSGIRequest):
    """Its address and its forms are UTF-8: no other charset that it names is ever looked up.

    Django decodes the query with it before any middleware, and there are charsets of Python that
    decode no text.
    """

    def _set_content_type_params(self, meta: Mapping[str, Any]) -> None:
        try:
            self.content_type, self.content_params = parse_header_parameters(
                meta.get("CONTENT_TYPE", "")
            )
        except ValueError:  # a parameter is in a charset of its own, as RFC 2231 has it
            self.content_type, self.content_params = "", {"charset": "unreadable"}


class Handler(WSGIHandler):
    """The application: Django's, for requests in UTF-8."""

    request_class = Request


def bounded_body(get_response: Handling) -> Handling:
    """Refuse a body of more than PORTAL_BODY_LIMIT bytes before a byte of it is parsed.

    What names no length has none here: the server hands on no more than the length that was named.
    """

    def answer(request: HttpRequest) -> HttpResponseBase:
        length = request.META.get("CONTENT_LENGTH") or "0"
        # More digits than any length has are not counted out.
        is_short = len(length) < 19
        if not length.isdecimal() or (is_short and int(length) <= settings.PORTAL_BODY_LIMIT):
            return get_response(request)
        log.info("body_refused", path=request.path, length=length[:20])
        limit = f"{settings.PORTAL_BODY_LIMIT:,} bytes"
        words = f"This is more than the {limit} that one request can have. Nothing was changed."
        return _refusal(request, 413, "too_large", words)

    return answer


def read_as_utf8(get_response: Handling) -> Handling:
    """Refuse what is said to be in any charset but UTF-8."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        named = (request.content_params or {}).get("charset", "").strip("' ")
        if named.lower() in UTF_8:
            return get_response(request)
        log.info("charset_refused", path=request.path, charset=named[:20])
        words = (
            f"The Content-Type of this request names the charset {named[:20]!r}. The portal reads "
            "UTF-8 alone: send it in UTF-8, and name that charset or none. Nothing was changed."
        )
        return _refusal(request, 415, "unsupported_media_type", words)

    return answer


def _refusal(request: HttpRequest, status: int, code: str, words: str) -> HttpResponse:
    if request.path.startswith("/api/"):
        return JsonResponse({"code": code, "message": words}, status=status)
    return refused(request, status, words)


def nowhere_kept(get_response: Handling) -> Handling:
    """Answers stay in no cache unless a view says otherwise: they show what one person may see."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        response.headers.setdefault("Cache-Control", NOWHERE_KEPT)
        return response

    return answer
