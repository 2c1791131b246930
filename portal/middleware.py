"""What holds for every request and answer of the web, pages and API alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from portal.web.errors import too_large

log = structlog.stdlib.get_logger(__name__)

Handler = Callable[[HttpRequest], HttpResponseBase]
NOWHERE_KEPT: Final = "private, no-store"


def bounded_body(get_response: Handler) -> Handler:
    """Refuse a body of more than PORTAL_BODY_LIMIT bytes before a byte of it is parsed.

    What names no length has none here: the server hands on no more than the length that was named.
    """

    def answer(request: HttpRequest) -> HttpResponseBase:
        length = request.META.get("CONTENT_LENGTH") or "0"
        if not length.isdecimal() or int(length) <= settings.PORTAL_BODY_LIMIT:
            return get_response(request)
        log.info("body_refused", path=request.path, length=length[:20])
        return _refusal(request)

    return answer


def _refusal(request: HttpRequest) -> HttpResponse:
    limit = f"{settings.PORTAL_BODY_LIMIT:,} bytes"
    words = f"This is more than the {limit} that one request can have. Nothing was changed."
    if request.path.startswith("/api/"):
        return JsonResponse({"code": "too_large", "message": words}, status=413)
    return too_large(request, words)


def nowhere_kept(get_response: Handler) -> Handler:
    """Answers stay in no cache unless a view says otherwise: they show what one person may see."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        response.headers.setdefault("Cache-Control", NOWHERE_KEPT)
        return response

    return answer
