"""The audit log as far as the reader may read it, with the filter in the address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponseBase

from budgets import selectors
from budgets.models import AuditEntry, User
from budgets.units import time_text
from portal.web.forms import WorkspaceFilter
from portal.web.htmx import render
from portal.web.pages import page
from portal.web.tables import csv_answer

PAGE = 50


class AuditFilter(WorkspaceFilter):
    """What of the log is asked for."""

    action = forms.ChoiceField(
        required=False,
        choices=[
            ("", "everything"),
            ("budget.", "budgets"),
            ("workspace.", "workspaces"),
            ("account.", "accounts"),
            ("flavor.", "flavors"),
            ("pool.", "pools"),
            ("capacity.", "capacity"),
            ("envelope.", "envelopes"),
            ("role.", "roles"),
            ("user.", "people"),
            ("token.", "API tokens"),
            ("cluster.", "clusters"),
        ],
    )
    cluster = forms.SlugField(required=False)
    before = forms.IntegerField(required=False, widget=forms.HiddenInput)


@page()
def audit(request: HttpRequest, user: User) -> HttpResponseBase:
    """Who changed what, newest first."""
    workspaces = selectors.visible_workspaces(user, include_archived=True)
    names = list(workspaces.values_list("namespace", flat=True))
    form = AuditFilter(request.GET, names=names)
    typed = form.cleaned_data if form.is_valid() else {}
    chosen = workspaces.filter(namespace=typed.get("workspace") or None).first()
    entries = selectors.audit_entries(
        user,
        workspace=chosen,
        action=typed.get("action") or None,
        cluster=typed.get("cluster") or None,
        before=typed.get("before"),
        limit=PAGE + 1,
    )
    if request.GET.get("format") == "csv":
        return csv_answer("audit.csv", _csv(entries[:PAGE]))
    context = {
        "form": form,
        "entries": [{"entry": row, "changes": changes(row)} for row in entries[:PAGE]],
        "next_before": entries[PAGE - 1].pk if len(entries) > PAGE else None,
        "is_first": not typed.get("before"),
    }
    return render(request, "audit/audit.html", context, status=200 if form.is_valid() else 422)


def changes(entry: AuditEntry) -> list[tuple[str, str, str]]:
    """(name, before, after) of what an entry changed, as short texts."""
    names = dict.fromkeys([*entry.before, *entry.after])
    rows = [(name, _text(entry.before.get(name)), _text(entry.after.get(name))) for name in names]
    return [row for row in rows if row[1] != row[2]]


def _text(value: Any) -> str:
    if value is None or value == "":
        return ""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _csv(entries: list[AuditEntry]) -> Iterator[tuple[str, ...]]:
    yield ("at", "actor", "action", "subject", "workspace", "cluster", "reason", "before", "after")
    for row in entries:
        yield (
            time_text(row.at),
            row.actor_name,
            row.action,
            row.subject,
            row.workspace.namespace if row.workspace else "",
            row.cluster,
            row.reason,
            json.dumps(row.before, sort_keys=True),
            json.dumps(row.after, sort_keys=True),
        )
