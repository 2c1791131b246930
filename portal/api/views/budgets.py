"""Budgets: read with ETag, revise with If-Match, preview, requests, history."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import selectors
from budgets import services as promises
from budgets.models import Budget, BudgetRevision, User, Workspace
from clusters import selectors as cluster_selectors
from portal.api.paging import (
    NUMBER,
    OLDEST,
    etag_of,
    expected_version,
    is_unchanged,
    listed,
)
from portal.api.schema import PAGED, paged
from portal.api.serializers import budgets as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import View, actor, checked

POST = frozenset({"POST"})


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


class BudgetPart(View):
    """A part of the budget of one visible workspace."""

    def workspace(self, request: Request, namespace: str) -> Workspace:
        return selectors.workspace_for(actor(request), namespace)

    def answer(
        self, request: Request, namespace: str, number: int, code: int = status.HTTP_200_OK
    ) -> Response:
        """A revision as it is now, with the budget's ETag."""
        found = selectors.revision_for(actor(request), namespace, number)
        return Response(
            shapes.RevisionSerializer(found).data,
            status=code,
            headers={"ETag": etag_of(found.budget)},
        )

    def draft(self, request: Request) -> shapes.DraftInput:
        body = shapes.DraftInput(data=request.data)
        body.is_valid(raise_exception=True)
        return body


class BudgetView(BudgetPart):
    """The budget of a workspace; 304 when If-None-Match has its ETag."""

    @extend_schema(responses={200: shapes.BudgetSerializer, 304: None})
    def get(self, request: Request, namespace: str) -> Response:
        workspace = self.workspace(request, namespace)
        etag = etag_of(workspace.budget)
        if is_unchanged(request, etag):
            return Response(status=status.HTTP_304_NOT_MODIFIED, headers={"ETag": etag})
        return budget_answer(actor(request), workspace.budget)


class RevisionsView(BudgetPart):
    """All revisions, newest first."""

    query = PAGED
    needs_version = POST

    @extend_schema(responses=paged(shapes.RevisionSerializer))
    def get(self, request: Request, namespace: str) -> Response:
        workspace = self.workspace(request, namespace)
        rows = selectors.budget_history(actor(request), workspace)
        return listed(request, rows, shapes.RevisionSerializer, NUMBER)

    @extend_schema(
        request=shapes.DraftInput,
        responses={
            201: shapes.RevisionSerializer,
            202: shapes.RevisionSerializer,
        },
    )
    def post(self, request: Request, namespace: str) -> Response:
        """201: live inside the account's envelope. 202: waits for an admin's decision."""
        workspace = self.workspace(request, namespace)
        version = expected_version(request)
        body = self.draft(request)
        made = promises.revise_budget(
            actor(request),
            workspace=workspace,
            draft=body.draft(workspace.home_flavor.slug),
            expected_version=version,
        )
        is_live = made.state == BudgetRevision.State.LIVE
        code = status.HTTP_201_CREATED if is_live else status.HTTP_202_ACCEPTED
        return self.answer(request, namespace, made.number, code)


class PreviewView(BudgetPart):
    """What a draft would do; writes nothing."""

    only_reads = True

    @extend_schema(request=shapes.DraftInput, responses={200: shapes.PreviewSerializer})
    def post(self, request: Request, namespace: str) -> Response:
        workspace = self.workspace(request, namespace)
        body = self.draft(request)
        draft = body.draft(workspace.home_flavor.slug)
        seen = selectors.preview_revision(actor(request), workspace, draft)
        answer = {
            "state": seen.state,
            "faults": seen.faults,
            "warnings": seen.warnings,
            "request_reasons": seen.request_reasons,
            "reach": seen.reach,
            "largest_job": seen.largest_job,
            "impact": seen.impact,
            "manifests": self.manifests(seen),
        }
        return Response(shapes.PreviewSerializer(answer).data)

    def manifests(self, seen: selectors.RevisionPreview) -> list[cluster_selectors.ClusterChanges]:
        """Cluster by cluster; none while a fault stands in the way."""
        if seen.faults:
            return []
        return cluster_selectors.preview_manifests(seen.promises_before, seen.promises_after)


class RevisionView(BudgetPart):
    """One revision."""

    @extend_schema(responses=shapes.RevisionSerializer)
    def get(self, request: Request, namespace: str, number: int) -> Response:
        return self.answer(request, namespace, number)


