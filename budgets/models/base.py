"""What several tables share: immutable slugs, insert-only rows, dated rows."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q

account_slug = RegexValidator(
    r"^[a-z]([a-z0-9]{0,29})$",
    "Use 1 to 30 lower-case letters and digits, beginning with a letter; no hyphen, because "
    "the namespace of a workspace is ACCOUNT-WORKSPACE.",
)
dns_label = RegexValidator(
    r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$",
    "Use 1 to 40 lower-case letters, digits and hyphens, beginning and ending with a letter "
    "or digit.",
)


Row = TypeVar("Row", bound=models.Model)


def optional(
    table: type[Row], *, related_name: str = "+", **options: Any
) -> models.ForeignKey[Row | None, Row | None]:
    """A column that may name a row of another table, which cannot go while it does."""
    options |= {"on_delete": models.PROTECT, "null": True, "blank": True}
    return models.ForeignKey(table, related_name=related_name, **options)


class ImmutableError(ValidationError):
    """A row or field that never changes was about to change."""


class InsertOnlyQuerySet(models.QuerySet[Any]):
    """Refuses the bulk ways around an insert-only table."""

    def update(self, **kwargs: Any) -> int:
        """Refuse."""
        raise ImmutableError(f"{self.model.__name__} rows are never changed; add a new row.")

    def delete(self) -> Any:
        """Refuse."""
        raise ImmutableError(f"{self.model.__name__} rows are never deleted.")

    def retire(self) -> int:
        """Take rows of a :class:`Retiring` table away, for who made sure of what they say."""
        if not issubclass(self.model, Retiring):
            self.delete()
        return int(self._raw_delete(self.db))


class InsertOnly(models.Model):
    """Rows that are written once; a correction is a further row."""

    objects = InsertOnlyQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write a new row; refuse to change one."""
        if not self._state.adding:
            raise ImmutableError(f"{type(self).__name__} rows are never changed; add a new row.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse."""
        raise ImmutableError(f"{type(self).__name__} rows are never deleted.")


class Retiring(InsertOnly):
    """Rows that are written once, and taken away when nothing can come of them any more."""

    class Meta:
        abstract = True


class FrozenFields(models.Model):
    """Refuses to change the fields named in ``frozen_fields`` once the row exists."""

    frozen_fields: tuple[str, ...] = ("slug",)

    class Meta:
        abstract = True

    @classmethod
    def from_db(cls, db: Any, field_names: Any, values: Any, **kwargs: Any) -> Any:
        """Remember what is frozen as it was loaded."""
        instance = super().from_db(db, field_names, values, **kwargs)
        instance._freeze()
        return instance

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        """Load again and remember again."""
        super().refresh_from_db(*args, **kwargs)
        self._freeze()

    def _freeze(self) -> None:
        """Remember the values that stand in the database, of the fields that were loaded."""
        self._frozen = {
            name: self.__dict__[attname]
            for name, attname in self._attnames().items()
            if attname in self.__dict__
        }

    @classmethod
    @cache
    def _attnames(cls) -> dict[str, str]:
        return {
            field.name: field.attname
            for field in cls._meta.concrete_fields
            if field.name in cls.frozen_fields
        }

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write the row unless a frozen field differs from what was loaded."""
        attnames = self._attnames()
        changed = {
            name: ImmutableError(
                f"{name} of {type(self).__name__} {old!r} is never changed; archive it and "
                "create a new one."
            )
            for name, old in getattr(self, "_frozen", {}).items()
            if getattr(self, attnames[name]) != old
        }
        if changed:
            raise ValidationError(changed)
        super().save(*args, **kwargs)
        self._freeze()


class Kept(FrozenFields):
    """What is put away and never deleted; people know it by its name."""

    name: models.CharField[str, str]
    archived_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name


class Dated(models.Model):
    """In force in ``[valid_from, valid_until)``; no end means until something newer begins."""

    valid_from = models.DateTimeField()
    valid_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


def ends_later(name: str) -> models.CheckConstraint:
    """The rule of a dated table: what ends does so after it began."""
    condition = Q(valid_until__isnull=True) | Q(valid_until__gt=F("valid_from"))
    return models.CheckConstraint(name=name, condition=condition)
