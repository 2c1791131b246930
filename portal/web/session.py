"""Login, logout, password, profile and API tokens of the reader."""

from __future__ import annotations

import zoneinfo
from datetime import timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django_htmx.http import HttpResponseClientRedirect

from budgets import services as promises
from budgets.models import ApiToken, User
from portal.signin import Attempt
from portal.web import company, errors
from portal.web.forms import PortalForm
from portal.web.htmx import is_htmx, is_partial, render
from portal.web.pages import form_page, page, typed


@method_decorator(login_not_required, name="dispatch")
class Login(LoginView):
    """The one page for strangers; wrong passwords are limited as at the API."""

    template_name = "session/login.html"
    redirect_authenticated_user = True

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """A page asks, before a form leaves it, whether its session still stands."""
        if request.method != "GET" or not is_partial(request):
            return super().dispatch(request, *args, **kwargs)
        if not request.user.is_authenticated:
            return ask_again(request)
        # Signed in again elsewhere, with the company's account.
        return (
            self._goes_on(request.GET["was"]) if "was" in request.GET else HttpResponse(status=204)
        )

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**more)
        return context | company.offered(self.get_redirect_url())

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        wait_s = Attempt.of(request, request.POST.get("username", "")).wait_s()
        if not wait_s:
            return super().post(request, *args, **kwargs)
        # Not what was typed: to look at its errors would be an attempt.
        form = self.get_form_class()(request)
        answer: HttpResponse
        if is_partial(request):
            answer = ask_again(request, form=form, wait_s=wait_s, status=429)
        else:
            context = self.get_context_data(form=form, wait_s=wait_s)
            answer = self.render_to_response(context, status=429)
        answer["Retry-After"] = str(wait_s)
        return answer

    def form_valid(self, form: Any) -> HttpResponse:
        """In place, the page stays with what was typed, unless somebody else comes."""
        answer = super().form_valid(form)
        if not is_partial(self.request):
            return answer
        return self._goes_on(self.request.POST.get("was"))

    def _goes_on(self, was: str | None) -> HttpResponse:
        if was != self.request.user.get_username():
            return HttpResponseClientRedirect(reverse("home"))
        return render(self.request, "session/again.html", {"is_done": True})

    def form_invalid(self, form: Any) -> HttpResponse:
        if is_partial(self.request):
            return ask_again(self.request, form=form, status=422)
        return super().form_invalid(form)


def ask_again(
    request: HttpRequest, *, form: Any = None, wait_s: int = 0, status: int = 401
) -> HttpResponse:
    """The sign-in that is shown on top of a page whose session has ended; no address changes."""
    context = {"form": form or AuthenticationForm(request), "wait_s": wait_s, **company.offered()}
    answer = render(request, "session/again.html", context, status=status)
    answer["HX-Push-Url"] = "false"
    return answer


class SignedIn(LoginRequiredMiddleware):
    """Sends strangers to the sign-in; a page that stands open asks for it in place."""

    def handle_no_permission(  # type: ignore[override]  # as annotated, it could only redirect
        self, request: HttpRequest, view_func: Any
    ) -> HttpResponseBase:
        stays = is_partial(request) or (is_htmx(request) and request.method == "POST")
        return ask_again(request) if stays else super().handle_no_permission(request, view_func)


