"""Login, logout, password, second factor, profile and API tokens of the reader."""

from __future__ import annotations

import zoneinfo
from datetime import timedelta
from typing import Any

import segno
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth import login, update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import LoginView, LogoutView
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.cache import never_cache
from django_htmx.http import HttpResponseClientRedirect

from budgets import services as promises
from budgets.models import ApiToken, SecondFactor, User
from portal.signin import (
    OWES,
    Attempt,
    half_way,
    of_ticket,
    owes_second_factor,
    second_step,
    ticket_of,
)
from portal.web import company, errors
from portal.web.forms import PasswordField, PortalForm
from portal.web.htmx import is_htmx, is_partial, render
from portal.web.pages import form_page, page, typed

_FACTOR_PAGE = "session/second_factor.html"


class CodeForm(PortalForm):
    """A code of the second factor, or a recovery code."""

    code = forms.CharField(
        label="Code",
        max_length=40,
        help_text="The six digits that your app shows now, or one of your recovery codes.",
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "spellcheck": "false"}),
    )


@method_decorator(login_not_required, name="dispatch")
class Login(LoginView):
    """The one page for strangers; wrong passwords and codes are limited as at the API.

    Whoever has a second factor is asked for a code once the password was right; until it comes,
    the form keeps a ticket that says so.
    """

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
        half = None
        if "ticket" in request.POST:
            half = of_ticket(request.POST["ticket"])
            if half is None:
                late = "Too much time has passed since your password. Begin again."
                return self._shown(self.get_form_class()(request), status=422, trouble=late)
        name = half.get_username() if half else request.POST.get("username", "")
        wait_s = Attempt.of(request, name).wait_s()
        if wait_s:
            # Not what was typed: to look at its errors would be an attempt.
            answer = self._shown(self.get_form_class()(request), status=429, wait_s=wait_s)
            answer["Retry-After"] = str(wait_s)
            return answer
        return super().post(request, *args, **kwargs) if half is None else self._second_step(half)

    def _second_step(self, user: User) -> HttpResponse:
        form = CodeForm(self.request.POST)
        if not form.is_valid() or not second_step(
            self.request, user, code=form.cleaned_data["code"]
        ):
            words = (
                "This code is wrong or was used before. Type the next one. If codes of your app "
                "are refused again and again, use a recovery code."
            )
            return self._asked_for_code(user, status=422, trouble=words)
        return self._entered(user)

    def _asked_for_code(self, user: User, *, status: int = 200, **more: Any) -> HttpResponse:
        return self._shown(CodeForm(), status=status, ticket=ticket_of(user), **more)

    def _shown(self, form: Any, *, status: int, **more: Any) -> HttpResponse:
        """The form, on its page or on top of another one."""
        if is_partial(self.request):
            return ask_again(self.request, form=form, status=status, **more)
        context = self.get_context_data(form=form, **more)
        answer: HttpResponse = self.render_to_response(context, status=status)
        return answer

    def form_valid(self, form: Any) -> HttpResponse:
        return self._entered(form.get_user())

    def _entered(self, user: User) -> HttpResponse:
        """In place, the page stays with what was typed, unless somebody else comes."""
        login(self.request, user)
        if not is_partial(self.request):
            return redirect(self.get_success_url())
        return self._goes_on(self.request.POST.get("was"))

    def _goes_on(self, was: str | None) -> HttpResponse:
        if was != self.request.user.get_username():
            return HttpResponseClientRedirect(reverse("home"))
        return render(self.request, "session/again.html", {"is_done": True})

    def form_invalid(self, form: Any) -> HttpResponse:
        if (half := half_way(self.request)) is not None:
            return self._asked_for_code(half)
        if is_partial(self.request):
            return ask_again(self.request, form=form, status=422)
        return super().form_invalid(form)


class AdminForm(AdminAuthenticationForm):
    """Django's own admin has no second step: who needs one signs in on the portal's page."""

    def get_invalid_login_error(self) -> forms.ValidationError:
        if half_way(self.request) is None:
            return super().get_invalid_login_error()
        words = "You have a second factor. Sign in on the portal's own page, and come back then."
        return forms.ValidationError(words, code="second_factor")


def ask_again(
    request: HttpRequest, *, form: Any = None, status: int = 401, **more: Any
) -> HttpResponse:
    """The sign-in that is shown on top of a page whose session has ended; no address changes."""
    context = {"form": form or AuthenticationForm(request), **company.offered(), **more}
    answer = render(request, "session/again.html", context, status=status)
    answer["HX-Push-Url"] = "false"
    return answer


_OPEN = frozenset({"second_factor", "logout", "login", "healthz", "readyz", "metrics"})
"""Routes for whoever has a second factor to set up first."""


class SignedIn(LoginRequiredMiddleware):
    """Sends strangers to the sign-in; a page that stands open asks for it in place.

    Whoever owes a second factor is sent to set it up, wherever they want to go.
    """

    def process_view(
        self, request: HttpRequest, view_func: Any, view_args: Any, view_kwargs: Any
    ) -> HttpResponseBase | None:
        user: Any = request.user
        route = request.resolver_match.view_name if request.resolver_match else ""
        is_asked = user.is_authenticated and route not in _OPEN and not company.is_of(request)
        if is_asked and owes_second_factor(user):
            return self._sent_to_set_up(request)
        return super().process_view(request, view_func, view_args, view_kwargs)

    def _sent_to_set_up(self, request: HttpRequest) -> HttpResponseBase:
        if request.path.startswith("/api/"):
            return JsonResponse({"code": "second_factor_required", "message": OWES}, status=403)
        to = reverse("second_factor")
        return HttpResponseClientRedirect(to) if is_partial(request) else redirect(to)

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


