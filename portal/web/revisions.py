"""History of a budget: revisions, two side by side, restore, undo; and requests that wait."""

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
from budgets.plan import Line, Part, part_of
from portal.bounds import REASON
from portal.web.budgets import consequences
from portal.web.forms import GpuField, ReasonField, TimeField, Versioned, VersionedForm
from portal.web.htmx import render
from portal.web.pages import form_page, page, require_admin, typed

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
        raise PermissionDenied("Only an owner of this workspace or an admin can restore it.")
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


@page("GET", "POST")
def undo(request: HttpRequest, user: User, namespace: str, number: int) -> HttpResponseBase:
    """Take back what one saved a moment ago; the page of a workspace has the button."""
    workspace = selectors.workspace_for(user, namespace)
    shown = selectors.revision_for(user, namespace, number)
    return form_page(
        request,
        "budgets/undo.html",
        Versioned(typed(request), initial={"version": workspace.budget.version}),
        lambda given: promises.undo_revision(user, revision=shown, **given),
        said=lambda done: (
            f"Revision {number} is withdrawn before it began."
            if done.number == number
            else f"Revision {number} is undone: what held before it is back as revision "
            f"{done.number}."
        ),
        to=reverse("workspace", args=[namespace]),
        context=lambda: {"workspace": workspace, "revision": shown},
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
    """Accept, whole or in part, or decline; with a reason.

    The GPUs of each line are preset to what is asked for.
    """

    valid_until = TimeField(
        label="Until", help_text="Leave it empty to keep the end that was asked for."
    )
    reason = ReasonField(
        label="Comment", help_text="The owner reads it. It stays in the history.", **REASON
    )

    def __init__(self, *args: Any, wanted: BudgetRevision, **kwargs: Any) -> None:
        self.lines = list(wanted.lines.all())
        initial = kwargs.setdefault("initial", {})
        initial["valid_until"] = wanted.valid_until
        super().__init__(*args, **kwargs)
        for line in self.lines:
            for name, words in (("committed", "committed"), ("ceiling", "burst limit")):
                key = f"{name}-{line.flavor.slug}"
                asked = getattr(line, name)
                self.fields[key] = GpuField(
                    label=f"{line.flavor.name}, {words}",
                    help_text=f"Asked for: {asked:,}.",
                    required=False,
                )
                initial[key] = asked
        self.order_fields([*(key for key in self.fields if "-" in key), "valid_until", "reason"])

    def accepted(self) -> Part:
        """What of the request the numbers accept; the form has to be valid in shape."""
        lines = []
        for row in self.lines:
            slug = row.flavor.slug
            typed = [self.cleaned_data[f"{name}-{slug}"] for name in ("committed", "ceiling")]
            committed = row.committed if typed[0] is None else typed[0]
            ceiling = row.ceiling if typed[1] is None else typed[1]
            lines.append(Line(slug, committed, ceiling, min(row.lendable, committed)))
        return Part(tuple(lines), self.cleaned_data["valid_until"])

    def field_of(self, path: str) -> str:
        """``lines.N.committed`` → the field of this flavor."""
        words = path.split(".")
        if words[0] == "lines" and int(words[1]) < len(self.lines):
            name = words[2] if words[2:] == ["ceiling"] else "committed"
            return f"{name}-{self.lines[int(words[1])].flavor.slug}"
        return path


@page("GET", "POST")
def decide(request: HttpRequest, user: User, namespace: str, number: int) -> HttpResponseBase:
    """One request with its impact; an admin accepts or declines, its owner may withdraw it.

    ``check`` in the POST only looks at what the numbers would do.
    """
    workspace = selectors.workspace_for(user, namespace)
    wanted = selectors.revision_for(user, namespace, number)
    if wanted.state != BudgetRevision.State.REQUESTED:
        return redirect("revision", namespace=namespace, number=number)
    roles = selectors.roles_of(user)
    form = RequestForm(typed(request), wanted=wanted, initial={"version": workspace.budget.version})
    if "check" in request.POST:
        return _looked_at(request, user, workspace, wanted, form)
    return form_page(
        request,
        "budgets/decide.html",
        form,
        lambda given: _decision(user, wanted, request.POST.get("decision"), form),
        said=lambda done: _decided_words(number, done),
        to=reverse("requests") if roles.is_admin else reverse("history", args=[namespace]),
        context=lambda: {
            **_impact(user, workspace, wanted),
            "may_decide": roles.is_admin,
            "may_withdraw": roles.may_edit(workspace) and not roles.is_admin,
        },
    )


def _decision(
    user: User, wanted: BudgetRevision, decision: str | None, form: RequestForm
) -> BudgetRevision:
    given = {name: form.cleaned_data[name] for name in ("reason", "expected_version")}
    if decision == "withdraw":
        return promises.withdraw_request(user, revision=wanted, **given)
    is_accepted = decision == "accept"
    part = form.accepted() if is_accepted else None
    return promises.decide_request(user, revision=wanted, accept=is_accepted, part=part, **given)


def _decided_words(number: int, done: BudgetRevision) -> str:
    if done.answers == number:
        return f"Request {number} is accepted in part: revision {done.number} is the new budget."
    if done.state == BudgetRevision.State.LIVE:
        return f"Request {number} is accepted: it is the new budget of the workspace."
    return f"Request {number} is {done.get_state_display().lower()}. The budget stays as it is."


def _looked_at(
    request: HttpRequest,
    user: User,
    workspace: Workspace,
    wanted: BudgetRevision,
    form: RequestForm,
) -> HttpResponseBase:
    """The consequences of the typed part; nothing is decided."""
    require_admin(user, "Only a platform admin can decide on requests.")
    context: dict[str, Any] = {"workspace": workspace, "revision": wanted, "form": form}
    form.fields["reason"].required = False
    if form.is_valid():
        whole, flavors = selectors.draft_of(wanted), selectors.flavor_terms()
        draft = form.carry_out(lambda: part_of(whole, form.accepted(), flavors=flavors))
        if draft is not None:
            context |= consequences(user, workspace, draft, form)
    return render(request, "budgets/decide.html", context, partial="impact")


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
        **consequences(user, workspace, selectors.draft_of(wanted)),
    }
