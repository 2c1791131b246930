"""Cancel jobs, put them back in their queue, or delete them, after a page that names them."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from budgets.errors import Fault, Rejected
from budgets.models import User
from clusters import selectors as seen
from clusters import services as enforcement
from clusters.models import WorkloadAction
from portal.web.forms import ReasonForm
from portal.web.htmx import render
from portal.web.pages import carried_out, page, typed

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
        "A job that is put back waits for its GPUs again, as if it was submitted now.",
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


@page("GET", "POST")
def job_act(request: HttpRequest, user: User) -> HttpResponseBase:
    """Confirm an action on one job or many: which, what they used so far, and why."""
    given = request.POST if request.method == "POST" else request.GET
    verb, jobs = given.get("verb", Verb.DEACTIVATE), keys_of(given.getlist("job"))
    stakes = enforcement.jobs_at_stake(user, jobs=jobs, verb=verb)
    title, meaning, button, said = WORDS[Verb(verb)]
    possible = [stake for stake in stakes if not stake.fault]
    form = ReasonForm(typed(request))
    wanted = [(stake.state.cluster.slug, stake.state.uid) for stake in possible]
    answer = carried_out(
        request,
        form,
        lambda given: enforcement.act_on_workloads(
            user, jobs=wanted, verb=verb, reason=given["reason"]
        ),
        said=lambda done: (
            f"{f'{len(done)} jobs: each' if len(done) > 1 else 'The job'} {said}, "
            "once the cluster answers."
        ),
        to=_after,
    )
    if answer is not None:
        return answer
    context = {
        "form": form,
        "verb": verb,
        "title": title,
        "meaning": meaning,
        "button": button,
        "is_final": verb == Verb.DELETE_JOB,
        "possible": possible,
        "refused": [stake for stake in stakes if stake.fault],
        "gpus": sum(stake.state.gpu_total for stake in possible),
        "gpu_seconds": sum(stake.gpu_seconds for stake in possible),
    }
    return render(request, "jobs/act.html", context, status=form.status)


@page("POST")
def job_act_withdraw(request: HttpRequest, user: User, key: int) -> HttpResponseBase:
    """Take back what was not carried out yet."""
    action = seen.action_for(user, key)
    try:
        enforcement.withdraw_action(user, action=action)
        messages.success(request, "Taken back: nothing is done to the job.")
    except Rejected as rejected:
        messages.warning(request, " ".join(fault.message for fault in rejected.faults))
    return redirect("job", cluster=action.cluster.slug, uid=action.uid)


def keys_of(values: list[str]) -> list[tuple[str, str]]:
    """``cluster/uid`` of each job.

    Raises:
        Rejected: One has another form.
    """
    found = [tuple(value.split("/", 1)) for value in values]
    wrong = [value for value, key in zip(values, found, strict=True) if len(key) != 2]
    if wrong:
        words = f"{wrong[0][:80]!r} names no job; choose jobs in their list."
        raise Rejected([Fault("jobs", "invalid", words)])
    return [(key[0], key[1]) for key in found]


def _after(done: list[WorkloadAction]) -> str:
    if len(done) == 1:
        return reverse("job", args=[done[0].cluster.slug, done[0].uid])
    spaces = {action.namespace for action in done}
    return reverse("jobs") + (f"?workspace={spaces.pop()}" if len(spaces) == 1 else "")
