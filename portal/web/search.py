"""One box for all that has a name: jobs, workspaces, people, clusters, flavors, statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from budgets import selectors
from budgets.models import User
from clusters import selectors as seen
from clusters.selectors.search import LONGEST, SHORTEST
from portal.web.forms import PortalForm
from portal.web.htmx import render
from portal.web.pages import page

TITLES = {
    "workspace": "Workspaces",
    "job": "Jobs",
    "person": "People",
    "cluster": "Clusters",
    "flavor": "GPU flavors",
    "statement": "Statements",
}


class SearchForm(PortalForm):
    """The words."""

    q = forms.CharField(required=False, max_length=LONGEST)


@dataclass(frozen=True, slots=True)
class Hit:
    """One line of the answer."""

    title: str
    detail: str
    url: str


@page()
def search(request: HttpRequest, user: User) -> HttpResponseBase:
    """What fits the words, kind by kind; the beginning of each."""
    form = SearchForm(request.GET)
    text = form.cleaned_data["q"] if form.is_valid() else ""
    is_admin = selectors.roles_of(user).is_admin
    groups = [
        {
            "title": TITLES[found.kind],
            "hits": [_hit(found.kind, row, is_admin=is_admin) for row in found.rows],
            "more": _more(found, text),
        }
        for found in seen.search(user, text)
    ]
    context = {
        "searched": text,
        "groups": groups,
        "is_short": len(text) < SHORTEST,
        "shortest": SHORTEST,
        "faults": form.errors.get("q", ()),
    }
    return render(request, "search/search.html", context, status=form.status)


def _more(found: seen.Found, text: str) -> str:
    """Where the rest of a kind is; empty where no list can be asked for it."""
    if not found.is_cut or found.kind != "job":
        return ""
    return f"{reverse('jobs')}?{urlencode({'text': text})}"


def _hit(kind: str, row: Any, *, is_admin: bool) -> Hit:
    """A row in words, and its page."""
    if kind == "workspace":
        archived = ", archived" if row.archived_at else ""
        detail = f"{row.account.name}, {row.namespace}{archived}"
        return Hit(row.name, detail, reverse("workspace", args=[row.namespace]))
    if kind == "job":
        detail = f"{row.namespace}, {row.get_phase_display().lower()}"
        return Hit(
            row.job_name or row.name, detail, reverse("job", args=[row.cluster.slug, row.uid])
        )
    if kind == "person":
        named = row.get_full_name() or row.email
        return Hit(row.username, named, reverse("setup_person", args=[row.pk]))
    if kind == "cluster":
        return Hit(row.name, f"{row.role}, {row.slug}", reverse("cluster", args=[row.slug]))
    if kind == "flavor":
        use = f"{reverse('usage')}?{urlencode({'flavor': row.slug})}"
        return Hit(
            row.name, row.slug, reverse("setup_flavor", args=[row.slug]) if is_admin else use
        )
    whose = row.account.name if row.account else "the platform"
    number = row.number or row.get_state_display().lower()
    title = f"{row.get_kind_display()} of {whose}, {row.period.name}"
    return Hit(title, number, reverse("statement", args=[row.pk]))