class DiffView(BudgetPart):
    """Two revisions side by side."""

    @extend_schema(responses=shapes.DiffSerializer)
    def get(self, request: Request, namespace: str, number: int, other: int) -> Response:
        user = actor(request)
        before = selectors.revision_for(user, namespace, number)
        after = selectors.revision_for(user, namespace, other)
        rows = selectors.revision_diff(before, after)
        answer = {"before": number, "after": other, "rows": rows}
        return Response(shapes.DiffSerializer(answer).data)


class DecideView(BudgetPart):
    """An admin's decision on a request."""

    needs_version = POST

    @extend_schema(request=shapes.DecisionInput, responses={200: shapes.RevisionSerializer})
    def post(self, request: Request, namespace: str, number: int) -> Response:
        revision = selectors.revision_for(actor(request), namespace, number)
        version = expected_version(request)
        given = checked(shapes.DecisionInput, request)
        promises.decide_request(
            actor(request), revision=revision, expected_version=version, **given
        )
        return self.answer(request, namespace, number)


class WithdrawView(BudgetPart):
    """Takes back a request, or a revision that has not begun."""

    needs_version = POST

    @extend_schema(request=shapes.WithdrawInput, responses={200: shapes.RevisionSerializer})
    def post(self, request: Request, namespace: str, number: int) -> Response:
        revision = selectors.revision_for(actor(request), namespace, number)
        version = expected_version(request)
        given = checked(shapes.WithdrawInput, request)
        promises.withdraw_request(
            actor(request), revision=revision, expected_version=version, **given
        )
        return self.answer(request, namespace, number)


class RestoreView(BudgetPart):
    """Saves an old revision's lines and preference again, as a new revision."""

    needs_version = POST

    @extend_schema(
        request=ReasonInput,
        responses={201: shapes.RevisionSerializer, 202: shapes.RevisionSerializer},
    )
    def post(self, request: Request, namespace: str, number: int) -> Response:
        revision = selectors.revision_for(actor(request), namespace, number)
        version = expected_version(request)
        given = checked(ReasonInput, request)
        made = promises.restore_revision(
            actor(request), revision=revision, reason=given["reason"], expected_version=version
        )
        is_live = made.state == BudgetRevision.State.LIVE
        code = status.HTTP_201_CREATED if is_live else status.HTTP_202_ACCEPTED
        return self.answer(request, namespace, made.number, code)


class StopView(BudgetPart):
    """Hold (running jobs finish), hold and drain (they are stopped), or none."""

    needs_version = frozenset({"PUT"})

    @extend_schema(request=shapes.StopInput, responses=shapes.BudgetSerializer)
    def put(self, request: Request, namespace: str) -> Response:
        workspace = self.workspace(request, namespace)
        version = expected_version(request)
        given = checked(shapes.StopInput, request)
        promises.set_stop_policy(
            actor(request), budget=workspace.budget, expected_version=version, **given
        )
        # Read again: the generation rises in the database, beside the locked row.
        fresh = self.workspace(request, namespace)
        return budget_answer(actor(request), fresh.budget)


class ReallocationView(BudgetPart):
    """Lays the floor over the workers afresh; GET shows it first. For admins."""

    needs_version = POST

    @extend_schema(responses=shapes.MovesSerializer)
    def get(self, request: Request, namespace: str) -> Response:
        workspace = self.workspace(request, namespace)
        seen = selectors.preview_reallocation(actor(request), workspace)
        moves = [
            {"flavor": flavor, "cluster": cluster, "before": before, "after": after}
            for flavor, workers in seen.items()
            for cluster, (before, after) in workers.items()
        ]
        return Response(shapes.MovesSerializer({"moves": moves}).data)

    @extend_schema(request=ReasonInput, responses={200: shapes.PartsSerializer})
    def post(self, request: Request, namespace: str) -> Response:
        workspace = self.workspace(request, namespace)
        version = expected_version(request)
        given = checked(ReasonInput, request)
        made = promises.reallocate(
            actor(request), workspace=workspace, expected_version=version, **given
        )
        parts = [
            {"flavor": flavor, "cluster": cluster, "committed": gpus}
            for flavor, workers in made.items()
            for cluster, gpus in workers.items()
        ]
        return Response(shapes.PartsSerializer({"parts": parts}).data)


class RequestsView(View):
    """Requests that wait and that the caller sees, oldest first, each with why it waits."""

    query = (*PAGED, OpenApiParameter("workspace", str))

    @extend_schema(responses=paged(shapes.RevisionSerializer))
    def get(self, request: Request) -> Response:
        rows = selectors.requests_waiting(actor(request))
        if namespace := request.query_params.get("workspace"):
            rows = [row for row in rows if row.budget.workspace.namespace == namespace]
        rows.sort(key=lambda row: row.pk)
        return listed(request, rows, shapes.RevisionSerializer, OLDEST)
