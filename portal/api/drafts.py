"""Drafts of a budget: what a revision is written as, and what it would do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from budgets import selectors
from budgets.models import User, Workspace
from budgets.plan import Line, RevisionDraft, Room, Spill, short_form_lines
from budgets.plan.reach import ImpactRow, Reach
from budgets.selectors.budget.preview import RevisionPreview
from clusters import selectors as cluster_selectors
from clusters.selectors.previews import ClusterChanges, ManifestChange
from portal.api.shapes import GpusField, InstantField, RecordSerializer, Strict, beside
from portal.api.views import View, answers, finds


class LineInput(Strict):
    """GPUs of one flavor. ``ceiling`` is the burst limit; ``lendable`` is preset to committed."""

    flavor = serializers.CharField(max_length=40)
    committed = GpusField()
    ceiling = GpusField()
    lendable = GpusField(required=False, allow_null=True)

    @staticmethod
    def line(given: dict[str, Any]) -> Line:
        """The line as the services take it."""
        lendable = given.get("lendable")
        return Line(
            flavor=given["flavor"],
            committed=given["committed"],
            ceiling=given["ceiling"],
            lendable=given["committed"] if lendable is None else lendable,
        )


class ShortInput(Strict):
    """Three fields: "16 committed, burst 32, prefer h100-spot"."""

    committed = GpusField()
    burst = GpusField(help_text="The burst limit; it counts the committed GPUs, too.")
    prefer = serializers.CharField(max_length=40, required=False, allow_null=True)
    home_flavor = serializers.CharField(
        max_length=40, required=False, help_text="The workspace's own when left out."
    )


class DraftInput(Strict):
    """A revision: ``lines`` and ``preference``, or ``short`` instead of both."""

    lines = LineInput(many=True, required=False)
    preference = serializers.ListField(
        child=serializers.CharField(max_length=40), required=False, max_length=50
    )
    short = ShortInput(required=False)
    spill = serializers.ChoiceField(
        [spill.value for spill in Spill], default=Spill.NEXT_FLAVOR_FIRST.value
    )
    valid_from = InstantField(required=False, allow_null=True, default=None)
    valid_until = InstantField(required=False, allow_null=True, default=None)
    reason = serializers.CharField(max_length=500, allow_blank=True, default="")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "short" in attrs and ("lines" in attrs or "preference" in attrs):
            message = "Send either short, or lines and preference."
            raise ValidationError({"short": [ErrorDetail(message, "not_both")]})
        if "short" not in attrs and "lines" not in attrs:
            message = "Send lines, or short with committed and burst."
            raise ValidationError({"lines": [ErrorDetail(message, "required")]})
        if len(attrs.get("lines", ())) > 50:
            message = "A revision has at most 50 lines."
            raise ValidationError({"lines": [ErrorDetail(message, "max_length")]})
        return {"draft": partial(self._draft, attrs)}

    @staticmethod
    def _draft(given: Mapping[str, Any], home_flavor: str) -> RevisionDraft:
        """The validated input as the services take it.

        Args:
            given: What was sent.
            home_flavor: Of the workspace, where the short form puts the floor.
        """
        if short := given.get("short"):
            home = short.get("home_flavor") or home_flavor
            preferred = short.get("prefer") or None
            lines = short_form_lines(
                home_flavor=home,
                committed=short["committed"],
                ceiling=short["burst"],
                preferred=preferred,
            )
            preference = tuple(line.flavor for line in reversed(lines)) if len(lines) > 1 else ()
        else:
            lines = tuple(LineInput.line(line) for line in given["lines"])
            preference = tuple(given.get("preference", ()))
        return RevisionDraft(
            lines=lines,
            preference=preference,
            spill=Spill(given["spill"]),
            valid_from=given["valid_from"],
            valid_until=given["valid_until"],
            reason=given["reason"],
        )


class ReachSerializer(RecordSerializer[Reach]):
    """How many GPUs a line can get, and the largest job of one flavor."""


class RoomSerializer(RecordSerializer[Room]):
    """What the draft takes of a limit: the account's envelope, or the fleet's GPUs."""

    kind = serializers.ChoiceField(["envelope", "fleet"])


class ImpactSerializer(RecordSerializer[ImpactRow]):
    """Who could borrow more or less; ``cluster`` is empty for the sum over workers."""

    words = serializers.CharField()


class ManifestSerializer(RecordSerializer[ManifestChange]):
    """One object that would change, in words and as it would be applied."""


class ClusterChangesSerializer(RecordSerializer[ClusterChanges]):
    """What would change on one cluster."""


class PreviewSerializer(RecordSerializer[RevisionPreview]):
    """What a draft would do."""

    without = ("promises_before", "promises_after")
    state = serializers.ChoiceField(["live", "requested", "rejected"])
    manifests = ClusterChangesSerializer(many=True)


class PreviewView(View):
    """What a draft would do; writes nothing."""

    only_reads = True
    found = finds("workspace", selectors.workspace_for)

    @answers(PreviewSerializer, takes=DraftInput)
    def post(self, user: User, workspace: Workspace, draft: Any) -> Any:
        seen = selectors.preview_revision(user, workspace, draft(workspace.home_flavor.slug))
        if seen.faults:
            return beside(seen, manifests=())
        changes = cluster_selectors.preview_manifests(
            user, seen.promises_before, seen.promises_after
        )
        return beside(seen, manifests=changes)
