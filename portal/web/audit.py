"""The audit log as far as the reader may read it, with the filter in the address."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponseBase

from budgets import selectors
from budgets.models import AuditEntry, User
from portal.downloads import documents_answer
from portal.web.context import account_names
from portal.web.forms import DayField, WorkspaceFilter, midnight, offer_names
from portal.web.htmx import render
from portal.web.pages import page

PAGE = 50
FORMS = ("csv", "jsonl")


class AuditForm(WorkspaceFilter):
    """What of the log is asked for."""

    account = forms.ChoiceField(required=False)
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
            ("session.", "sign-ins"),
            ("token.", "API tokens"),
            ("cluster.", "clusters"),
        ],
    )
    actor_name = forms.CharField(label="Who", required=False, max_length=150)
    subject = forms.CharField(label="Object contains", required=False, max_length=200)
    start = DayField(label="From", required=False)
    until = DayField(label="Through", required=False)
    cluster = forms.SlugField(required=False)
    before = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, accounts: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offer_names(self.part("account"), accounts)

    def wanted(self, user: User) -> selectors.AuditFilter:
        """What was asked for, of a form without faults; days are those of the reader's clock."""
        given = self.cleaned_data
        start, until = given["start"], given["until"]
        workspace, account = given["workspace"], given["account"]
        return selectors.AuditFilter(
            workspace=selectors.workspace_for(user, workspace) if workspace else None,
            account=selectors.account_for(user, account) if account else None,
            since=midnight(start) if start else None,
            until=midnight(until + timedelta(days=1)) if until else None,
            **{name: given[name] for name in ("cluster", "action", "actor_name", "subject")},
        )


@page()
def audit(request: HttpRequest, user: User) -> HttpResponseBase:
    """Who changed what, newest first; all pages as a file."""
    form = AuditForm(
        request.GET, names=selectors.workspace_names(user), accounts=account_names(user)
    )
    context: dict[str, Any] = {"form": form, "streams": selectors.audit_streams(user)}
    if not form.is_valid():
        return render(request, "audit/audit.html", context, status=422)
    wanted, before = form.wanted(user), form.cleaned_data["before"]
    if (as_file := request.GET.get("format")) in FORMS:
        documents = selectors.audit_file(user, wanted)
        return documents_answer("audit", documents, columns=selectors.AUDIT_KEYS, form=as_file)
    entries = selectors.audit_entries(user, wanted, before=before, limit=PAGE + 1)
    context |= {
        "entries": [{"entry": row, "changes": changes(row)} for row in entries[:PAGE]],
        "next_before": entries[PAGE - 1].pk if len(entries) > PAGE else None,
        "is_first": not before,
    }
    return render(request, "audit/audit.html", context)


def changes(entry: AuditEntry) -> list[tuple[str, str, str]]:
    """(name, before, after) of what an entry changed, as short texts."""
    names = dict.fromkeys([*entry.before, *entry.after])
    rows = [(name, _text(entry.before.get(name)), _text(entry.after.get(name))) for name in names]
    return [row for row in rows if row[1] != row[2]]


def _text(value: Any) -> str:
    if value is None or value == "":
        return ""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
