"""The budget form: three fields, or one line per flavor, and back from faults to fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django import forms

from budgets.models import BudgetRevision, Flavor, Workspace
from budgets.plan import Line, RevisionDraft, Spill, short_form_lines
from portal.bounds import REASON
from portal.web.forms import GpuField, ReasonField, TimeField, Versioned

SHORT, LINES = "short", "lines"
AMOUNTS = ("committed", "ceiling", "lendable")


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
            for amount in AMOUNTS:
                self.fields[f"{amount}-{flavor.slug}"] = GpuField(
                    label=f"{flavor.name}, {LABELS[amount]}", required=False
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


LABELS = {"committed": "committed", "ceiling": "burst limit", "lendable": "lend at most"}


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
