"""Budgets: read with ETag, revise with If-Match, requests, history."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponseBase
from django.utils.cache import get_conditional_response
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import models, selectors
from budgets import services as promises
from budgets.models import Budget, BudgetRevision, User, Workspace
from budgets.plan import Part
from budgets.selectors.budget.history import DiffRow
from portal.api.drafts import DraftInput, LineInput
from portal.api.paging import BY_NUMBER, OLDEST, etag_of
from portal.api.proposals import ProposalSerializer
from portal.api.schema import Shape
from portal.api.shapes import (
    FaultSerializer,
    InstantField,
    ReasonInput,
    RecordSerializer,
    RowSerializer,
    Strict,
)
from portal.api.views import ASKED, MADE, Noun, View, actor, answers, deed, finds, lists


class LineSerializer(RowSerializer[models.BudgetLine]):
    """GPUs of one flavor."""

    told = "flavor committed ceiling lendable"


class RevisionSerializer(RowSerializer[models.BudgetRevision]):
    """One immutable state of a budget.

    ``phase`` is "in force", "scheduled", "past" or the state; ``reasons`` say why a request
    waits, in the list of requests. ``undo_until``: until then its author may undo it, if nothing
    newer was saved; null where nobody undoes it alone.
    """

    id = serializers.IntegerField(read_only=True)
    workspace = serializers.CharField(source="budget.workspace.namespace", read_only=True)
    lines = LineSerializer(many=True, read_only=True)
    phase = serializers.CharField(read_only=True)
    reasons = serializers.SerializerMethodField()
    undo_until = serializers.DateTimeField(read_only=True, allow_null=True)
    told = (
        "id workspace number state phase author reason lines preference spill valid_from "
        "valid_until restored_from answers decided_by decided_at decision_reason reasons "
        "created_at undo_until"
    )

    @extend_schema_field(FaultSerializer(many=True))
    def get_reasons(self, revision: models.BudgetRevision) -> Any:
        return FaultSerializer(getattr(revision, "reasons", ()), many=True).data


class BudgetSerializer(serializers.Serializer[Any]):
    """The promise to one workspace; ``in_force`` is null before the first revision."""

    workspace = serializers.CharField(source="workspace.namespace")
    version = serializers.IntegerField()
    generation = serializers.IntegerField()
    stop_policy = serializers.ChoiceField(models.Budget.StopPolicy.choices)
    stop_reason = serializers.CharField(allow_blank=True)
    in_force = RevisionSerializer(allow_null=True)


class DiffRowSerializer(RecordSerializer[DiffRow]):
    """One property of two revisions side by side, as texts."""

    changed = serializers.BooleanField()


class DiffSerializer(serializers.Serializer[Any]):
    """Two revisions side by side."""

    before = serializers.IntegerField()
    after = serializers.IntegerField()
    rows = DiffRowSerializer(many=True)


class DecisionInput(Strict):
    """Accept, whole or in part, or decline; with a reason.

    ``lines`` and ``valid_until`` accept a part: no more GPUs than asked for, no later end. The
    answer is then the revision that holds the part.
    """

    accept = serializers.BooleanField()
    reason = serializers.CharField(max_length=500)
    lines = LineInput(many=True, required=False)
    valid_until = InstantField(required=False, allow_null=True, default=None)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        lines = tuple(LineInput.line(line) for line in attrs.pop("lines", ()))
        part = Part(lines, attrs.pop("valid_until"))
        return {**attrs, "part": part}


class WithdrawInput(Strict):
    """A reason, for those who want to give one."""

    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")


class StopInput(Strict):
    """Hold (running jobs finish), HoldAndDrain (they are stopped), or None."""

    policy = serializers.ChoiceField(models.Budget.StopPolicy.choices)
    reason = serializers.CharField(max_length=300)


class MoveSerializer(serializers.Serializer[Any]):
    """Committed GPUs on one worker, now and after a new split."""

    flavor = serializers.CharField()
    cluster = serializers.CharField()
    before = serializers.IntegerField()
    after = serializers.IntegerField()


class MovesSerializer(serializers.Serializer[Any]):
    """A new split, before it is made."""

    moves = MoveSerializer(many=True)


class PartSerializer(serializers.Serializer[Any]):
    """Committed GPUs on one worker."""

    flavor = serializers.CharField()
    cluster = serializers.CharField()
    committed = serializers.IntegerField()


class PartsSerializer(serializers.Serializer[Any]):
    """A new split that was made."""

    parts = PartSerializer(many=True)


def _told(shape: Shape, row: Any, budget: Budget, code: int | None = None) -> Response:
    """An answer with the ETag of the budget."""
    return Response(shape(row).data, status=code, headers={"ETag": etag_of(budget)})


def budget_answer(user: User, budget: Budget) -> Response:
    """The budget with its ETag."""
    if budget.in_force is not None:
        namespace = budget.workspace.namespace
        budget.in_force = selectors.revision_for(user, namespace, budget.in_force.number)
    return _told(BudgetSerializer, budget, budget)


class BudgetPart(View):
    """A part of the budget of one visible workspace."""

    found = finds("workspace", selectors.workspace_for)


class BudgetView(BudgetPart):
    """The budget of a workspace; 304 when If-None-Match has its ETag."""

    @extend_schema(responses={200: BudgetSerializer, 304: None})
    def get(self, request: Request, namespace: str) -> HttpResponseBase:
        budget = selectors.workspace_for(actor(request), namespace).budget
        etag = etag_of(budget)
        unread = Response(headers={"ETag": etag})
        unchanged = get_conditional_response(request, etag=etag, response=unread)
        if unchanged is unread or unchanged is None:
            return budget_answer(actor(request), budget)
        return unchanged


class Revisions(Noun):
    """All revisions, newest first."""

    each = "One revision."
    shape = RevisionSerializer
    lookup_field = "number"
    list = lists(selectors.budget_history, BY_NUMBER)
    decide = deed(
        promises.decide_request,
        takes=DecisionInput,
        needs_version=True,
        text="An admin's decision on a request.",
    )
    withdraw = deed(
        promises.withdraw_request,
        takes=WithdrawInput,
        needs_version=True,
        text="Takes back a request, or a revision that has not begun.",
    )
    restore = deed(
        promises.restore_revision,
        takes=ReasonInput,
        needs_version=True,
        code=(MADE, ASKED),
        text="Saves an old revision's lines and preference again, as a new revision.",
    )

    undo = deed(
        promises.undo_revision,
        needs_version=True,
        text="Undoes the revision that the caller saved in the last five minutes. The budget of "
        "before comes back as a new revision, which is the answer; a revision that has not begun "
        "is withdrawn.",
    )

    def found(self, user: User, namespace: str, number: int | None = None) -> dict[str, Any]:
        """The workspace, or one revision of its budget."""
        if number is None:
            return {"workspace": selectors.workspace_for(user, namespace)}
        return {"revision": selectors.revision_for(user, namespace, number)}

    def shown(
        self, user: User, made: BudgetRevision, namespace: str, number: int | None = None
    ) -> Response:
        """A revision as it is now, with the budget's ETag."""
        found = selectors.revision_for(user, namespace, made.number)
        is_new = self.action in ("create", "restore")
        code = MADE if made.state == BudgetRevision.State.LIVE else ASKED
        return _told(RevisionSerializer, found, found.budget, code if is_new else None)

    @answers(takes=DraftInput, needs_version=True, code=(MADE, ASKED))
    def create(self, user: User, workspace: Workspace, draft: Any, **given: Any) -> Any:
        """201: in force, inside the account's envelope. 202: waits for an admin's decision."""
        drawn = draft(workspace.home_flavor.slug)
        return promises.revise_budget(user, workspace=workspace, draft=drawn, **given)

    @answers()
    def retrieve(self, user: User, revision: BudgetRevision) -> Any:
        return _told(RevisionSerializer, revision, revision.budget)


