"""Enumerations whose values are stored, each with the words that people read.

Pure, so that the core and the tables have one: Django takes ``choices`` as of its own.
"""

from __future__ import annotations

from enum import EnumMeta, StrEnum
from typing import Any, Self


class _Listed(EnumMeta):
    """Lists an enumeration's members as Django's own do."""

    @property
    def choices(cls) -> list[tuple[str, str]]:
        """Values with their words, in order."""
        rows: list[Any] = list(cls.__members__.values())
        return [(row.value, row.label) for row in rows]

    @property
    def values(cls) -> list[str]:
        """Just the values."""
        return [value for value, _ in cls.choices]


class Choice(StrEnum, metaclass=_Listed):
    """A member is its value, with a ``label`` for people: those given, or its name."""

    label: str

    def __new__(cls, value: str, label: str = "") -> Self:
        """Make the member of a value and its label."""
        row = str.__new__(cls, value)
        row._value_, row.label = value, label or value.replace("_", " ").title()
        return row
