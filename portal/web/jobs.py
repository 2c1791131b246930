"""Jobs: the list with its filter in the address, and one job's state in one sentence."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect

from budgets import selectors
from budgets.models import User
from clusters import selectors as seen
from clusters.selectors.bars import DEACTIVATED
from portal.web.forms import PortalForm, offer_names
from portal.web.htmx import is_partial, render, unchanged
from portal.web.pages import page

PHASES = [
    ("", "any"),
    ("pending", "waiting"),
    ("reserved", "quota reserved"),
    ("running", "running"),
    ("evicted", "stopping"),
    ("finished", "finished"),
    ("failed", "failed"),
    ("gone", "deleted"),
]
SORTS = [
    ("-created", "newest first"),
    ("created", "oldest first"),
    ("-gpus", "most GPUs first"),
]
PAGE = 50


class JobFilter(PortalForm):
    """Which jobs, in which order; all of it is in the address."""

    workspace = forms.ChoiceField(required=False)
    phase = forms.ChoiceField(label="State", required=False, choices=PHASES)
    text = forms.CharField(label="Name contains", required=False, max_length=100)
    sort = forms.ChoiceField(label="Order", required=False, choices=SORTS)
    # Boxes beside the jobs, to act on several; such a list does not renew itself meanwhile.
    select = forms.BooleanField(required=False, widget=forms.HiddenInput)
    cursor = forms.CharField(required=False, max_length=200, widget=forms.HiddenInput)

    def __init__(self, *args: Any, names: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offer_names(self.part("workspace"), names)


@page()
def jobs(request: HttpRequest, user: User) -> HttpResponseBase:
    """Jobs of the visible workspaces, one page by keyset."""
    workspaces = selectors.visible_workspaces(user, include_archived=True)
    names = list(workspaces.values_list("namespace", flat=True))
    form = JobFilter(request.GET, names=names)
    if not form.is_valid():
        return render(request, "jobs/jobs.html", {"form": form}, status=422)
    typed = form.cleaned_data
    wanted = seen.WorkloadFilter(
        namespaces=(typed["workspace"],) if typed["workspace"] else (),
        phases=(typed["phase"],) if typed["phase"] else (),
        text=typed["text"],
        sort=typed["sort"] or "-created",
    )
    found = seen.workloads(user, wanted, cursor=typed["cursor"] or None, limit=PAGE)
    context = {
        "form": form,
        "rows": found.rows,
        "next_cursor": found.next_cursor,
        "is_first": not typed["cursor"],
        "is_selecting": typed["select"],
        "is_filtered": any(typed[name] for name in ("workspace", "phase", "text")),
    }
    answer = render(request, "jobs/jobs.html", context, partial="list")
    return unchanged(request, answer) if is_partial(request) else answer


@page()
def job(request: HttpRequest, user: User, cluster: str, uid: str) -> HttpResponseBase:
    """One job: its state in one sentence, its time line, its GPU-hours by class.

    The address of a copy leads to the job: what became of one copy says little of it.
    """
    detail = seen.workload_detail(user, cluster, uid)
    own = next((row for row in detail.copies if not row.is_remote_copy), None)
    if detail.row.is_remote_copy and own is not None:
        return redirect("job", own.cluster, own.uid)
    workspace = selectors.workspace_for(user, detail.row.namespace)
    context = {
        "detail": detail,
        "row": detail.row,
        "why": seen.why_pending(user, cluster, uid),
        "workspace": workspace,
        "may_edit": selectors.roles_of(user).may_edit(workspace),
        "usage": seen.workload_hours(user, detail),
        "rounds": seen.dispatch_trail(user, detail),
        "preemptions": seen.preemptions_of(user, detail),
        "incidents": seen.incidents_of(user, detail),
        "acted": seen.actions_on(user, cluster, uid),
        "offers": _offers(detail.row),
    }
    answer = render(request, "jobs/job.html", context, partial="state")
    return unchanged(request, answer) if is_partial(request) else answer


def _offers(row: seen.WorkloadRow) -> list[tuple[str, str]]:
    """What can be done to a job now: verb and what the button says; the service decides."""
    if row.is_remote_copy or row.phase == "gone":
        return []
    if row.phase in ("finished", "failed"):
        first: list[tuple[str, str]] = []
    elif row.phase == "pending" and row.reason == DEACTIVATED:
        first = [("activate", "Put back in the queue")]
    else:
        first = [("deactivate", "Cancel")]
    return [*first, ("delete_job", "Delete")] if row.job_name else first
