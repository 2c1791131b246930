"""The second factor of the reader: set up, new recovery codes, removed."""

from __future__ import annotations

from typing import Any

import segno
from django import forms
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.cache import never_cache

from budgets import services as promises
from budgets.models import SecondFactor, User
from portal.signin import Attempt, owes_second_factor
from portal.web import company, errors
from portal.web.forms import PortalForm
from portal.web.htmx import render
from portal.web.pages import page, typed
from portal.web.session import CodeForm, CurrentPasswordForm

_PAGE = "session/second_factor.html"


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
        return render(request, _PAGE, {"codes": promises.renew_recovery_codes(user)})
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
    return render(request, _PAGE, {"codes": codes, "is_new": True})


def _shown(
    request: HttpRequest, user: User, found: SecondFactor | None, form: PortalForm, **more: Any
) -> HttpResponseBase:
    is_owed = owes_second_factor(user) and not company.is_of(request)
    context = {"form": form, "found": found, "is_owed": is_owed, **more}
    return render(request, _PAGE, context, status=form.status)


def _picture(address: str) -> SafeString:
    """A QR code; its colours are attributes, which the policy for styles does not ask about."""
    code = segno.make(address, error="m", micro=False)
    drawn = code.svg_inline(scale=5, border=4, light="#fff", svgclass=None, lineclass=None)
    drawn = drawn.replace("<svg ", '<svg role="img" aria-label="QR code for your app" ', 1)
    return mark_safe(drawn)  # noqa: S308  made here, of numbers alone
