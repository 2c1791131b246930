"""What all shapes share: strict bodies, instants with a zone, whole GPUs, the error answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime
from enum import StrEnum
from functools import cache, partial
from types import NoneType, UnionType, new_class
from typing import Any, ClassVar, Generic, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from django.db.models import Model, QuerySet
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from budgets import selectors
from budgets.errors import Fault
from budgets.models import Account, Flavor, User, Workspace
from budgets.plan import MOST_GPUS
from budgets.units import YEARS
from portal.bounds import REASON, check_year

MOST_ROWS = 100
RecordT = TypeVar("RecordT")
RowT = TypeVar("RowT", bound=Model)


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
        "naive": "The time has no time zone. Write it like 2026-03-01T00:00:00Z.",
        "fraction": "Give whole seconds, without a fraction.",
        "overflow": f"That is no time of UTC. Give a year from {YEARS[0]} to {YEARS[-1]}.",
    }
    default_validators = [check_year]

    def enforce_timezone(self, value: datetime) -> datetime:
        if value.tzinfo is None:
            self.fail("naive")
        if value.microsecond:
            self.fail("fraction")
        return super().enforce_timezone(value)


class DayField(serializers.DateField):
    """A day, ISO 8601."""

    default_validators = [check_year]


class GpusField(serializers.IntegerField):
    """Whole GPUs, as a JSON number; ``"16"`` and ``16.0`` are not numbers of GPUs."""

    default_error_messages = {"invalid": "Write whole GPUs as a number, such as 16."}

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=0, max_value=MOST_GPUS, **options)

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return int(super().to_internal_value(data))


class NamedField(serializers.CharField):
    """The name of something that the caller sees → its row; an unknown name is a fault."""

    default_error_messages = {"unknown": "There is no {field} {name!r}."}

    def __init__(self, rows: Callable[[User], QuerySet[Any]], key: str, **options: Any) -> None:
        super().__init__(**options)
        self.rows, self.key = rows, key

    def run_validation(self, data: Any = serializers.empty) -> Any:
        name = super().run_validation(data)
        if name is None:
            return None
        found = self.rows(self.context["user"]).filter(**{self.key: name}).first()
        if found is None:
            self.fail("unknown", field=self.field_name, name=name)
        return found


def _workspaces(user: User) -> QuerySet[Workspace]:
    return selectors.visible_workspaces(user, include_archived=True)


account_field = partial(NamedField, selectors.visible_accounts, "slug", max_length=63)
flavor_field = partial(NamedField, selectors.visible_flavors, "slug", max_length=63)
workspace_field = partial(NamedField, _workspaces, "namespace", max_length=63)


class OfType:
    """A shape of one type: ``Shape[Type]`` is its base, with the type as ``record``."""

    record: ClassVar[type]

    def __class_getitem__(cls, record: type) -> type:
        return new_class(cls.__name__, (cls,), exec_body=lambda body: body.update(record=record))


class RowSerializer(OfType, serializers.ModelSerializer[Any], Generic[RowT]):
    """An answer that tells columns of a row; of what the row belongs to, the name.

    Attributes:
        told: The names of its fields, in their order.
    """

    told: ClassVar[str]
    names: ClassVar[Mapping[type, str]] = {
        Account: "slug",
        Flavor: "slug",
        User: "username",
        Workspace: "namespace",
    }

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "told" in vars(cls):
            meta: Any = type("Meta", (), {"model": cls.record, "fields": cls.told.split()})
            cls.Meta = meta  # type: ignore[misc]  # what the declaration stands for

    def build_relational_field(self, field_name: str, relation_info: Any) -> Any:
        name = self.names.get(relation_info.related_model)
        if name is None:
            return super().build_relational_field(field_name, relation_info)
        told = {"source": f"{field_name}.{name}", "read_only": True}
        return serializers.CharField, told | (
            {"allow_null": True} if relation_info.model_field.null else {}
        )


class RecordSerializer(OfType, serializers.Serializer[Any], Generic[RecordT]):
    """An answer that tells a record, a dataclass or a struct, field by field.

    A field that is declared goes before the record's own. Every field is there in every answer, so
    the document calls all of them required. A field that a record gets anew is in the API at once,
    and is seen in the golden document; what is not for it stands in ``without``.

    Attributes:
        without: Fields that the API does not tell.
    """

    without: ClassVar[Collection[str]] = ()
    _shapes: ClassVar[dict[type, type[RecordSerializer[Any]]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "record" not in vars(cls):
            cls._shapes.setdefault(cls.record, cls)

    def get_fields(self) -> dict[str, Any]:
        declared: dict[str, Any] = super().get_fields()
        told = {
            name: declared.pop(name, None) or self._field_of(hint)
            for name, hint in _hints(self.record).items()
            if name not in self.without
        }
        return {**told, **declared}

    @classmethod
    def _field_of(cls, hint: Any, **options: Any) -> serializers.Field[Any, Any, Any, Any]:
        """The field for values of a type.

        Raises:
            TypeError: Nobody has said how such values are told.
        """
        arguments = get_args(hint)
        kind = get_origin(hint) or hint
        if kind in (Union, UnionType):
            (one,) = (part for part in arguments if part is not NoneType)
            return cls._field_of(one, **options, allow_null=True)
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return serializers.ChoiceField([item.value for item in kind], **options)
        if isinstance(kind, type) and issubclass(kind, Mapping):
            if arguments[1] is not Any:
                options["child"] = cls._field_of(arguments[1])
            return serializers.DictField(**options)
        if isinstance(kind, type) and issubclass(kind, Sequence) and kind is not str:
            if arguments[0] in cls._shapes:
                return cls._shapes[arguments[0]](many=True, **options)
            return serializers.ListField(child=cls._field_of(arguments[0]), **options)
        if kind in cls._shapes:
            return cls._shapes[kind](**options)
        if kind is str:
            return serializers.CharField(allow_blank=True, **options)
        if kind is Any:
            return serializers.JSONField(allow_null=True, **options)
        if kind in PLAIN_FIELDS:
            return PLAIN_FIELDS[kind](**options)
        raise TypeError(f"{cls.__name__} does not say how {hint} is told")


PLAIN_FIELDS: Mapping[type, type[serializers.Field[Any, Any, Any, Any]]] = {
    bool: serializers.BooleanField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    date: serializers.DateField,
    datetime: serializers.DateTimeField,
    UUID: serializers.UUIDField,
}


@cache
def _hints(record: type) -> Mapping[str, Any]:
    """The fields of a record with their types, in order."""
    return {
        name: hint
        for name, hint in get_type_hints(record).items()
        if get_origin(hint) is not ClassVar
    }


def beside(record: Any, **more: Any) -> dict[str, Any]:
    """The fields of a dataclass, with more beside them or in their place."""
    return {field.name: getattr(record, field.name) for field in fields(record)} | more


class FaultSerializer(RecordSerializer[Fault]):
    """One thing that is wrong; ``field`` is a dotted path, empty for the whole."""


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

    reason = serializers.CharField(**REASON)


def name_of(source: str) -> serializers.CharField:
    """The name behind a relation that may be empty."""
    return serializers.CharField(source=source, read_only=True, allow_null=True)
