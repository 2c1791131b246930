"""Records that repeat what a row says."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

R = TypeVar("R")


def record_of(kind: type[R], source: object, /, **given: object) -> R:
    """A record of a dataclass: its fields are what is given, else what the source has of that name.

    Args:
        kind: The dataclass; a field with a default may be lacking in the source.
        source: Usually a model's row.
        given: Fields that the source has not, or has otherwise.

    Raises:
        AttributeError: the source lacks a field.
    """
    known: dict[str, Any] = dict(given)
    for field in fields(kind):  # type: ignore[arg-type]  # a dataclass, as the docstring asks
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        if field.name not in known and (not has_default or hasattr(source, field.name)):
            known[field.name] = getattr(source, field.name)
    return kind(**known)
