"""The budget form with its consequences, hold and resume, and the admin's re-split."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template import loader
from django.urls import reverse

from budgets import selectors
from budgets import services as promises
from budgets.models import Budget, BudgetRevision, User, Workspace
from clusters import selectors as seen
from portal.web.budget_form import BudgetForm, initial_of, renewed
from portal.web.consequences import consequences
from portal.web.forms import VersionedForm, radio
from portal.web.htmx import render
from portal.web.pages import form_page, page, require_admin, typed

TEMPLATE = "budgets/form.html"


@page("GET", "POST")
def budget_form(request: HttpRequest, user: User, namespace: str) -> HttpResponseBase:
    """Change a budget: typed, looked at, saved. ``check`` in the POST only looks."""
    workspace = _editable(user, namespace)
    in_force = workspace.budget.in_force
    initial = initial_of(workspace, in_force)
    if in_force is not None and "renew" in request.GET:
        initial |= renewed(in_force)
    form = BudgetForm(
        typed(request), flavors=list(selectors.visible_flavors(user)), initial=initial
    )
    if "check" in request.POST:
        return _checked(request, workspace, form)
    return form_page(
        request,
        TEMPLATE,
        form,
        lambda given: promises.revise_budget(
            user,
            workspace=workspace,
            draft=form.draft(),
            expected_version=given["expected_version"],
        ),
        said=_saved_words,
        to=reverse("workspace", args=[namespace]),
        # Where somebody saved in between: beside what is in force now.
        context=lambda: _context(
            selectors.workspace_for(user, namespace) if form.stale else workspace,
            form,
            largest=seen.largest_domains(form.flavors),
        ),
    )


@page("POST")
def budget_check(request: HttpRequest, user: User, namespace: str) -> HttpResponseBase:
    """The consequence panel and the faults beside the fields, while somebody types."""
    workspace = _editable(user, namespace)
    form = BudgetForm(request.POST, flavors=list(selectors.visible_flavors(user)))
    return _checked(request, workspace, form)


def _editable(user: Any, namespace: str) -> Workspace:
    workspace = selectors.workspace_for(user, namespace)
    if not selectors.roles_of(user).may_edit(workspace):
        raise PermissionDenied("Only an owner of this workspace or an admin can change its budget.")
    return workspace


def _context(workspace: Workspace, form: BudgetForm, **more: Any) -> dict[str, Any]:
    return {
        "workspace": workspace,
        "budget": workspace.budget,
        "revision": workspace.budget.in_force,
        "form": form,
        **more,
    }


def _checked(request: HttpRequest, workspace: Workspace, form: BudgetForm) -> HttpResponse:
    """Show what the typed budget would do; nothing is saved."""
    panel: dict[str, Any] = {}
    if form.is_valid():
        panel = consequences(request.user, workspace, form.draft(), form)
    context = _context(workspace, form, checked=True, **panel)
    answer = render(request, TEMPLATE, context, partial="consequences")
    if request.htmx:  # type: ignore[attr-defined]  # set by HtmxMiddleware
        # Faults go beside their fields out of band; what is being typed is not touched.
        answer.write(loader.render_to_string("budgets/faults.html", context, request))
    return answer


def _saved_words(revision: BudgetRevision) -> str:
    if revision.state == BudgetRevision.State.REQUESTED:
        return (
            f"Revision {revision.number} waits as a request: it goes beyond the envelope of the "
            "account. Nothing changes until an admin accepts it."
        )
    return f"Revision {revision.number} is saved; the clusters follow within seconds."


class StopForm(VersionedForm):
    """Hold, drain or go on."""

    policy = radio("New jobs", **dict(Budget.StopPolicy.choices))
    field_order = ["policy", "reason", "version"]


@page("GET", "POST")
def stop_policy(request: HttpRequest, user: User, namespace: str) -> HttpResponseBase:
    """Hold a budget, drain it, or let it go on; says what happens to running jobs."""
    workspace = _editable(user, namespace)
    budget = workspace.budget
    initial = {"policy": budget.stop_policy, "version": budget.version}
    return form_page(
        request,
        "budgets/stop.html",
        StopForm(typed(request), initial=initial),
        lambda given: promises.set_stop_policy(user, budget=budget, **given),
        said=lambda done: done.get_stop_policy_display(),
        to=reverse("workspace", args=[namespace]),
        context=lambda: {
            "workspace": workspace,
            "running": seen.workload_counts([workspace]).get(namespace, (0, 0))[1],
            "in_use": sum(bar.used for bar in seen.bars_now([workspace]).get(workspace.pk, [])),
        },
    )


@page("GET", "POST")
def reallocate(request: HttpRequest, user: User, namespace: str) -> HttpResponseBase:
    """Split a budget over the workers anew; an admin's action with a preview."""
    workspace = selectors.workspace_for(user, namespace)
    require_admin(user, "Only a platform admin can split a budget again.")
    return form_page(
        request,
        "budgets/reallocate.html",
        VersionedForm(typed(request), initial={"version": workspace.budget.version}),
        lambda given: promises.reallocate(user, workspace=workspace, **given),
        said="The budget has been split again; the clusters follow within seconds.",
        to=reverse("workspace", args=[namespace]),
        context=lambda: {
            "workspace": workspace,
            "preview": selectors.preview_reallocation(user, workspace),
        },
    )
