"""Whole numbers that strangers write into labels, annotations and fields: bounded and total."""

from __future__ import annotations

from typing import Any, Final

LARGEST: Final = 2**63 - 1
"""What a field of Kubernetes can hold."""
_DIGITS: Final = len(str(LARGEST))


def whole_number(text: Any, *, least: int = 0, most: int = LARGEST) -> int | None:
    """A whole number in decimal digits; None for everything else. O(1), however long the text is.

    Args:
        text: What was found: usually a string, or a number of a field.
        least: Bounds, both included.
        most: At most :data:`LARGEST`.
    """
    if isinstance(text, str):
        digits = text.removeprefix("-")
        if len(digits) > _DIGITS or not (digits.isascii() and digits.isdecimal()):
            return None
        number = int(text)
    elif isinstance(text, int) and not isinstance(text, bool):
        number = text
    else:
        return None
    return number if least <= number <= most else None
