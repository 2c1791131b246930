"""Documents that somebody made heavy are kept as packed text, and opened where they are read.

A megabyte of JSON of the smallest parts takes twenty times as much once it is read, and whoever may
create jobs may create hundreds of them. What is light, as nearly all is, stays as it was read.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec.json import encode

HEAVY: Final = 32 * 1024
"""Bytes of JSON from which on a part of a document is packed."""
_OPEN_AT_ONCE: Final = 4


def packed(document: dict[str, Any]) -> dict[str, Any]:
    """The same document, its heavy parts packed: those of its own and of its metadata."""
    if isinstance(document, Packed) or _size(document) <= HEAVY:
        return document
    parts = _parts(document)
    metadata = _parts(document.get("metadata"))
    if not parts and not metadata:
        return document
    # What says who it is stays in reach.
    parts.pop("metadata", None)
    found = Packed(document, parts)
    if metadata:
        found["metadata"] = Packed(document["metadata"], metadata)
    return found


def _parts(document: Any) -> dict[str, bytes]:
    """Those that are heavy, packed; none of what cannot be written as it was read."""
    found = {}
    for key, value in document.items() if isinstance(document, dict) else ():
        if isinstance(value, dict | list) and value and not isinstance(value, Packed):
            text = _text(value)
            if len(text) > HEAVY:
                found[key] = zlib.compress(text, 1)
    return found


def _text(value: Any) -> bytes:
    """As JSON; empty where it cannot be written as it was read."""
    try:
        return encode(value)
    except (OverflowError, RecursionError, TypeError, ValueError):
        return b""


def _size(document: dict[str, Any]) -> int:
    """Bytes of its JSON; more than any limit where only its parts can be written."""
    return len(_text(document)) or HEAVY + 1


@lru_cache(_OPEN_AT_ONCE)
def _opened(part: bytes) -> Any:
    """A part as it was; who decides about an object looks at the same one several times."""
    return json.loads(zlib.decompress(part))


class Packed(dict[str, Any]):
    """A document with packed parts, to be read as any other; what is written there is not packed.

    Args:
        document: As it was read.
        parts: Those that are heavy, packed.
    """

    __slots__ = ("_parts",)

    def __init__(self, document: Mapping[str, Any], parts: dict[str, bytes]) -> None:
        super().__init__({key: None if key in parts else document[key] for key in document})
        self._parts = parts

    def __getitem__(self, key: str) -> Any:
        part = self._parts.get(key)
        return super().__getitem__(key) if part is None else _opened(part)

    def __setitem__(self, key: str, value: Any) -> None:
        self._parts.pop(key, None)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._parts.pop(key, None)

    def __iter__(self) -> Iterator[str]:
        # One's own, so that dict(…) and {**…} ask for each value.
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        """A part, opened; the default where it is not there."""
        if key not in self:
            return default
        return self[key]

    def pop(self, key: str, *default: Any) -> Any:
        """Take a part out, opened."""
        if key not in self:
            return super().pop(key, *default)
        found = self[key]
        del self[key]
        return found

    def setdefault(self, key: str, default: Any = None) -> Any:
        """A part, opened, that is there from now on."""
        if key not in self:
            self[key] = default
        return self[key]

    def items(self) -> Any:
        """Keys with their parts, opened."""
        return [(key, self[key]) for key in self]

    def values(self) -> Any:
        """All parts, opened."""
        return [self[key] for key in self]

    def copy(self) -> dict[str, Any]:
        """A document that is not packed."""
        return dict(self)

    def __eq__(self, other: object) -> bool:
        return dict(self) == (dict(other) if isinstance(other, Packed) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    __hash__ = None  # as of a dict
