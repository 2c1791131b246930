"""Exports: ask for a file, see how far it is, fetch it."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from budgets.exports import FORMATS
from budgets.models import User
from budgets.models.exports import DATASETS, Export, ExportPlan
from budgets.selectors.exports import listing as reads
from budgets.selectors.exports.wishes import Preview, preview
from budgets.services.exports import plans
from budgets.services.exports.plans import request_export
from portal.api.paging import CREATED
from portal.api.shapes import MOST_ROWS, RecordSerializer, RowSerializer, Strict
from portal.api.views import ASKED, DONE, MADE, Noun, View, actor, deed, finds, lists, shows
from portal.downloads import send_file

RANGE = OpenApiParameter(
    "Range", str, OpenApiParameter.HEADER, description="bytes=FIRST-, to go on with a download."
)


class WishInput(Strict):
    """What a file holds; columns left out or empty: all of the data set."""

    dataset = serializers.ChoiceField(choices=DATASETS)
    format = serializers.ChoiceField(
        choices=[(shape.name, shape.title) for shape in FORMATS.values()]
    )
    zone = serializers.CharField(max_length=64, default="UTC")
    account = serializers.CharField(max_length=30, default="", allow_blank=True)
    workspace = serializers.CharField(max_length=63, default="", allow_blank=True)
    columns = serializers.ListField(
        child=serializers.CharField(max_length=330), max_length=MOST_ROWS, default=list
    )


class ExportInput(WishInput):
    """One month as a file; columns left out or empty: all of the data set."""

    period = serializers.CharField(max_length=7)


class ExportPlanInput(WishInput):
    """A file that is made regularly: after every close, or every day."""

    name = serializers.CharField(max_length=80)
    every = serializers.ChoiceField(choices=ExportPlan.Every.choices)


class ExportPlanSerializer(RowSerializer[ExportPlan]):
    """A plan; ``problem`` says why its newest run came to nothing."""

    columns = serializers.ListField(child=serializers.CharField())
    told = "id name every dataset format columns zone account workspace problem created_at"


class ExportPreviewSerializer(RecordSerializer[Preview]):
    """The first rows as texts; ``facts``: hour facts that the file would be made of."""


class AboutSerializer(serializers.Serializer[Any]):
    """What a file says of itself."""

    title = serializers.CharField()
    made_at = serializers.DateTimeField()
    filter = serializers.DictField(child=serializers.CharField())
    time_zone = serializers.CharField()
    complete_until = serializers.DateTimeField(allow_null=True)
    late_clusters = serializers.ListField(child=serializers.CharField())
    rate_cards = serializers.ListField(child=serializers.CharField())
    currency = serializers.CharField(allow_blank=True)
    rows = serializers.IntegerField()
    notes = serializers.ListField(child=serializers.CharField())
    columns = serializers.ListField(child=serializers.CharField())


class ExportSerializer(RowSerializer[Export]):
    """One export; ``about`` is null until the file is ready, ``done`` of ``total`` hour facts."""

    state = serializers.CharField(source="operation.state")
    step = serializers.CharField(source="operation.step")
    done = serializers.IntegerField(source="operation.done")
    total = serializers.IntegerField(source="operation.total")
    message = serializers.CharField(source="operation.message")
    operation = serializers.UUIDField(source="operation_id")
    columns = serializers.ListField(child=serializers.CharField())
    about = serializers.SerializerMethodField()
    told = (
        "id operation dataset format columns period zone account workspace state step done "
        "total message file_name content_type is_ready rows size sha256 about created_at "
        "finished_at expires_at removed_at"
    )

    @extend_schema_field(AboutSerializer(allow_null=True))
    def get_about(self, row: Export) -> dict[str, Any] | None:
        """Null while there is no file."""
        return row.about or None


class Exports(Noun):
    """One's own exports, the newest first; POST asks for one and answers at once."""

    each = "One export: its state and, once it is ready, what the file says about itself."
    shape = ExportSerializer
    found = finds("export", reads.export_for)
    list = lists(reads.visible_exports, CREATED)
    create = deed(request_export, takes=ExportInput, code=ASKED)
    retrieve = shows()
    preview = deed(
        preview,
        ExportPreviewSerializer,
        takes=ExportInput,
        is_of_all=True,
        text="The first rows of what a file would hold; nothing is written.",
    )

    def shown(self, user: User, made: Any) -> Any:
        """An export with its address; a preview as it is."""
        if not isinstance(made, Export):
            return made
        address = reverse("api:export-detail", args=[made.pk], request=self.request)
        told = ExportSerializer(made).data
        return Response(told, status=ASKED, headers={"Location": address})


class ExportPlans(Noun):
    """One's own files that are made regularly, the newest first."""

    each = "One plan."
    shape = ExportPlanSerializer
    found = finds("plan", lambda user, pk: reads.visible_export_plans(user).get(pk=pk))
    list = lists(reads.visible_export_plans, CREATED)
    create = deed(plans.save_export_plan, takes=ExportPlanInput, code=MADE)
    retrieve = shows()
    destroy = deed(plans.remove_export_plan, code=DONE)


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
        return send_file(request._request, reads.export_file_for(actor(request), pk))
