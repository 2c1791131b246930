"""What every page does: allowed methods, the reader's time zone, domain errors as answers."""

from __future__ import annotations

import contextlib
import functools
import logging
import zoneinfo
from collections.abc import Callable
from datetime import date
from typing import Any

from django.core.exceptions import BadRequest, ObjectDoesNotExist, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.utils import timezone

from budgets.errors import NotAllowed, Rejected
from budgets.selectors import remembered_roles
from portal.web.errors import method_not_allowed
from portal.web.forms import YEARS

View = Callable[..., HttpResponseBase]
log = logging.getLogger(__name__)


def page(*methods: str) -> Callable[[View], View]:
    """Make a function a page.

    What the reader may not see, a selector does not find: a 404 that tells nothing. What the
    reader may see but not do is a 403 with the service's sentence. A rejection without a form to
    show it in, such as a cursor that somebody typed, is a 400 with its sentences.

    Args:
        methods: Allowed HTTP methods; GET alone when none is named. HEAD goes with GET.
    """
    allowed = list(methods or ("GET",))
    if "GET" in allowed:
        allowed.append("HEAD")

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if request.method not in allowed:
                return method_not_allowed(request, allowed)
            is_read = request.method in ("GET", "HEAD")
            remembering = remembered_roles() if is_read else contextlib.nullcontext()
            with timezone.override(zone_of(request.user)), remembering:
                try:
                    return view(request, *args, **kwargs)
                except ObjectDoesNotExist as error:
                    log.debug("not_found path=%s model=%s", request.path, type(error).__qualname__)
                    raise Http404 from error
                except NotAllowed as error:
                    raise PermissionDenied(str(error)) from error
                except Rejected as error:
                    words = " ".join(fault.message for fault in error.faults)
                    raise BadRequest(words) from error

        return wrapped

    return decorate


def asked_day(request: HttpRequest, name: str) -> date | None:
    """A day of the address; None where it asks for none.

    Raises:
        Http404: it is no day, or one of which there cannot be a book.
    """
    text = request.GET.get(name, "")
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError as error:
        raise Http404 from error
    if day.year not in YEARS:
        raise Http404
    return day


def zone_of(user: Any) -> zoneinfo.ZoneInfo:
    """The zone in which a reader sees times; UTC for a stranger or an unknown zone."""
    name = getattr(user, "time_zone", "") or "UTC"
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return zoneinfo.ZoneInfo("UTC")