class CurrentPasswordForm(PortalForm):
    """One's current password; a wrong one counts as at the sign-in."""

    old_password = PasswordField(label="Current password", knows="current-password")

    def __init__(self, *args: Any, user: User, attempt: Attempt, **kwargs: Any) -> None:
        self.user, self.attempt = user, attempt
        super().__init__(*args, **kwargs)

    def clean_old_password(self) -> str:
        typed: str = self.cleaned_data["old_password"]
        if not self.user.check_password(typed):
            self.attempt.refuse()
            raise forms.ValidationError("This is not your current password.")
        return typed


class PasswordForm(CurrentPasswordForm):
    """Old and new password."""

    password = PasswordField(
        label="New password", help_text="At least 12 characters, and not a common password."
    )


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


class FirstCodeForm(CodeForm):
    """The code that turns it on; there is no recovery code yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.part("code").help_text = "The six digits that your app shows now."


class ProofForm(CurrentPasswordForm, CodeForm):
    """Password and code; a code is looked at, and used up, once the password is right."""

    field_order = ("old_password", "code")

    def clean_code(self) -> str:
        given: str = self.cleaned_data["code"]
        if "old_password" in self.cleaned_data and not promises.use_code(self.user, code=given):
            self.attempt.refuse()
            raise forms.ValidationError("This code is wrong or was used before.")
        return given


@never_cache
@page("GET", "POST")
def second_factor(request: HttpRequest, user: User) -> HttpResponseBase:
    """One's second factor; its secret and the recovery codes are each on one answer alone."""
    attempt = Attempt.of(request, user.get_username())
    if request.method == "POST" and (wait_s := attempt.wait_s()):
        words = f"Too many wrong passwords or codes were tried. Try again in {wait_s} seconds."
        return errors.too_many(request, words, wait_s=wait_s)
    found = promises.second_factor_of(user)
    form = (ProofForm if found else CurrentPasswordForm)(typed(request), user=user, attempt=attempt)
    if request.method != "POST":
        return _shown(request, user, found, form)
    deed = request.POST.get("deed")
    if deed == "confirm" and not found:
        return _confirmed(request, user, FirstCodeForm(request.POST))
    if deed not in (("renew", "drop") if found else ("begin",)):
        raise Http404
    if not form.is_valid():
        return _shown(request, user, found, form)
    if deed == "begin":
        return _begun(request, user, promises.begin_second_factor(user))
    if deed == "renew":
        return render(request, _FACTOR_PAGE, {"codes": promises.renew_recovery_codes(user)})
    promises.drop_second_factor(user)
    messages.success(request, "It is removed. Your password alone opens your account.")
    return redirect("second_factor")


def _begun(request: HttpRequest, user: User, begun: promises.Begun) -> HttpResponseBase:
    """The secret, this one time."""
    groups = [begun.secret[at : at + 4] for at in range(0, len(begun.secret), 4)]
    shown = {"picture": _picture(begun.address), "secret": " ".join(groups), "is_begun": True}
    return _shown(request, user, None, FirstCodeForm(), **shown)


def _confirmed(request: HttpRequest, user: User, form: CodeForm) -> HttpResponseBase:
    codes = None
    if form.is_valid():
        code = form.cleaned_data["code"]
        codes = form.carry_out(lambda: promises.confirm_second_factor(user, code=code))
    if codes is None:
        return _shown(request, user, None, form, is_begun=True)
    update_session_auth_hash(request, user)
    return render(request, _FACTOR_PAGE, {"codes": codes, "is_new": True})


def _shown(
    request: HttpRequest, user: User, found: SecondFactor | None, form: PortalForm, **more: Any
) -> HttpResponseBase:
    is_owed = owes_second_factor(user) and not company.is_of(request)
    context = {"form": form, "found": found, "is_owed": is_owed, **more}
    return render(request, _FACTOR_PAGE, context, status=form.status)


def _picture(address: str) -> SafeString:
    """A QR code; its colours are attributes, which the policy for styles does not ask about."""
    code = segno.make(address, error="m", micro=False)
    drawn = code.svg_inline(scale=5, border=4, light="#fff", svgclass=None, lineclass=None)
    drawn = drawn.replace("<svg ", '<svg role="img" aria-label="QR code for your app" ', 1)
    return mark_safe(drawn)  # noqa: S308  made here, of numbers alone


def _zones() -> list[tuple[str, str]]:
    names = sorted(name for name in zoneinfo.available_timezones() if "/" in name)
    return [(name, name) for name in ("UTC", *names)]


class ProfileForm(PortalForm):
    """How the reader sees times."""

    time_zone = forms.ChoiceField(label="Time zone", choices=_zones)


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
            "has_second_factor": promises.has_second_factor(user),
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
