"""Exports: ask for a file, see how far it is, fetch it."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from budgets.models import Export, User
from budgets.selectors.exports import listing as reads
from budgets.selectors.exports.wishes import preview
from budgets.services.exports import plans
from budgets.services.exports.requests import request_export
from budgets.services.exports.runs import spool_path
from portal.api.paging import CREATED
from portal.api.serializers import exports as shapes
from portal.api.views.base import ASKED, DONE, MADE, View, actor, deed, pages, shows
from portal.downloads import send_file

RANGE = OpenApiParameter(
    "Range", str, OpenApiParameter.HEADER, description="bytes=FIRST-, to go on with a download."
)


class ExportsView(View):
    """One's own exports, the newest first; POST asks for one and answers at once."""

    post = deed(request_export, shapes.ExportSerializer, takes=shapes.ExportInput, code=ASKED)

    @pages(shapes.ExportSerializer, CREATED)
    def get(self, user: User) -> Any:
        return reads.visible_exports(user)

    def shown(self, user: User, made: Export) -> Response:
        address = reverse("api:export", args=[made.pk], request=self.request)
        told = shapes.ExportSerializer(made).data
        return Response(told, status=ASKED, headers={"Location": address})


class ExportPreviewView(View):
    """The first rows of what a file would hold; nothing is written."""

    post = deed(preview, shapes.ExportPreviewSerializer, takes=shapes.ExportInput)


class ExportPlansView(View):
    """One's own files that are made again and again, the newest first."""

    post = deed(
        plans.save_export_plan,
        shapes.ExportPlanSerializer,
        takes=shapes.ExportPlanInput,
        code=MADE,
    )

    @pages(shapes.ExportPlanSerializer, CREATED)
    def get(self, user: User) -> Any:
        return reads.visible_export_plans(user)


class ExportPlanView(View):
    """One plan."""

    get = shows(shapes.ExportPlanSerializer)
    delete = deed(plans.remove_export_plan, None, code=DONE)

    def found(self, user: User, pk: int) -> dict[str, Any]:
        return {"plan": reads.visible_export_plans(user).get(pk=pk)}


class ExportView(View):
    """One export: its state, and once it is ready what the file says of itself."""

    get = shows(shapes.ExportSerializer)

    def found(self, user: User, pk: int) -> dict[str, Any]:
        return {"export": reads.export_for(user, pk)}


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
