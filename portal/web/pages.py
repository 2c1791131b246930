"""What every page does: allowed methods, the reader's time zone, domain errors as answers."""

from __future__ import annotations

import contextlib
import functools
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, TypeVar

import structlog
from django.contrib import messages
from django.core.exceptions import (
    BadRequest,
    ObjectDoesNotExist,
    PermissionDenied,
    ValidationError,
)
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters

from budgets.errors import NotAllowed, Rejected
from budgets.models import User
from budgets.selectors import remembered_roles, roles_of
from budgets.texts import is_storable
from portal import fairness
from portal.web import errors
from portal.web.forms import DayField, PortalForm
from portal.web.htmx import render

View = Callable[..., HttpResponseBase]
Row = TypeVar("Row")
log = structlog.stdlib.get_logger(__name__)


def page(*methods: str, only_admins: str = "") -> Callable[[View], View]:
    """Make a function a page; it is given the request and who reads it.

    What the reader may not see, a selector does not find: a 404 that tells nothing. An address
    with text that no database keeps is none. What the reader may see but not do is a 403 with the
    service's sentence. A rejection without a form to show it in, such as a cursor that somebody
    typed, is a 400 with its sentences. Nothing of what was typed stands in a report of an error.

    Args:
        methods: Allowed HTTP methods; GET alone when none is named. HEAD goes with GET.
        only_admins: What is said to everybody else where a page is for platform admins.
    """
    allowed = list(methods or ("GET",))
    if "GET" in allowed:
        allowed.append("HEAD")

    def decorate(view: View) -> View:
        @sensitive_post_parameters()
        @functools.wraps(view)
        def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not is_storable(kwargs):
                raise Http404
            if request.method not in allowed:
                return errors.method_not_allowed(request, allowed)
            is_read = request.method in ("GET", "HEAD")
            remembering = remembered_roles() if is_read else contextlib.nullcontext()
            user: Any = request.user
            too_many = fairness.counted(request, user)
            if too_many is not None:
                return errors.too_many(request, str(too_many), wait_s=too_many.wait_s)
            with timezone.override(zone_of(user)), remembering:
                try:
                    if only_admins:
                        require_admin(user, only_admins)
                    return view(request, user, *args, **kwargs)
                except ObjectDoesNotExist as error:
                    log.debug("not_found", path=request.path, model=type(error).__qualname__)
                    raise Http404 from error
                except NotAllowed as error:
                    raise PermissionDenied(str(error)) from error
                except Rejected as error:
                    words = " ".join(fault.message for fault in error.faults)
                    raise BadRequest(words) from error

        return wrapped

    return decorate


def require_admin(user: User, words: str) -> None:
    """Ask for a platform admin.

    Args:
        user: Who asks for the page.
        words: What only an admin does, for everybody else.

    Raises:
        PermissionDenied: For every other role.
    """
    if not roles_of(user).is_admin:
        raise PermissionDenied(words)


def may_bill(user: User) -> bool:
    """Whether this reader writes prices and statements; an admin does not by default."""
    return roles_of(user).is_finance


def require_finance(user: User) -> None:
    """Ask for one of finance.

    Raises:
        PermissionDenied: For every other role.
    """
    if not may_bill(user):
        raise PermissionDenied(
            "Only the finance role can do this; platform admins do not have it by default."
        )


def typed(request: HttpRequest) -> Any:
    """What a form is bound to: nothing before it is sent."""
    return request.POST if request.method == "POST" else None


Said = str | Callable[[Any], str]
"""A sentence or an address, made of what a service gave where it is a function."""


@dataclass(frozen=True, slots=True)
class Deed:
    """What a button does.

    Attributes:
        do: Takes what was typed, by name; raises Rejected.
        said: The sentence when it is done.
        form: What is typed for it; None for a button alone, whose faults the next page shows.
    """

    do: Callable[..., Any]
    said: Said
    form: PortalForm | None = None


