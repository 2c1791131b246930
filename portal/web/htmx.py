"""Page or partial? And 304 for a poll that found nothing new.

A page's file holds its partials as ``{% partialdef name inline %} … {% endpartialdef name %}``:
rendered in place with the page, alone when HTMX asks. A boosted link is ordinary navigation and
gets the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template import loader
from django.utils.cache import get_conditional_response, patch_vary_headers, set_response_etag


def is_htmx(request: HttpRequest) -> bool:
    """HTMX asks, for a page or a part of it, and not to restore history."""
    htmx = request.htmx  # type: ignore[attr-defined]  # set by HtmxMiddleware
    return bool(htmx) and not htmx.history_restore_request


def is_partial(request: HttpRequest) -> bool:
    """HTMX asks for a part of a page: by HTMX, not boosted, not restoring history."""
    return is_htmx(request) and not request.htmx.boosted  # type: ignore[attr-defined]  # as above


def target(request: HttpRequest) -> str:
    """Id of the element that HTMX will fill; empty without one."""
    return request.htmx.target or ""  # type: ignore[attr-defined]  # set by HtmxMiddleware


def render(
    request: HttpRequest,
    template_name: str,
    context: Mapping[str, Any] | None = None,
    *,
    partial: str | None = None,
    status: int = 200,
) -> HttpResponse:
    """Render a page, or one named partial of it when HTMX asked for a part.

    Args:
        request: Its HTMX headers decide.
        template_name: The page's file.
        context: Template context.
        partial: Name of the partial; None always renders the page.
        status: HTTP status.

    Raises:
        TemplateDoesNotExist: The file has no such partial.
    """
    if partial is not None and is_partial(request):
        template_name = f"{template_name}#{partial}"
    content = loader.render_to_string(template_name, dict(context or {}), request)
    response = HttpResponse(content, status=status)
    patch_vary_headers(response, ["HX-Request", "HX-Boosted"])
    return response


def polled(
    request: HttpRequest, template_name: str, context: Mapping[str, Any], *, partial: str
) -> HttpResponseBase:
    """A page, or its part that is asked for again and again: 304 while that stays as it is."""
    answer = render(request, template_name, context, partial=partial)
    if not is_partial(request):
        return answer
    answer["Cache-Control"] = "private, no-cache"
    set_response_etag(answer)
    return get_conditional_response(request, etag=answer.get("ETag"), response=answer) or answer
