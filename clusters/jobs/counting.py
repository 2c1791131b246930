"""Numbers of pods and seconds that tenants write: what to count with, and what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from clusters.documents.numbers import whole_number

MOST: Final = (1 << 31) - 1
"""What a count of Kubernetes can be."""
_SHOWN: Final = 24


def count(value: Any, default: int = 1) -> int:
    """A count; the default for whatever is none."""
    found = whole_number(value, most=MOST)
    return default if found is None else found


def mark_of(marks: Mapping[str, Any], key: str) -> tuple[str, Any]:
    """A label or annotation that should be a number, by its key; words there say nothing."""
    text = marks.get(key)
    return key, text if isinstance(text, str) and text.isdecimal() else None


def fault_of(found: Iterable[tuple[str, Any]], *, most: int = MOST) -> str:
    """What is wrong with the first unusable number, a sentence; empty when none is.

    Args:
        found: Places and what stands there; None where nothing does.
        most: The largest number that is taken.
    """
    for place, value in found:
        if value is not None and whole_number(value, most=most) is None:
            return f"{place} is {_shown(value)}, and has to be a whole number up to {most}."
    return ""


def _shown(value: Any) -> str:
    if isinstance(value, int) and abs(value) > MOST:
        return "too large a number"  # digits of such a number take long to write
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
