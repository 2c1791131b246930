"""Actions on jobs, and windows of maintenance."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from clusters import selectors as seen
from clusters import services as enforcement
from portal.api.serializers import acting as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import View, actor, admin, checked, flavor_named, named

ASKED = status.HTTP_202_ACCEPTED


class JobActionsView(View):
    """Cancel, put back or delete jobs; all of them, or none."""

    @extend_schema(request=shapes.JobActionsInput, responses={202: shapes.JobActionsSerializer})
    def post(self, request: Request) -> Response:
        given = checked(shapes.JobActionsInput, request)
        jobs = [(job["cluster"], job["uid"]) for job in given.pop("jobs")]
        made = enforcement.act_on_workloads(actor(request), jobs=jobs, **given)
        return Response(shapes.JobActionsSerializer({"actions": made}).data, status=ASKED)


class JobActionView(View):
    """What was asked of one job, newest first; or ask."""

    @extend_schema(responses=shapes.JobActionsSerializer)
    def get(self, request: Request, slug: str, uid: str) -> Response:
        seen.workload_detail(actor(request), slug, uid)
        found = seen.actions_on(actor(request), slug, uid)
        return Response(shapes.JobActionsSerializer({"actions": found}).data)

    @extend_schema(request=shapes.JobActionInput, responses={202: shapes.JobActionSerializer})
    def post(self, request: Request, slug: str, uid: str) -> Response:
        user = actor(request)
        seen.workload_detail(user, slug, uid)
        given = checked(shapes.JobActionInput, request)
        (made,) = enforcement.act_on_workloads(user, jobs=[(slug, uid)], **given)
        return Response(shapes.JobActionSerializer(made).data, status=ASKED)


class WithdrawJobActionView(View):
    """Takes back what was not carried out yet."""

    @extend_schema(request=None, responses=shapes.JobActionSerializer)
    def post(self, request: Request, pk: int) -> Response:
        user = actor(request)
        done = enforcement.withdraw_action(user, action=seen.action_for(user, pk))
        return Response(shapes.JobActionSerializer(done).data)


class MaintenanceView(View):
    """Windows of maintenance; owners see those that touch a floor of theirs."""

    @extend_schema(responses=shapes.MaintenanceListSerializer)
    def get(self, request: Request) -> Response:
        rows = seen.visible_windows(actor(request))
        return Response(shapes.MaintenanceListSerializer({"results": rows}).data)

    @extend_schema(request=shapes.MaintenanceInput, responses={201: shapes.MaintenanceSerializer})
    def post(self, request: Request) -> Response:
        user = admin(request)
        made = enforcement.plan_maintenance(user, **_place(request, shapes.MaintenanceInput))
        return _window(request, made.pk, status.HTTP_201_CREATED)


class PreviewMaintenanceView(View):
    """What a window would mean to whom; nothing is saved."""

    only_reads = True

    @extend_schema(
        request=shapes.MaintenancePlaceInput, responses=shapes.MaintenancePreviewSerializer
    )
    def post(self, request: Request) -> Response:
        user = admin(request)
        found = enforcement.preview_maintenance(
            user, **_place(request, shapes.MaintenancePlaceInput)
        )
        answer = {
            "gpu_seconds": found.gpu_seconds,
            "rows": found.rows,
            "elsewhere": found.elsewhere,
            "overlapping": [window.pk for window in found.overlapping],
        }
        return Response(shapes.MaintenancePreviewSerializer(answer).data)


class MaintenanceWindowView(View):
    """One window."""

    @extend_schema(responses=shapes.MaintenanceSerializer)
    def get(self, request: Request, pk: int) -> Response:
        return _window(request, pk)


class EndMaintenanceView(View):
    """Ends a window before its time, or calls off one that has not begun."""

    @extend_schema(request=ReasonInput, responses=shapes.MaintenanceSerializer)
    def post(self, request: Request, pk: int) -> Response:
        user = actor(request)
        found = seen.window_for(user, pk)
        enforcement.end_maintenance(user, window=found, **checked(ReasonInput, request))
        return _window(request, pk)


def _place(request: Request, shape: Any) -> dict[str, Any]:
    """The body with its names looked up."""
    user, given = actor(request), checked(shape, request)
    if given["cluster"] is not None:
        given["cluster"] = named(seen.visible_clusters(user), "cluster", "slug", given["cluster"])
    if given["flavor"] is not None:
        given["flavor"] = flavor_named(user, given["flavor"])
    for name in ("starts_at", "ends_at"):
        if given[name] is not None:
            given[name] = given[name].astimezone(UTC)
    return given


def _window(request: Request, pk: int, code: int = status.HTTP_200_OK) -> Response:
    found = seen.window_for(actor(request), pk)
    return Response(shapes.MaintenanceSerializer(found).data, status=code)
