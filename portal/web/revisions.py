"""History of a budget: revisions, two side by side, restore; and requests that wait."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from budgets import selectors
from budgets import services as promises
from budgets.models import BudgetRevision, User, Workspace
from portal.bounds import REASON
from portal.web.forms import ReasonField, VersionedForm
from portal.web.htmx import render
from portal.web.pages import form_page, page, typed

PER_PAGE = 50


@page()
def history(request: HttpRequest, user: User, namespace: str) -> HttpResponseBase:
    """Every revision, newest first."""
    workspace = selectors.workspace_for(user, namespace)
    context = {
        "workspace": workspace,
        "history": selectors.budget_history(user, workspace),
        "may_edit": selectors.roles_of(user).may_edit(workspace),
    }
    return render(request, "budgets/history.html", context)


@page("GET", "POST")
def revision(request: HttpRequest, user: User, namespace: str, number: int) -> HttpResponseBase:
    """One revision beside another, and its way back into force."""
    workspace = selectors.workspace_for(user, namespace)
    shown = selectors.revision_for(user, namespace, number)
    other = _other(request, user, namespace, number)
    may_edit = selectors.roles_of(user).may_edit(workspace)
    if request.method == "POST" and not may_edit:
        raise PermissionDenied("Only an owner of this workspace or an admin restores it.")
    return form_page(
        request,
        "budgets/revision.html",
        VersionedForm(typed(request), initial={"version": workspace.budget.version}),
        lambda given: promises.restore_revision(user, revision=shown, **given),
        said=lambda done: f"Revision {number} is back as revision {done.number}.",
        to=reverse("workspace", args=[namespace]),
        context=lambda: {
            "workspace": workspace,
            "revision": shown,
            "other": other,
            "rows": selectors.revision_diff(other, shown) if other else (),
            "history": selectors.budget_history(user, workspace),
            "may_restore": may_edit and shown.phase not in {"in force", "requested"},
        },
    )


def _other(request: HttpRequest, user: Any, namespace: str, number: int) -> BudgetRevision | None:
    """The revision to compare with: the one asked for, else the one before."""
    asked = request.GET.get("with", "")
    if asked:
        if not asked.isdecimal() or len(asked) > 9:
            raise Http404
        return selectors.revision_for(user, namespace, int(asked))
    return selectors.revision_for(user, namespace, number - 1) if number > 1 else None


@page()
def requests(request: HttpRequest, user: User) -> HttpResponseBase:
    """Requests that wait: all for an admin, one's own for an owner."""
    waiting = Paginator(selectors.visible_requests(user), PER_PAGE)
    shown = waiting.get_page(request.GET.get("page"))
    context = {
        "requests": selectors.with_reasons(shown.object_list),
        "shown": shown,
        "may_decide": selectors.roles_of(user).is_admin,
    }
    return render(request, "budgets/requests.html", context)


class RequestForm(VersionedForm):
    """Accept or decline, with a reason."""

    reason = ReasonField(help_text="The owner reads it; it stays in the history.", **REASON)


@page("GET", "POST")
def decide(request: HttpRequest, user: User, namespace: str, number: int) -> HttpResponseBase:
    """One request with its impact; an admin accepts or declines, its owner may withdraw it."""
    workspace = selectors.workspace_for(user, namespace)
    wanted = selectors.revision_for(user, namespace, number)
    if wanted.state != BudgetRevision.State.REQUESTED:
        return redirect("revision", namespace=namespace, number=number)
    roles = selectors.roles_of(user)
    return form_page(
        request,
        "budgets/decide.html",
        RequestForm(typed(request), initial={"version": workspace.budget.version}),
        lambda given: _decision(user, wanted, request.POST.get("decision"), given),
        said=lambda done: f"Request {number} is {done.get_state_display().lower()}.",
        to=reverse("requests") if roles.is_admin else reverse("history", args=[namespace]),
        context=lambda: {
            **_impact(user, workspace, wanted),
            "may_decide": roles.is_admin,
            "may_withdraw": roles.may_edit(workspace) and not roles.is_admin,
        },
    )


def _decision(
    user: User, wanted: BudgetRevision, decision: str | None, given: dict[str, Any]
) -> BudgetRevision:
    if decision == "withdraw":
        return promises.withdraw_request(user, revision=wanted, **given)
    return promises.decide_request(user, revision=wanted, accept=decision == "accept", **given)


def _impact(user: User, workspace: Workspace, wanted: BudgetRevision) -> dict[str, Any]:
    """A request beside what is in force, why it waits, and what it would lead to."""
    in_force = workspace.budget.in_force
    namespace = workspace.namespace
    before = selectors.revision_for(user, namespace, in_force.number) if in_force else None
    (wanted,) = selectors.with_reasons([wanted])
    return {
        "workspace": workspace,
        "revision": wanted,
        "before": before,
        "rows": selectors.revision_diff(before, wanted) if before else (),
        "reasons": wanted.reasons,
        "preview": selectors.preview_revision(user, workspace, selectors.draft_of(wanted)),
    }
