"""Exports: what is asked for, and how far it is."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from budgets.exports import FORMATS
from budgets.models.exports import DATASETS, Export, ExportPlan
from budgets.selectors.exports.wishes import Preview
from portal.api.serializers.base import MOST_ROWS, RecordSerializer, RowSerializer, Strict


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
        child=serializers.CharField(max_length=80), max_length=MOST_ROWS, default=list
    )


class ExportInput(WishInput):
    """One month as a file; columns left out or empty: all of the data set."""

    period = serializers.CharField(max_length=7)


class ExportPlanInput(WishInput):
    """A file that is made again and again: after each close, or each day."""

    name = serializers.CharField(max_length=80)
    every = serializers.ChoiceField(choices=ExportPlan.Every.choices)


class ExportPlanSerializer(RowSerializer[ExportPlan]):
    """A plan; ``problem`` says why its newest run came to nothing."""

    columns = serializers.ListField(child=serializers.CharField())
    told = [
        "id", "name", "every", "dataset", "format", "columns", "zone", "account", "workspace",
        "problem", "created_at",
    ]  # fmt: skip


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
    told = [
        "id", "operation", "dataset", "format", "columns", "period", "zone", "account",
        "workspace", "state", "step", "done", "total", "message", "file_name", "content_type",
        "is_ready", "rows", "size", "sha256", "about", "created_at", "finished_at",
        "expires_at", "removed_at",
    ]  # fmt: skip

    @extend_schema_field(AboutSerializer(allow_null=True))
    def get_about(self, row: Export) -> dict[str, Any] | None:
        """Null while there is no file."""
        return row.about or None
