"""Error pages: what failed, what still holds, what to do. A part of a page gets one sentence."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import structlog
from django.http import HttpRequest, HttpResponse
from django.template import loader
from django.utils.html import format_html

from portal.web.htmx import is_partial

log = structlog.stdlib.get_logger(__name__)

NOTHING = "Nothing was changed."


class Words(NamedTuple):
    """What is said of a fault: on a page, below the detail; in a part of one, where there is none.

    A part of a page has no room for more than a sentence.
    """

    heading: str
    on_a_page: str = ""
    in_a_part: str = ""


WORDS: Final = {
    400: Words(
        "This request could not be read",
        f"The portal did not understand something in the address or the form. {NOTHING}",
        f"The portal could not read this. {NOTHING}",
    ),
    403: Words(
        "Your role does not allow this",
        f"{NOTHING} Ask a platform admin for the role, or go back to what is yours.",
        f"Your role does not allow this. {NOTHING}",
    ),
    404: Words(
        "There is nothing here for you",
        f"The address is wrong, the thing is gone, or you may not see it. {NOTHING}",
        "This is gone, or you may not see it. Reload the page.",
    ),
    405: Words(
        "This address is not a page",
        "Only a button uses this address. If you have just signed in, the button that you pressed "
        f"before had no effect: go back to its page and press it again. {NOTHING}",
        f"This address cannot be used in that way. {NOTHING}",
    ),
    413: Words("Too much was sent"),
    415: Words("This request could not be read"),
    429: Words("Too much at once"),
    500: Words(
        "The portal failed while making this page",
        "What was saved before stands, and clusters go on working without this page. Try again in "
        "a moment; if it happens again, tell a platform admin the time and this reference.",
        "The portal failed here. What was saved before is still there. Try again.",
    ),
}
"""By status; those without sentences are given a detail."""


def bad_request(request: HttpRequest, exception: Any = None) -> HttpResponse:
    return _answer(request, 400, detail=str(exception or ""))


def forbidden(request: HttpRequest, exception: Any = None) -> HttpResponse:
    return _answer(request, 403, detail=str(exception or ""))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    log.info("csrf_refused", path=request.path, reason=reason)
    detail = (
        "You have signed in again since this form was opened, or cookies are off. Go back, reload "
        "the page and send the form again."
    )
    return _answer(request, 403, detail=detail, heading="This form is out of date", says=NOTHING)


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
    words = WORDS[status]
    if hasattr(request, "htmx") and is_partial(request):
        sentence = detail or words.in_a_part
        text = format_html('<p class="note trouble" role="alert">{}</p>', sentence)
        return HttpResponse(text, status=status)
    # A 500 is rendered without the frame's queries: whatever failed may fail again there.
    with_frame = None if status == 500 else request
    context = {
        "status": status,
        "heading": words.heading,
        "says": words.on_a_page,
        "detail": detail,
        **more,
    }
    return HttpResponse(loader.render_to_string("error.html", context, with_frame), status=status)
