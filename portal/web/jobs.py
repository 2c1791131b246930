"""Jobs: the list with its filter in the address, one job's state, and what is done to jobs."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from budgets import selectors
from budgets.errors import Fault, Rejected
from budgets.models import User
from budgets.selectors.billing.job_costs import add_up_jobs, cost_of_job
from budgets.texts import is_storable
from clusters import selectors as seen
from clusters import services as enforcement
from clusters.models import WorkloadAction
from clusters.selectors.bars import DEACTIVATED
from portal.downloads import csv_answer
from portal.web.forms import ReasonForm, WorkspaceFilter
from portal.web.htmx import polled, render
from portal.web.pages import form_page, page, typed

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
    ("gpus", "fewest GPUs first"),
    ("workspace", "by workspace"),
    ("-workspace", "by workspace, from the end"),
]
PAGE = 50
Verb = WorkloadAction.Verb
# Verb → title, what it means, what the button says, what is said afterwards.
WORDS = {
    Verb.DEACTIVATE: (
        "Cancel",
        "A cancelled job gives its GPUs back and leaves the queue; what it did not save is lost. "
        "It can be put back in its queue later, where it begins from the start.",
        "Cancel",
        "is cancelled within seconds",
    ),
    Verb.ACTIVATE: (
        "Put back in the queue",
        "A job that is put back waits for its GPUs again, as if it were submitted now.",
        "Put back",
        "waits in its queue again within seconds",
    ),
    Verb.DELETE_JOB: (
        "Delete",
        "A deleted job is stopped and taken from the cluster, with its pods and their logs. "
        "That cannot be undone; its time line and its GPU-hours stay here.",
        "Delete for good",
        "is deleted within seconds",
    ),
}


class JobFilter(WorkspaceFilter):
    """Which jobs, in which order; all of it is in the address."""

    phase = forms.ChoiceField(label="State", required=False, choices=PHASES)
    text = forms.CharField(label="Name contains", required=False, max_length=100)
    sort = forms.ChoiceField(label="Order", required=False, choices=SORTS)
    # Boxes beside the jobs, to act on several; such a list does not renew itself meanwhile.
    select = forms.BooleanField(required=False, widget=forms.HiddenInput)
    cursor = forms.CharField(required=False, max_length=200, widget=forms.HiddenInput)


class LookForm(WorkspaceFilter):
    """Which job to look at on its clusters; the list of jobs may not have it."""

    workspace = forms.ChoiceField(label="Workspace")
    job = forms.CharField(
        label="Job",
        max_length=253,
        help_text="The name that it was submitted with, or the name of a pod group.",
    )


@page()
def jobs(request: HttpRequest, user: User) -> HttpResponseBase:
    """Jobs of the visible workspaces, one page by keyset; all pages as CSV."""
    names = selectors.workspace_names(user)
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
    if request.GET.get("format") == "csv":
        return csv_answer("jobs.csv", seen.workloads_csv(user, wanted))
    found = seen.workloads(user, wanted, cursor=typed["cursor"] or None, limit=PAGE)
    context = {
        "form": form,
        "rows": found.rows,
        "workspace_names": names,
        "sort": wanted.sort,
        "next_cursor": found.next_cursor,
        "is_first": not typed["cursor"],
        "is_selecting": typed["select"],
        "is_filtered": any(typed[name] for name in ("workspace", "phase", "text")),
    }
    return polled(request, "jobs/jobs.html", context, partial="list")


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
        # Worked out only where the whole page is drawn: all jobs of its months are looked at.
        "cost": lambda: _cost(user, detail),
        "rounds": seen.dispatch_trail(user, detail),
        "preemptions": seen.preemptions_of(user, detail),
        "incidents": seen.incidents_of(user, detail),
        "acted": seen.actions_on(user, cluster, uid),
        "offers": _offers(detail.row),
    }
    return polled(request, "jobs/job.html", context, partial="state")


def _cost(user: User, detail: seen.WorkloadDetail) -> dict[str, Any] | None:
    """What a job cost by cluster and flavor, and up to when that is known; None before any use."""
    hours = seen.workload_hours(user, detail)
    if not hours:
        return None
    costs = cost_of_job(
        user,
        {(row.cluster, row.uid) for row in (detail.row, *detail.copies)},
        namespace=detail.row.namespace,
        flavors={use.flavor for use in hours},
        first=min(use.first for use in hours),
        last=max(use.last for use in hours),
    )
    known = selectors.freshness().clusters
    until = [known.get(use.cluster) for use in hours]
    return {
        "currency": costs.currency,
        "rows": costs.jobs,
        "total": add_up_jobs(costs.jobs),
        "unpriced": costs.unpriced,
        "until": min((at for at in until if at), default=None),
        "is_cut": sum(use.committed_used + use.burst for use in hours)
        != sum(row.committed_used + row.burst for row in costs.jobs),
    }


def _offers(row: seen.WorkloadRow) -> list[tuple[str, str]]:
    """What can be done to a job now: verb and what the button says; the service decides."""
    if row.is_remote_copy or row.phase == "gone":
        return []
    verbs: list[Verb] = [Verb.DELETE_JOB] if row.job_name else []
    if row.phase not in ("finished", "failed"):
        is_cancelled = row.phase == "pending" and row.reason == DEACTIVATED
        verbs.insert(0, Verb.ACTIVATE if is_cancelled else Verb.DEACTIVATE)
    return [(verb, WORDS[verb][0]) for verb in verbs]


@page("GET", "POST")
def job_look(request: HttpRequest, user: User) -> HttpResponseBase:
    """Look at the objects of one job on its clusters, also of one that the list does not have."""
    names = selectors.workspace_names(user)
    given = {name: request.GET.get(name, "") for name in ("workspace", "job")}
    return form_page(
        request,
        "jobs/look.html",
        LookForm(typed(request), names=names, initial=given),
        lambda given: enforcement.start_look(
            user,
            workspace=selectors.workspace_for(user, given["workspace"]),
            job=given["job"],
        ),
        said="The clusters are asked about the job.",
        to=lambda operation: reverse("operation", args=[operation.pk]),
    )


@page("GET", "POST")
def job_act(request: HttpRequest, user: User) -> HttpResponseBase:
    """Confirm an action on one job or many: which, what they used so far, and why."""
    given = request.POST if request.method == "POST" else request.GET
    verb, jobs = given.get("verb", Verb.DEACTIVATE), keys_of(given.getlist("job"))
    stakes = enforcement.jobs_at_stake(user, jobs=jobs, verb=verb)
    title, meaning, button, said = WORDS[Verb(verb)]
    possible = [stake for stake in stakes if not stake.fault]
    wanted = [(stake.state.cluster.slug, stake.state.uid) for stake in possible]
    return form_page(
        request,
        "jobs/act.html",
        ReasonForm(typed(request)),
        lambda given: enforcement.act_on_workloads(user, jobs=wanted, verb=verb, **given),
        said=lambda done: (
            f"{f'{len(done)} jobs: each' if len(done) > 1 else 'The job'} {said}, "
            "once the cluster answers."
        ),
        to=_after,
        context=lambda: {
            "verb": verb,
            "title": title,
            "meaning": meaning,
            "button": button,
            "is_final": verb == Verb.DELETE_JOB,
            "possible": possible,
            "refused": [stake for stake in stakes if stake.fault],
            "gpus": sum(stake.state.gpu_total for stake in possible),
            "gpu_seconds": sum(stake.gpu_seconds for stake in possible),
        },
    )


@page("POST")
def job_act_withdraw(request: HttpRequest, user: User, key: int) -> HttpResponseBase:
    """Take back what was not carried out yet."""
    action = seen.action_for(user, key)
    try:
        enforcement.withdraw_action(user, action=action)
        messages.success(request, "Taken back. Nothing is done to the job.")
    except Rejected as rejected:
        messages.warning(request, " ".join(fault.message for fault in rejected.faults))
    return redirect("job", cluster=action.cluster.slug, uid=action.uid)


def keys_of(values: list[str]) -> list[tuple[str, str]]:
    """``cluster/uid`` of each job.

    Raises:
        Rejected: One has another form, or text that no database keeps.
    """
    found = [tuple(value.split("/", 1)) for value in values]
    wrong = [
        value
        for value, key in zip(values, found, strict=True)
        if len(key) != 2 or not is_storable(value)
    ]
    if wrong:
        words = f"{wrong[0][:80]!r} is not a job. Choose jobs in the list of jobs."
        raise Rejected([Fault("jobs", "invalid", words)])
    return [(key[0], key[1]) for key in found]


def _after(done: list[WorkloadAction]) -> str:
    if len(done) == 1:
        return reverse("job", args=[done[0].cluster.slug, done[0].uid])
    spaces = {action.namespace for action in done}
    return reverse("jobs") + (f"?workspace={spaces.pop()}" if len(spaces) == 1 else "")
