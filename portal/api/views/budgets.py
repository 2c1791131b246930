"""Budgets: read with ETag, revise with If-Match, preview, requests, history."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponseBase
from django.utils.cache import get_conditional_response
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import selectors
from budgets import services as promises
from budgets.models import Budget, BudgetRevision, User, Workspace
from clusters import selectors as cluster_selectors
from portal.api.paging import NUMBER, OLDEST, etag_of
from portal.api.serializers import budgets as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import ASKED, MADE, POST, View, actor, answers, deed, pages


def budget_answer(user: User, budget: Budget) -> Response:
    """The budget with its ETag."""
    namespace = budget.workspace.namespace
    seen = (
        selectors.revision_for(user, namespace, budget.in_force.number) if budget.in_force else None
    )
    answer = {
        "workspace": {"namespace": namespace},
        "version": budget.version,
        "generation": budget.generation,
        "stop_policy": budget.stop_policy,
        "stop_reason": budget.stop_reason,
        "in_force": seen,
    }
    return Response(shapes.BudgetSerializer(answer).data, headers={"ETag": etag_of(budget)})


def revision_answer(user: User, made: BudgetRevision, namespace: str, code: int) -> Response:
    """A revision as it is now, with the budget's ETag."""
    found = selectors.revision_for(user, namespace, made.number)
    told = shapes.RevisionSerializer(found).data
    return Response(told, status=code, headers={"ETag": etag_of(found.budget)})


def code_of(made: BudgetRevision) -> int:
    """201: live inside the account's envelope. 202: waits for an admin's decision."""
    return MADE if made.state == BudgetRevision.State.LIVE else ASKED


class BudgetPart(View):
    """A part of the budget of one visible workspace."""

    def found(self, user: User, namespace: str) -> dict[str, Any]:
        return {"workspace": selectors.workspace_for(user, namespace)}


class BudgetView(BudgetPart):
    """The budget of a workspace; 304 when If-None-Match has its ETag."""

    @extend_schema(responses={200: shapes.BudgetSerializer, 304: None})
    def get(self, request: Request, namespace: str) -> HttpResponseBase:
        budget = selectors.workspace_for(actor(request), namespace).budget
        etag = etag_of(budget)
        unread = Response(headers={"ETag": etag})
        unchanged = get_conditional_response(request, etag=etag, response=unread)
        if unchanged is unread or unchanged is None:
            return budget_answer(actor(request), budget)
        return unchanged


class RevisionsView(BudgetPart):
    """All revisions, newest first."""

    needs_version = POST

    @pages(shapes.RevisionSerializer, NUMBER)
    def get(self, user: User, workspace: Workspace) -> Any:
        return selectors.budget_history(user, workspace)

    @answers(shapes.RevisionSerializer, takes=shapes.DraftInput, code=(MADE, ASKED))
    def post(self, user: User, workspace: Workspace, draft: Any, expected_version: int) -> Any:
        """201: live inside the account's envelope. 202: waits for an admin's decision."""
        made = promises.revise_budget(
            user,
            workspace=workspace,
            draft=draft(workspace.home_flavor.slug),
            expected_version=expected_version,
        )
        return revision_answer(user, made, workspace.namespace, code_of(made))


class PreviewView(BudgetPart):
    """What a draft would do; writes nothing."""

    only_reads = True

    @answers(shapes.PreviewSerializer, takes=shapes.DraftInput)
    def post(self, user: User, workspace: Workspace, draft: Any) -> Any:
        seen = selectors.preview_revision(user, workspace, draft(workspace.home_flavor.slug))
        return {
            "state": seen.state,
            "faults": seen.faults,
            "warnings": seen.warnings,
            "request_reasons": seen.request_reasons,
            "reach": seen.reach,
            "largest_job": seen.largest_job,
            "impact": seen.impact,
            "manifests": self.manifests(seen),
        }

    def manifests(self, seen: selectors.RevisionPreview) -> list[cluster_selectors.ClusterChanges]:
        """Cluster by cluster; none while a fault stands in the way."""
        if seen.faults:
            return []
        return cluster_selectors.preview_manifests(seen.promises_before, seen.promises_after)


class RevisionPart(View):
    """One revision; a deed is answered with what became of it."""

    def found(self, user: User, namespace: str, number: int) -> dict[str, Any]:
        return {"revision": selectors.revision_for(user, namespace, number)}

    def shown(self, user: User, made: BudgetRevision, namespace: str, number: int) -> Response:
        return revision_answer(user, made, namespace, status.HTTP_200_OK)


class RevisionView(RevisionPart):
    """One revision."""

    @answers(shapes.RevisionSerializer)
    def get(self, user: User, revision: BudgetRevision) -> Any:
        told = shapes.RevisionSerializer(revision).data
        return Response(told, headers={"ETag": etag_of(revision.budget)})


class DiffView(View):
    """Two revisions side by side."""

    @answers(shapes.DiffSerializer)
    def get(self, user: User, namespace: str, number: int, other: int) -> Any:
        before = selectors.revision_for(user, namespace, number)
        after = selectors.revision_for(user, namespace, other)
        rows = selectors.revision_diff(before, after)
        return {"before": number, "after": other, "rows": rows}


class DecideView(RevisionPart):
    """An admin's decision on a request."""

    needs_version = POST
    post = deed(promises.decide_request, shapes.RevisionSerializer, takes=shapes.DecisionInput)


class WithdrawView(RevisionPart):
    """Takes back a request, or a revision that has not begun."""

    needs_version = POST
    post = deed(promises.withdraw_request, shapes.RevisionSerializer, takes=shapes.WithdrawInput)


class RestoreView(RevisionPart):
    """Saves an old revision's lines and preference again, as a new revision."""

    needs_version = POST
    post = deed(
        promises.restore_revision,
        shapes.RevisionSerializer,
        takes=ReasonInput,
        code=(MADE, ASKED),
    )

    def shown(self, user: User, made: BudgetRevision, namespace: str, number: int) -> Response:
        return revision_answer(user, made, namespace, code_of(made))


class StopView(BudgetPart):
    """Hold (running jobs finish), hold and drain (they are stopped), or none."""

    needs_version = frozenset({"PUT"})

    @answers(shapes.BudgetSerializer, takes=shapes.StopInput)
    def put(self, user: User, workspace: Workspace, **given: Any) -> Any:
        promises.set_stop_policy(user, budget=workspace.budget, **given)
        # Read again: the generation rises in the database, beside the locked row.
        fresh = selectors.workspace_for(user, workspace.namespace)
        return budget_answer(user, fresh.budget)


class ReallocationView(BudgetPart):
    """Lays the floor over the workers afresh; GET shows it first. For admins."""

    needs_version = POST

    @answers(shapes.MovesSerializer)
    def get(self, user: User, workspace: Workspace) -> Any:
        seen = selectors.preview_reallocation(user, workspace)
        return {
            "moves": [
                {"flavor": flavor, "cluster": cluster, "before": before, "after": after}
                for flavor, workers in seen.items()
                for cluster, (before, after) in workers.items()
            ]
        }

    @answers(shapes.PartsSerializer, takes=ReasonInput)
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

    query = (OpenApiParameter("workspace", str),)

    @pages(shapes.RevisionSerializer, OLDEST)
    def get(self, user: User) -> Any:
        rows = selectors.requests_waiting(user)
        if namespace := self.request.query_params.get("workspace"):
            rows = [row for row in rows if row.budget.workspace.namespace == namespace]
        return sorted(rows, key=lambda row: row.pk)