class Logout(LogoutView):
    """POST only, as Django asks; who came by a provider is signed out there as well."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        kept = request.session.get(company.KEPT)
        answer = super().post(request, *args, **kwargs)
        return (company.ended_there(request, kept) if kept else None) or answer


class PasswordForm(PortalForm):
    """Old and new password."""

    old_password = forms.CharField(
        label="Current password",
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
        strip=False,
    )
    password = forms.CharField(
        label="New password",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        strip=False,
        help_text="At least 12 characters, and not a common password.",
    )

    def __init__(self, *args: Any, user: User, attempt: Attempt, **kwargs: Any) -> None:
        self.user, self.attempt = user, attempt
        super().__init__(*args, **kwargs)

    def clean_old_password(self) -> str:
        typed: str = self.cleaned_data["old_password"]
        if not self.user.check_password(typed):
            self.attempt.refuse()
            raise forms.ValidationError("This is not your current password.")
        return typed


@never_cache
@page("GET", "POST")
def password_change(request: HttpRequest, user: User) -> HttpResponseBase:
    """Change one's own password; other sessions and all tokens end, this session stays.

    Wrong current ones are counted as at the sign-in: who sits at an open session may not guess.
    """
    attempt = Attempt.of(request, user.get_username())
    if request.method == "POST" and (wait_s := attempt.wait_s()):
        words = f"Too many wrong passwords were tried. Try again in {wait_s} seconds."
        return errors.too_many(request, words, wait_s=wait_s)

    def change(given: dict[str, Any]) -> None:
        promises.set_password(user, user=user, password=given["password"])
        update_session_auth_hash(request, user)

    return form_page(
        request,
        "session/password.html",
        PasswordForm(typed(request), user=user, attempt=attempt),
        change,
        said="The password is changed. Your other sessions and your API tokens have ended.",
        to=reverse("home"),
    )


class ProfileForm(PortalForm):
    """How the reader sees times."""

    time_zone = forms.ChoiceField(label="Time zone", choices=[])

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = sorted(name for name in zoneinfo.available_timezones() if "/" in name)
        self.part("time_zone").choices = [(n, n) for n in ("UTC", *names)]


@page("GET", "POST")
def profile(request: HttpRequest, user: User) -> HttpResponseBase:
    """Who one is here, one's roles, one's time zone."""

    def set_zone(given: dict[str, Any]) -> None:
        # Only how this reader sees times; no promise depends on it, so no service and no audit.
        user.time_zone = given["time_zone"]
        user.save(update_fields=["time_zone"])

    memberships = user.memberships.select_related("account", "workspace").order_by("pk")
    return form_page(
        request,
        "session/profile.html",
        ProfileForm(typed(request), initial={"time_zone": user.time_zone}),
        set_zone,
        said=lambda _: f"Times are shown in {user.time_zone}.",
        to=reverse("profile"),
        context=lambda: {
            "memberships": memberships,
            "providers": settings.PORTAL_PROVIDERS.values(),
            "connected": set(user.identities.values_list("provider", flat=True)),
        },
    )


class TokenForm(PortalForm):
    """A new API token."""

    name = forms.CharField(label="What it is for", max_length=80)
    scope = forms.ChoiceField(label="Access", choices=ApiToken.Scope.choices)
    days = forms.TypedChoiceField(
        label="Ends after",
        coerce=int,
        choices=[(7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "a year")],
        initial=30,
    )
    fault_fields = {"expires_at": "days"}


@never_cache
@page("GET", "POST")
def tokens(request: HttpRequest, user: User) -> HttpResponseBase:
    """One's API tokens; the plain text of a new one is on this one answer and nowhere else."""
    form = TokenForm(request.POST or None)
    made: tuple[ApiToken, str] | None = None
    if request.method == "POST" and form.is_valid():
        wanted = form.cleaned_data
        made = form.carry_out(
            lambda: promises.create_api_token(
                user,
                user=user,
                name=wanted["name"],
                scope=wanted["scope"],
                expires_at=timezone.now().replace(microsecond=0) + timedelta(days=wanted["days"]),
            )
        )
        if made:
            form = TokenForm()
    context = {
        "form": form,
        "plaintext": made[1] if made else "",
        "tokens": user.api_tokens.all(),
        "now": timezone.now(),
    }
    return render(request, "session/tokens.html", context, status=form.status)


@page("POST")
def token_revoke(request: HttpRequest, user: User, token_id: int) -> HttpResponseBase:
    """End one of one's own tokens."""
    token = get_object_or_404(ApiToken, pk=token_id, user=user)
    promises.revoke_api_token(user, token=token)
    messages.success(request, f"The token {token.name} has ended and can no longer be used.")
    return redirect("tokens")
