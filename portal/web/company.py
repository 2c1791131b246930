"""Signing in with the company's accounts: to the provider, back from it, and out again."""

from __future__ import annotations

from typing import Any

import structlog
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from budgets import services as promises
from budgets.errors import Rejected
from budgets.models import User
from budgets.services import audit
from portal import oidc
from portal.providers import Provider
from portal.signin import SIGN_IN, Attempt
from portal.web.htmx import render

log = structlog.stdlib.get_logger(__name__)

KEPT = "company"
"""In a session: by which provider it was opened, and its token, by which that ends it."""
_NEXT = "company_next"
_CONNECTS = "company_connects"
_BEGUN_FOR_S = 600
# Longer ones make addresses that proxies refuse; the provider then asks who signs out.
_LONGEST_HINT = 4_000


@login_not_required
@never_cache
@require_http_methods(["GET", "POST"])
def begin(request: HttpRequest, provider: str) -> HttpResponseBase:
    """To the provider: a stranger by a link; who is signed in connects an account by a button."""
    asked = _provider(provider)
    if request.user.is_authenticated and request.method == "GET":
        return redirect("home")
    if not request.user.is_authenticated:
        if request.method == "POST":
            return redirect("login")
        request.session.set_expiry(_BEGUN_FOR_S)
        request.session[_NEXT] = request.GET.get("next", "")[:2_000]
    request.session[_CONNECTS] = request.user.pk
    try:
        return oidc.begin(request, asked, back=_address("company_back", asked.name))
    except (oidc.Unreachable, oidc.Refused) as error:
        return _not_in(request, asked, error)


@login_not_required
@never_cache
@require_GET
def back(request: HttpRequest, provider: str) -> HttpResponseBase:
    """From the provider: open the session, or connect the account."""
    asked = _provider(provider)
    connects = request.session.pop(_CONNECTS, None)
    if connects != request.user.pk:
        return _not_in(request, asked, oidc.Refused("the session is another one"))
    try:
        vouched, token = oidc.finish(request, asked)
        if isinstance(request.user, User):
            promises.connect_identity(request.user, vouched=vouched)
            messages.success(request, f"You sign in with {asked.label} from now on.")
            return redirect("profile")
        user = promises.enter(vouched)
    except (oidc.Unreachable, oidc.Refused, Rejected) as error:
        return _not_in(request, asked, error)
    following = request.session.pop(_NEXT, "")
    login(request, user)
    request.session[KEPT] = [asked.name, token if len(token) <= _LONGEST_HINT else ""]
    found = {"network": Attempt.of(request, user.username).network, "provider": asked.name}
    audit(user, action=SIGN_IN, subject=f"user:{user.username}", after=found)
    is_ours = url_has_allowed_host_and_scheme(
        following, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return redirect(following if is_ours else "home")


@receiver(user_logged_in)
def lasts(request: HttpRequest, **_: Any) -> None:
    """A session that is opened, by whatever door, lasts as one does, and not as one begun."""
    request.session.set_expiry(None)


def offered(following: str = "") -> dict[str, Any]:
    """What every sign-in shows: the providers, and whether a password opens more than one account.

    Args:
        following: Address where to go then.
    """
    return {
        "providers": settings.PORTAL_PROVIDERS.values(),
        "has_passwords": settings.PORTAL_LOCAL_PASSWORDS,
        "following": following,
    }


def is_of(request: HttpRequest) -> bool:
    """Whether the company's provider opened this session, and asked what it asks for."""
    return KEPT in request.session


def ended_there(request: HttpRequest, kept: Any) -> HttpResponse | None:
    """Where somebody is sent who has signed out here; None where the provider knows no such page.

    Args:
        request: Of the session that has ended.
        kept: What it had under :data:`KEPT`.
    """
    name, token = kept
    if name not in settings.PORTAL_PROVIDERS:
        return None
    asked = settings.PORTAL_PROVIDERS[name]
    try:
        address = oidc.end_address(asked, id_token=token, back=_address("login"))
    except (oidc.Unreachable, oidc.Refused):
        words = f"You are signed out here. {asked.label} did not answer and may still know you."
        messages.warning(request, words)
        return None
    return redirect(address) if address else None


def _provider(name: str) -> Provider:
    found: Provider | None = settings.PORTAL_PROVIDERS.get(name)
    if found is None:
        raise Http404
    return found


def _address(route: str, *arguments: str) -> str:
    """As the provider knows it: of the portal's public address, whatever a request claims."""
    return f"{settings.PORTAL_PUBLIC_URL.rstrip('/')}{reverse(route, args=arguments)}"


def _not_in(request: HttpRequest, asked: Provider, error: Exception) -> HttpResponse:
    """What to do now, in words for whoever it is; why, in the log."""
    if isinstance(error, oidc.Unreachable):
        status = 503
        words = [
            f"{asked.label} does not answer, so nobody can sign in with it now. People who are "
            "signed in stay signed in. Try again in a minute."
        ]
    elif isinstance(error, Rejected):
        status, words = 403, [fault.message for fault in error.faults]
    else:
        log.warning("sign_in_refused", provider=asked.name, why=str(error))
        status = 400
        words = [
            "This sign-in failed. It was begun elsewhere or too long ago, was used before, or "
            f"{asked.label} did not confirm it. Begin again."
        ]
    context = {"provider": asked, "words": words}
    return render(request, "session/company.html", context, status=status)