class DiffView(View):
    """Two revisions side by side."""

    @answers(DiffSerializer)
    def get(self, user: User, namespace: str, number: int, other: int) -> Any:
        before = selectors.revision_for(user, namespace, number)
        after = selectors.revision_for(user, namespace, other)
        rows = selectors.revision_diff(before, after)
        return {"before": number, "after": other, "rows": rows}


class StopView(BudgetPart):
    """Hold (running jobs finish), hold and drain (they are stopped), or none."""

    @answers(BudgetSerializer, takes=StopInput, needs_version=True)
    def put(self, user: User, workspace: Workspace, **given: Any) -> Any:
        promises.set_stop_policy(user, budget=workspace.budget, **given)
        # Read again: the generation rises in the database, beside the locked row.
        fresh = selectors.workspace_for(user, workspace.namespace)
        return budget_answer(user, fresh.budget)


class DatingBackView(BudgetPart):
    """A revision that begins in the past: one of finance proposes it, another approves."""

    @answers(ProposalSerializer, takes=DraftInput, needs_version=True, code=ASKED)
    def post(self, user: User, workspace: Workspace, draft: Any, **given: Any) -> Any:
        drawn = draft(workspace.home_flavor.slug)
        return promises.propose_dating_back(user, workspace=workspace, draft=drawn, **given)


class ReallocationView(BudgetPart):
    """Splits the committed GPUs over the workers again; GET shows it first. For admins."""

    @answers(MovesSerializer)
    def get(self, user: User, workspace: Workspace) -> Any:
        seen = selectors.preview_reallocation(user, workspace)
        return {
            "moves": [
                {"flavor": flavor, "cluster": cluster, "before": before, "after": after}
                for flavor, workers in seen.items()
                for cluster, (before, after) in workers.items()
            ]
        }

    @answers(PartsSerializer, takes=ReasonInput, needs_version=True)
    def post(self, user: User, **given: Any) -> Any:
        made = promises.reallocate(user, **given)
        return {
            "parts": [
                {"flavor": flavor, "cluster": cluster, "committed": gpus}
                for flavor, workers in made.items()
                for cluster, gpus in workers.items()
            ]
        }


class RequestsView(View):
    """Requests that wait and that the caller sees, oldest first, each with why it waits."""

    @answers(order=OLDEST, shape=RevisionSerializer, query=(OpenApiParameter("workspace", str),))
    def get(self, user: User) -> Any:
        rows = selectors.requests_waiting(user)
        if namespace := self.request.query_params.get("workspace"):
            rows = [row for row in rows if row.budget.workspace.namespace == namespace]
        return sorted(rows, key=lambda row: row.pk)
