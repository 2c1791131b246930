"""The budget form with its consequences, hold and resume, and the admin's re-split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template import loader
from django.urls import reverse

from budgets import selectors
from budgets import services as promises
from budgets.models import Budget, BudgetRevision, Flavor, User, Workspace
from budgets.plan import Line, RevisionDraft, Spill, short_form_lines
from budgets.selectors.budget.cost_preview import preview_costs
from budgets.selectors.clock import utc_now
from clusters import selectors as seen
from portal.bounds import REASON
from portal.web.bars import draw_room
from portal.web.forms import (
    GpuField,
    PortalForm,
    ReasonField,
    TimeField,
    Versioned,
    VersionedForm,
    radio,
)
from portal.web.htmx import render
from portal.web.pages import form_page, page, require_admin, typed

TEMPLATE = "budgets/form.html"
SHORT, LINES = "short", "lines"
AMOUNTS = {"committed": "committed", "ceiling": "burst limit", "lendable": "lend at most"}


class BudgetForm(Versioned):
    """What an owner types.

    ``shape`` says which part counts: the three fields, or the lines per flavor. Both stay
    filled, so that nothing typed is lost by changing one's mind.
    """

    shape = forms.ChoiceField(
        choices=[
            (SHORT, "The three fields above"),
            (LINES, "A line for each flavor"),
        ],
        widget=forms.RadioSelect,
        label="What counts",
    )
    committed = GpuField(label="Committed", required=False)
    ceiling = GpuField(label="Burst limit", required=False)
    preferred = forms.ChoiceField(label="Prefer", required=False)
    home_flavor = forms.ChoiceField(
        label="Home flavor",
        help_text="The committed GPUs are of this flavor. Burst uses the preferred one.",
    )
    lendable = GpuField(
        label="Lend at most",
        required=False,
        help_text="Idle committed GPUs that others may borrow. Leave it empty to lend all of them.",
    )
    spill = forms.ChoiceField(
        label="When the committed GPUs of the first flavor are used up",
        choices=BudgetRevision.Spill.choices,
        required=False,
    )
    valid_from = TimeField(label="From", help_text="Leave it empty to begin at once.")
    valid_until = TimeField(
        label="Until", help_text="Leave it empty to keep it until something newer begins."
    )
    reason = ReasonField(
        required=False,
        help_text="It is shown in the history, and to the admin if one has to accept the budget.",
        **REASON,
    )

    def __init__(self, *args: Any, flavors: Sequence[Flavor], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.flavors = list(flavors)
        choices = [(flavor.slug, flavor.name) for flavor in self.flavors]
        self.part("home_flavor").choices = choices
        self.part("preferred").choices = [("", "no other flavor"), *choices]
        for flavor in self.flavors:
            for amount, words in AMOUNTS.items():
                self.fields[f"{amount}-{flavor.slug}"] = GpuField(
                    label=f"{flavor.name}, {words}", required=False
                )
            self.fields[f"order-{flavor.slug}"] = forms.IntegerField(
                label=f"{flavor.name}: order in which it is tried",
                required=False,
                min_value=1,
                max_value=99,
            )
        self._row_fields: list[Mapping[str, str]] = []

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("shape") == SHORT:
            for name in ("committed", "ceiling"):
                if cleaned.get(name) is None and name not in self.errors:
                    self.add_error(name, "Type a number of GPUs. 0 is allowed.")
        return cleaned

    def rows(self) -> list[dict[str, Any]]:
        """The lines per flavor as bound fields, for the template."""
        names = (*AMOUNTS, "order")
        return [
            {
                "flavor": flavor,
                "cells": [self[f"{name}-{flavor.slug}"] for name in names],
            }
            for flavor in self.flavors
        ]

    def draft(self) -> RevisionDraft:
        """The revision that was typed; the form has to be valid in shape."""
        typed = self.cleaned_data
        draft = RevisionDraft(
            lines=(),
            spill=Spill(typed["spill"] or Spill.NEXT_FLAVOR_FIRST),
            valid_from=typed["valid_from"],
            valid_until=typed["valid_until"],
            reason=typed["reason"].strip(),
        )
        if typed["shape"] == LINES:
            return self._typed_lines(draft)
        return self._short_form(draft)

    def _short_form(self, draft: RevisionDraft) -> RevisionDraft:
        typed = self.cleaned_data
        home, preferred = typed["home_flavor"], typed["preferred"] or None
        lines = short_form_lines(
            home_flavor=home,
            committed=typed["committed"],
            ceiling=typed["ceiling"],
            preferred=preferred,
        )
        if typed["lendable"] is not None:
            lines = (replace(lines[0], lendable=typed["lendable"]), *lines[1:])
        self._row_fields = [
            {**dict(zip(AMOUNTS, AMOUNTS, strict=True)), "flavor": "home_flavor"},
            {**dict.fromkeys(AMOUNTS, "ceiling"), "flavor": "preferred"},
        ]
        order = (preferred, home) if preferred and len(lines) > 1 else ()
        return replace(draft, lines=lines, preference=order)

    def _typed_lines(self, draft: RevisionDraft) -> RevisionDraft:
        lines: list[Line] = []
        order: list[tuple[int, str]] = []
        self._row_fields = []
        for flavor in self.flavors:
            slug = flavor.slug
            committed, ceiling, lendable = (
                self.cleaned_data.get(f"{amount}-{slug}") for amount in AMOUNTS
            )
            if committed is None and ceiling is None:
                continue
            committed = committed or 0
            lines.append(
                Line(
                    flavor=slug,
                    committed=committed,
                    ceiling=committed if ceiling is None else ceiling,
                    lendable=committed if lendable is None else lendable,
                )
            )
            fields = {amount: f"{amount}-{slug}" for amount in AMOUNTS}
            self._row_fields.append({**fields, "flavor": f"committed-{slug}"})
            position = self.cleaned_data.get(f"order-{slug}")
            if position is not None:
                order.append((position, slug))
        return replace(
            draft, lines=tuple(lines), preference=tuple(slug for _, slug in sorted(order))
        )

    def field_of(self, path: str) -> str:
        """``lines.N.committed`` → the field that this line came from."""
        words = path.split(".")
        if words[0] == "lines" and len(words) > 1:
            row = int(words[1])
            if row < len(self._row_fields):
                return self._row_fields[row].get(words[2] if len(words) > 2 else "committed", "")
        if words[0] == "preference":
            return "preferred"
        return path

    @property
    def has_faults_in_more(self) -> bool:
        """Whether "more" has to stand open to show what is wrong."""
        shown = {"committed", "ceiling", "preferred", "__all__", "reason"}
        return bool(set(self.errors) - shown)


def initial_of(workspace: Workspace, revision: BudgetRevision | None) -> dict[str, Any]:
    """What the form shows first: the revision in force, in three fields where it fits them."""
    home = workspace.home_flavor.slug
    initial: dict[str, Any] = {
        "version": workspace.budget.version,
        "shape": SHORT,
        "home_flavor": home,
        "spill": Spill.NEXT_FLAVOR_FIRST,
    }
    if revision is None:
        return initial | {"committed": 0, "ceiling": 0}
    lines = [line for line in revision.lines.all() if line.ceiling]
    for line in lines:
        slug = line.flavor.slug
        for amount in AMOUNTS:
            initial[f"{amount}-{slug}"] = getattr(line, amount)
        if slug in revision.preference:
            initial[f"order-{slug}"] = revision.preference.index(slug) + 1
    short = _as_three_fields(lines, home)
    return initial | {"spill": revision.spill, **(short or {"shape": LINES})}


def renewed(revision: BudgetRevision) -> dict[str, Any]:
    """What the form shows for one more time as long, from where the revision ends."""
    end = revision.valid_until
    if end is None:
        return {}
    words = f"Renews revision {revision.number}."
    return {
        "valid_from": end,
        "valid_until": end + (end - revision.valid_from),
        "reason": words,
    }


def _as_three_fields(lines: Sequence[Any], home: str) -> dict[str, Any] | None:
    """The three fields that would make exactly these lines; None when none do."""
    floors = [line for line in lines if line.committed]
    bursts = [line for line in lines if not line.committed]
    if len(lines) > 2 or len(floors) > 1 or len(bursts) > 1:
        return None
    floor, burst = next(iter(floors), None), next(iter(bursts), None)
    if floor is not None and burst is not None and floor.ceiling != floor.committed:
        return None
    committed = floor.committed if floor else 0
    ceiling = (floor.ceiling if floor else 0) + (burst.ceiling if burst else 0)
    found: dict[str, Any] = {"committed": committed, "ceiling": ceiling, "preferred": ""}
    found["home_flavor"] = floor.flavor.slug if floor else home
    if burst is not None:
        found["preferred"] = burst.flavor.slug
    if floor is not None and floor.lendable != floor.committed:
        found["lendable"] = floor.lendable
    return found


@page("GET", "POST")
def budget_form(request: HttpRequest, user: User, namespace: str) -> HttpResponseBase:
    """Change a budget: typed, looked at, saved. ``check`` in the POST only looks."""
    workspace = _editable(user, namespace)
    in_force = workspace.budget.in_force
    if in_force is not None:
        selectors.with_lines(in_force)
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


def consequences(
    user: Any, workspace: Workspace, draft: RevisionDraft, form: PortalForm | None = None
) -> dict[str, Any]:
    """The context of ``budgets/consequences.html``; faults of the draft come into the form.

    Args:
        user: Who looks; decides what of the fleet is shown.
        workspace: One that they may see.
        draft: As typed.
        form: Bound; what it was typed in, where it was.
    """
    preview = selectors.preview_revision(user, workspace, draft)
    if form is not None:
        form.take(preview.faults)
    names = {row.slug: row.name for row in selectors.visible_flavors(user, include_archived=True)}
    context = {"preview": preview, "names": names}
    if preview.faults:
        return context
    in_force = workspace.budget.in_force
    rows = selectors.with_lines(in_force).lines.all() if in_force is not None else ()
    bars = {
        kind: [
            draw_room(room, names.get(room.flavor, room.flavor))
            for room in preview.rooms
            if room.kind == kind
        ]
        for kind in ("envelope", "fleet")
    }
    return {
        **context,
        **bars,
        "costs": preview_costs(
            workspace, [[row.as_plan() for row in rows], draft.lines], utc_now()
        ),
        "manifests": seen.preview_manifests(user, preview.promises_before, preview.promises_after),
        "reached": [entry for entry in preview.reach if entry.ceiling],
        "losers": [row for row in preview.impact if row.after < row.before],
        "gainers": [row for row in preview.impact if row.after > row.before],
    }


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
