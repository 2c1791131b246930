"""Saved views: what the address of a list asks for, kept under a name by one person."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from budgets import selectors
from budgets.errors import Rejected
from budgets.models import SavedView, User
from budgets.selectors import saved_views as reads
from budgets.services import saved_views as keeping
from portal.web.forms import PortalForm
from portal.web.jobs import JobFilter
from portal.web.pages import form_page, page, typed
from portal.web.usage import RANGE_KEYS, usage_form

Page = SavedView.Page
FORMS: Final[dict[str, Callable[[User, QueryDict], PortalForm]]] = {
    Page.JOBS: lambda user, query: JobFilter(query, names=selectors.workspace_names(user)),
    Page.USAGE: usage_form,
}
"""Page → its own form, bound to a query: it decides what of that the reader may ask for."""
KEYS: Final[dict[str, tuple[str, ...]]] = {
    Page.JOBS: ("workspace", "phase", "text", "sort"),
    Page.USAGE: (*RANGE_KEYS, "workspace", "flavor", "step", "split", "value", "sort"),
}
"""Page → what of its address is kept; the place in the list and the format are not."""


class SaveForm(PortalForm):
    """A name for what one sees."""

    page = forms.ChoiceField(choices=Page.choices, widget=forms.HiddenInput)
    query = forms.CharField(required=False, max_length=2000, widget=forms.HiddenInput)
    name = forms.CharField(label="Name of the view", max_length=60)


@page("GET", "POST")
def saved_views(request: HttpRequest, user: User) -> HttpResponseBase:
    """One's own views; the pages that they are of send what is to be saved."""

    def save(wanted: dict[str, Any]) -> SavedView:
        query = _kept(user, wanted["page"], wanted["query"])
        return keeping.save_view(user, page=wanted["page"], name=wanted["name"], query=query)

    return form_page(
        request,
        "session/saved_views.html",
        SaveForm(typed(request)),
        save,
        said=lambda view: f"The view “{view.name}” is saved. Its link is on this page.",
        to=lambda view: f"{reverse(view.page)}?{view.query}",
        context=lambda: {"views": reads.saved_views(user), "most": keeping.MOST_VIEWS},
    )


@page("POST")
def saved_view_delete(request: HttpRequest, user: User, key: int) -> HttpResponseBase:
    """Delete one of one's own views."""
    view = reads.saved_views(user).get(pk=key)
    keeping.delete_view(user, view=view)
    messages.success(request, f"The view “{view.name}” is deleted.")
    return redirect("saved_views")


def _kept(user: User, page: str, text: str) -> str:
    """What of an address is kept: known parameters alone, which the page's own form takes.

    Raises:
        Rejected: The form finds a fault with them.
    """
    query = QueryDict(text, mutable=True)
    # "The last 30 days" move on with the clock; a range of dates stays as it is.
    for name in ("start", "until") if query.get("days", "").isdecimal() else ("days",):
        query.pop(name, None)
    form = FORMS[page](user, query)
    if not form.is_valid():
        words = " ".join(str(error) for errors in form.errors.values() for error in errors)
        raise Rejected.because("", "invalid", f"The page cannot show this filter: {words}")
    found = QueryDict(mutable=True)
    for name in KEYS[page]:
        values = [value for value in query.getlist(name) if value]
        # Of several values of a field that takes one, the form has read the last alone.
        is_many = isinstance(form.fields.get(name), forms.MultipleChoiceField)
        if values:
            found.setlist(name, values if is_many else values[-1:])
    return found.urlencode()
