"""Exports: ask for a file, see how far it is, fetch it."""

from __future__ import annotations

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from budgets.selectors.exports import listing as reads
from budgets.selectors.exports.wishes import preview
from budgets.services.exports import plans
from budgets.services.exports.requests import request_export
from budgets.services.exports.runs import spool_path
from portal.api.paging import CREATED, page
from portal.api.schema import PAGED, paged
from portal.api.serializers import exports as shapes
from portal.api.views.base import View, actor, checked
from portal.downloads import send_file

RANGE = OpenApiParameter(
    "Range", str, OpenApiParameter.HEADER, description="bytes=FIRST-, to go on with a download."
)


class ExportsView(View):
    """One's own exports, the newest first; POST asks for one and answers at once."""

    query = PAGED

    @extend_schema(responses=paged(shapes.ExportSerializer))
    def get(self, request: Request) -> Response:
        rows = reads.visible_exports(actor(request))
        return page(request, rows, shapes.ExportSerializer, CREATED)

    @extend_schema(request=shapes.ExportInput, responses={202: shapes.ExportSerializer})
    def post(self, request: Request) -> Response:
        given = checked(shapes.ExportInput, request)
        export = request_export(actor(request), **given)
        address = reverse("api:export", args=[export.pk], request=request)
        return Response(
            shapes.ExportSerializer(export).data,
            status=status.HTTP_202_ACCEPTED,
            headers={"Location": address},
        )


class ExportPreviewView(View):
    """The first rows of what a file would hold; nothing is written."""

    @extend_schema(request=shapes.ExportInput, responses=shapes.ExportPreviewSerializer)
    def post(self, request: Request) -> Response:
        found = preview(actor(request), **checked(shapes.ExportInput, request))
        return Response(shapes.ExportPreviewSerializer(found).data)


class ExportPlansView(View):
    """One's own files that are made again and again, the newest first."""

    query = PAGED

    @extend_schema(responses=paged(shapes.ExportPlanSerializer))
    def get(self, request: Request) -> Response:
        rows = reads.visible_export_plans(actor(request))
        return page(request, rows, shapes.ExportPlanSerializer, CREATED)

    @extend_schema(request=shapes.ExportPlanInput, responses={201: shapes.ExportPlanSerializer})
    def post(self, request: Request) -> Response:
        given = checked(shapes.ExportPlanInput, request)
        plan = plans.save_export_plan(actor(request), **given)
        made = status.HTTP_201_CREATED
        return Response(shapes.ExportPlanSerializer(plan).data, status=made)


class ExportPlanView(View):
    """One plan."""

    @extend_schema(responses=shapes.ExportPlanSerializer)
    def get(self, request: Request, pk: int) -> Response:
        plan = reads.visible_export_plans(actor(request)).get(pk=pk)
        return Response(shapes.ExportPlanSerializer(plan).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        user = actor(request)
        plans.remove_export_plan(user, plan=reads.visible_export_plans(user).get(pk=pk))
        return Response(status=status.HTTP_204_NO_CONTENT)


class ExportView(View):
    """One export: its state, and once it is ready what the file says of itself."""

    @extend_schema(responses=shapes.ExportSerializer)
    def get(self, request: Request, pk: int) -> Response:
        return Response(shapes.ExportSerializer(reads.export_for(actor(request), pk)).data)


class ExportFileView(View):
    """The file; a Range goes on where a download stopped, If-Range makes sure it is the same."""

    @extend_schema(
        parameters=[RANGE],
        responses={
            (200, "application/octet-stream"): OpenApiTypes.BINARY,
            (206, "application/octet-stream"): OpenApiTypes.BINARY,
        },
    )
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        export = reads.export_file_for(actor(request), pk)
        return send_file(
            request._request,
            spool_path(export),
            name=export.file_name,
            content_type=export.content_type,
            etag=export.sha256,
        )
