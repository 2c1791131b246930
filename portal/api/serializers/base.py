"""What all shapes share: strict bodies, instants with a zone, whole GPUs, the error answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

MOST_GPUS = 1_000_000
MOST_ROWS = 100


class Strict(serializers.Serializer[Any]):
    """A body in which a name that nobody knows is a fault beside that name."""

    def to_internal_value(self, data: Any) -> Any:
        strangers = {}
        if isinstance(data, Mapping):
            strangers = {
                str(name)[:80]: [ErrorDetail("There is no such field here.", "unknown_field")]
                for name in list(data)[:MOST_ROWS]
                if name not in self.fields
            }
        try:
            given = super().to_internal_value(data)
        except ValidationError as error:
            faults = error.detail if isinstance(error.detail, dict) else {"": error.detail}
            raise ValidationError({**faults, **strangers}) from None
        if strangers:
            raise ValidationError(strangers)
        return given


class InstantField(serializers.DateTimeField):
    """ISO 8601 with a zone, whole seconds; handed on in UTC."""

    default_error_messages = {
        "naive": "The time has no zone; write it like 2026-03-01T00:00:00Z.",
        "fraction": "Promises know whole seconds only.",
    }

    def enforce_timezone(self, value: datetime) -> datetime:
        if value.tzinfo is None:
            self.fail("naive")
        if value.microsecond:
            self.fail("fraction")
        return super().enforce_timezone(value)


class GpusField(serializers.IntegerField):
    """Whole GPUs, as a JSON number; ``"16"`` and ``16.0`` are not numbers of GPUs."""

    default_error_messages = {"invalid": "Write whole GPUs as a number, such as 16."}

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=0, max_value=MOST_GPUS, **options)

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return int(super().to_internal_value(data))


class FaultSerializer(serializers.Serializer[Any]):
    """One thing that is wrong; ``field`` is a dotted path, empty for the whole."""

    field = serializers.CharField(allow_blank=True)
    code = serializers.CharField()
    message = serializers.CharField()


class ProblemSerializer(serializers.Serializer[Any]):
    """Every error answer; ``faults`` only with 422, the last three only with 412."""

    code = serializers.CharField()
    message = serializers.CharField()
    faults = FaultSerializer(many=True, required=False)
    current_version = serializers.IntegerField(required=False)
    changed_by = serializers.CharField(required=False)
    changed_at = serializers.DateTimeField(required=False)


class ReasonInput(Strict):
    """Why; kept in the audit log."""

    reason = serializers.CharField(max_length=500)


def name_of(source: str) -> serializers.CharField:
    """The name behind a relation that may be empty."""
    return serializers.CharField(source=source, read_only=True, allow_null=True)
