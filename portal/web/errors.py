"""Error pages: what failed, what still holds, what to do. A part of a page gets one sentence."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import structlog
from django.http import HttpRequest, HttpResponse
from django.template import loader
from django.utils.html import format_html

from portal.web.htmx import is_partial

log = structlog.stdlib.get_logger(__name__)

IN_ONE_SENTENCE = {
    400: "The portal could not read this. Nothing was changed.",
    403: "Your role does not allow this. Nothing was changed.",
    404: "This is gone, or you may not see it. Reload the page.",
    405: "This address cannot be used in that way. Nothing was changed.",
    500: "The portal failed here. What was saved before is still there. Try again.",
}


def bad_request(request: HttpRequest, exception: Any = None) -> HttpResponse:
    return _answer(request, 400, detail=str(exception or ""))


def forbidden(request: HttpRequest, exception: Any = None) -> HttpResponse:
    return _answer(request, 403, detail=str(exception or ""))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    log.info("csrf_refused", path=request.path, reason=reason)
    detail = (
        "You have signed in again since this form was opened, or cookies are off. Go back, reload "
        "the "
        "page and send the form again."
    )
    return _answer(request, 403, detail=detail, title="This form is out of date")


def not_found(request: HttpRequest, exception: Any = None) -> HttpResponse:
    return _answer(request, 404)


def method_not_allowed(request: HttpRequest, allowed: Sequence[str]) -> HttpResponse:
    """What a reader gets who signs in again and is sent to where a button had led."""
    log.info("method_refused", method=request.method, path=request.path)
    answer = _answer(request, 405)
    answer["Allow"] = ", ".join(allowed)
    return answer


def refused(request: HttpRequest, status: int, detail: str) -> HttpResponse:
    """What is not read at all: too large (413), or in letters of another kind (415)."""
    return _answer(request, status, detail=detail)


def too_many(request: HttpRequest, detail: str, *, wait_s: int) -> HttpResponse:
    answer = _answer(request, 429, detail=detail)
    answer["Retry-After"] = str(wait_s)
    return answer


def server_error(request: HttpRequest) -> HttpResponse:
    reference = uuid.uuid4().hex[:12]
    log.error("server_error", reference=reference, path=request.path)
    return _answer(request, 500, reference=reference)


def _answer(request: HttpRequest, status: int, *, detail: str = "", **more: Any) -> HttpResponse:
    if hasattr(request, "htmx") and is_partial(request):
        sentence = detail or IN_ONE_SENTENCE[status]
        text = format_html('<p class="note trouble" role="alert">{}</p>', sentence)
        return HttpResponse(text, status=status)
    # A 500 is rendered without the frame's queries: whatever failed may fail again there.
    with_frame = None if status == 500 else request
    context = {"status": status, "detail": detail, **more}
    return HttpResponse(
        loader.render_to_string(f"errors/{status}.html", context, with_frame), status=status
    )
