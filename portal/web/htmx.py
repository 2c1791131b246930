"""Page or partial? And 304 for a poll that found nothing new.

A page file holds its partials as ``{% partial name %} … {% endpartial %}``: rendered in place
with the page, alone when HTMX asks. A boosted link is ordinary navigation and gets the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template import loader
from django.template.context import make_context
from django.utils.cache import get_conditional_response, patch_vary_headers, set_response_etag

from portal.web.tags import PartialNode


def is_partial(request: HttpRequest) -> bool:
    """HTMX asks for a part of a page: by HTMX, not boosted, not restoring history."""
    htmx = request.htmx  # type: ignore[attr-defined]  # set by HtmxMiddleware
    return bool(htmx) and not htmx.boosted and not htmx.history_restore_request


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
    """
    if partial is not None and is_partial(request):
        content = render_partial(request, template_name, partial, context)
    else:
        content = loader.render_to_string(template_name, dict(context or {}), request)
    response = HttpResponse(content, status=status)
    patch_vary_headers(response, ["HX-Request", "HX-Boosted"])
    return response


def render_partial(
    request: HttpRequest, template_name: str, name: str, context: Mapping[str, Any] | None = None
) -> str:
    """Render one named partial of a page's file, without the page around it.

    Raises:
        LookupError: The file has no partial of that name.
    """
    template = loader.get_template(template_name).template  # type: ignore[attr-defined]
    for node in template.nodelist.get_nodes_by_type(PartialNode):
        if node.name == name:
            bound = make_context(dict(context or {}), request, autoescape=True)
            with bound.render_context.push_state(template), bound.bind_template(template):
                return str(node.nodelist.render(bound))
    raise LookupError(f"{template_name} has no partial {name!r}")


def unchanged(request: HttpRequest, response: HttpResponse) -> HttpResponseBase:
    """Answer 304 when the browser already holds exactly this; for polls."""
    response["Cache-Control"] = "private, no-cache"
    set_response_etag(response)
    answer = get_conditional_response(request, etag=response.get("ETag"), response=response)
    return answer if answer is not None else response
