"""Records that repeat what a row says."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

R = TypeVar("R")


def record_of(kind: type[R], /, *sources: object, **given: object) -> R:
    """A record of a dataclass: its fields are what is given, else what a source has of that name.

    Args:
        kind: The dataclass; a field with a default may be lacking in the sources.
        sources: Usually a model's row; of two that have a field the last one tells it.
        given: Fields that the sources have not, or have otherwise.

    Raises:
        TypeError: the sources lack a field.
    """
    known: dict[str, Any] = dict(given)
    for field in fields(kind):  # type: ignore[arg-type]  # a dataclass, as the docstring asks
        for source in sources if field.name not in known else ():
            if (value := getattr(source, field.name, MISSING)) is not MISSING:
                known[field.name] = value
    return kind(**known)
