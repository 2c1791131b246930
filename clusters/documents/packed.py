"""Documents that somebody made heavy are kept as packed text, and opened where they are read.

A megabyte of JSON of the smallest parts takes twenty times as much once it is read, and whoever may
create jobs may create hundreds of them. What is light, as nearly all is, stays as it was read.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

from msgspec.json import encode

HEAVY: Final = 32 * 1024
"""Bytes of JSON from which on a part of a document is packed."""
_OPEN_AT_ONCE: Final = 4
T = TypeVar("T")


def packed(document: dict[str, Any]) -> dict[str, Any]:
    """The same document, its heavy parts packed: those of its own, its metadata and its spec.

    What says who it is and whether it waits stays in reach: of its metadata, and of a spec whose
    other parts are light together, the heavy parts alone are packed.
    """
    if isinstance(document, Packed) or _size(document) <= HEAVY:
        return document
    inner = {
        "metadata": _parts(document.get("metadata")),
        "spec": _heaviest(document.get("spec")),
    }
    rest = {k: v for k, v in document.items() if k != "metadata" and not inner.get(k)}
    parts = _parts(rest)
    if not parts and not any(inner.values()):
        return document
    found = Packed(document, parts)
    for key, heavy in inner.items():
        if heavy:
            found[key] = Packed(document[key], heavy)
    return found


def _heaviest(document: Any) -> dict[str, bytes]:
    """Its heavy parts, packed, if all others together are light."""
    parts = _parts(document)
    is_rest_light = parts and _size({k: v for k, v in document.items() if k not in parts}) <= HEAVY
    return parts if is_rest_light else {}


def worked_out(document: Mapping[str, Any], work: Callable[[Mapping[str, Any]], T]) -> T:
    """What comes out of a document; of a packed one it is worked out once."""
    if not isinstance(document, Packed):
        return work(document)
    if work not in document.known:
        document.known[work] = work(document)
    found: T = document.known[work]
    return found


def _parts(document: Any) -> dict[str, bytes]:
    """Those that are heavy, packed; none of what cannot be written as it was read."""
    found = {}
    for key, value in document.items() if isinstance(document, dict) else ():
        if isinstance(value, dict | list) and value and not isinstance(value, Packed):
            text = json_of(value)
            if len(text) > HEAVY:
                found[key] = zlib.compress(text, 1)
    return found


def json_of(value: Any) -> bytes:
    """A part as JSON; empty where it cannot be written as it was read."""
    try:
        return encode(value)
    except (OverflowError, RecursionError, TypeError, ValueError):
        return b""


def _size(document: dict[str, Any]) -> int:
    """Bytes of its JSON; more than any limit where only its parts can be written."""
    return len(json_of(document)) or HEAVY + 1


@lru_cache(_OPEN_AT_ONCE)
def _opened(part: bytes) -> Any:
    """A part as it was; who decides about an object looks at the same one several times."""
    return json.loads(zlib.decompress(part))


class Packed(dict[str, Any]):
    """A document with packed parts, to be read as any other; what is written there is not packed.

    Args:
        document: As it was read.
        parts: Those that are heavy, packed.

    Attributes:
        held: Whatever counts its memory, for as long as somebody has it.
    """

    __slots__ = ("_parts", "held", "known")

    def __init__(self, document: Mapping[str, Any], parts: dict[str, bytes]) -> None:
        super().__init__({key: None if key in parts else document[key] for key in document})
        self._parts = parts
        self.held: object = None
        self.known: dict[Callable[[Mapping[str, Any]], Any], Any] = {}

    def __sizeof__(self) -> int:
        return super().__sizeof__() + sum(map(len, self._parts.values()))

    def __getitem__(self, key: str) -> Any:
        part = self._parts.get(key)
        return super().__getitem__(key) if part is None else _opened(part)

    def __setitem__(self, key: str, value: Any) -> None:
        self._parts.pop(key, None)
        self.known.clear()
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.known.clear()
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