def pressed(
    request: HttpRequest, deeds: Mapping[str, Deed], *, to: Said
) -> HttpResponseBase | None:
    """Do what the button says that was pressed; None when none was, or its form has a fault.

    One of finance presses it: such buttons move money.

    Args:
        request: Its POST names the deed.
        deeds: By the value of the button.
        to: Where to go then.

    Raises:
        PermissionDenied: For every role but finance.
        Http404: There is no such button.
    """
    if request.method != "POST":
        return None
    user: Any = request.user
    require_finance(user)
    deed = deeds.get(request.POST.get("deed", ""))
    if deed is None:
        raise Http404
    if deed.form is not None:
        form, do = deed.form, deed.do
        return carried_out(request, form, lambda typed: do(**typed), said=deed.said, to=to)
    done = None
    with rejected_aside(request):
        done = deed.do()
        messages.success(request, _made_of(done, deed.said))
    return redirect(_made_of(done, to))


def carried_out(
    request: HttpRequest,
    form: PortalForm,
    do: Callable[[dict[str, Any]], Any],
    *,
    said: Said,
    to: Said,
) -> HttpResponseBase | None:
    """The redirect once what a form says is done; None while it has a fault."""
    if not form.is_valid():
        return None
    done = form.carry_out(lambda: do(form.cleaned_data))
    if form.status != 200:
        return None
    messages.success(request, _made_of(done, said))
    return redirect(_made_of(done, to))


def _made_of(done: Any, said: Said) -> str:
    return said if isinstance(said, str) else said(done)


def form_page(
    request: HttpRequest,
    template: str,
    form: PortalForm,
    deed: Callable[[dict[str, Any]], Any],
    *,
    said: Said,
    to: Said,
    context: Callable[[], Mapping[str, Any]] = dict,
) -> HttpResponseBase:
    """A page with one form: the redirect once it is carried out; until then shown, with its faults.

    Args:
        request: Of the page.
        template: Its file; it has ``form`` and ``stale``.
        form: Bound when it was sent.
        deed: Takes what was typed; raises Rejected.
        said: The sentence when it is done, made of what the deed gave where it is a function.
        to: Where to go then, likewise.
        context: What else the page shows; asked for when it is shown.
    """
    answer = request.method == "POST" and carried_out(request, form, deed, said=said, to=to)
    if answer:
        return answer
    shown = {"form": form, "stale": form.stale, **context()}
    return render(request, template, shown, status=form.status)


@contextlib.contextmanager
def rejected_aside(request: HttpRequest) -> Iterator[None]:
    """Let a message on the next page say what was rejected, where no form can show it."""
    try:
        yield
    except Rejected as rejected:
        for fault in rejected.faults:
            messages.error(request, fault.message, extra_tags="trouble")


def in_order(rows: Iterable[Row], sort: str, keys: Mapping[str, Callable[[Row], Any]]) -> list[Row]:
    """Rows by one of their columns; equals keep their order.

    Args:
        rows: All that are shown, or shown a part of.
        sort: As a heading asks: ``key``, or ``-key`` from the end; what is none leaves them.
        keys: Column → what it sorts by.
    """
    key = keys.get(sort.removeprefix("-"))
    return sorted(rows, key=key, reverse=sort.startswith("-")) if key else list(rows)


DAY: Final = DayField(required=False, input_formats=["%Y-%m-%d"])


def asked_day(request: HttpRequest) -> date | None:
    """The day that the address asks for; None where it asks for none.

    Raises:
        Http404: it is no day, or one of which there cannot be a book.
    """
    try:
        day: date | None = DAY.clean(request.GET.get("day", ""))
    except ValidationError as error:
        raise Http404 from error
    return day


def zone_of(user: Any) -> zoneinfo.ZoneInfo:
    """The zone in which a reader sees times; UTC for a stranger or an unknown zone."""
    name = getattr(user, "time_zone", "") or "UTC"
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return zoneinfo.ZoneInfo("UTC")
