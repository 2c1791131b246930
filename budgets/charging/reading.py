"""Reads plain JSON values with their place, and gathers everything that is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from budgets.errors import Fault

_MISSING = object()
_PRICE_DIGITS = 8
_LARGEST_COUNT = 10**9
_FIRST_YEAR, _LAST_YEAR = 1970, 9000


class Reader:
    """Reads one JSON object; what is wrong goes to ``faults`` and a stand-in is returned.

    Args:
        value: What should be an object.
        path: Where it stands, such as ``revisions.0``; empty for the whole.
        faults: Shared by all readers of one record.
    """

    def __init__(self, value: Any, *, path: str, faults: list[Fault]) -> None:
        self.path = path
        self.faults = faults
        self._object: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        # What is missing in something that is no object anyway was told with that.
        self._tells_missing = isinstance(value, Mapping)
        if value is not _MISSING and not self._tells_missing:
            self.fault("", "not_an_object", f"{_shown(value)} is no JSON object; write {{…}}")

    def fault(self, key: str, code: str, message: str) -> None:
        """Record that something is wrong with ``key``."""
        self.faults.append(Fault(self.place(key), code, message))

    def place(self, key: str) -> str:
        """Return the dotted path of ``key``."""
        return ".".join(part for part in (self.path, key) if part)

    def has(self, key: str) -> bool:
        """Whether the key is there with something in it."""
        return self._object.get(key) is not None

    def text(self, key: str, *, default: str | None = None) -> str:
        """Return a text that is not empty."""
        value = self._get(key, default)
        if isinstance(value, str) and value.strip():
            return value
        if value is not _MISSING:
            self.fault(key, "not_a_text", f"{_shown(value)} is no text; write a name in quotes")
        return ""

    def known(self, key: str, names: Collection[str], *, what: str) -> str:
        """Return a text that is one of ``names``."""
        name = self.text(key)
        if name and name not in names:
            self.fault(key, "unknown", f"{_shown(name)} is no known {what}; {_choices(names)}")
        return name

    def count(self, key: str) -> int:
        """Return a whole number, 0 or more."""
        return self.whole(self._get(key), key)

    def count_or_none(self, key: str) -> int | None:
        """Return a whole number, 0 or more; null or no key means None."""
        return self.count(key) if self.has(key) else None

    def whole(self, value: Any, key: str) -> int:
        """Return ``value`` as a whole number, 0 or more."""
        if value is _MISSING:
            return 0
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if is_whole and 0 <= value <= _LARGEST_COUNT:
            return int(value)
        self.fault(key, "not_a_count", f"{_shown(value)} is no whole number from 0 to a billion")
        return 0

    def counts(self, key: str) -> dict[str, int]:
        """Return an object of whole numbers; no key means empty."""
        if not self.has(key):
            return {}
        inner = Reader(self._object[key], path=self.place(key), faults=self.faults)
        return {name: inner.whole(value, name) for name, value in inner._object.items()}

    def amount(self, key: str, *, most: Decimal | None = None) -> Decimal:
        """Return a decimal that is written as a text, 0 or more, at most 8 decimals."""
        value = self._get(key)
        if value is _MISSING:
            return Decimal(0)
        try:
            found = Decimal(value) if isinstance(value, str) else None
        except InvalidOperation:
            found = None
        if found is None or not found.is_finite():
            self.fault(key, "not_an_amount", f'{_shown(value)} is no amount; write it like "2.50"')
            return Decimal(0)
        exponent = found.normalize().as_tuple().exponent
        if isinstance(exponent, int) and exponent < -_PRICE_DIGITS:
            self.fault(key, "too_precise", f"{value} has more than {_PRICE_DIGITS} decimals")
        if found < 0 or found > (most if most is not None else _LARGEST_COUNT):
            limit = f" to {most}" if most is not None else " up to a billion"
            self.fault(key, "out_of_range", f"{value} is not within 0{limit}")
            return Decimal(0)
        return found

    def moment(self, key: str) -> datetime | None:
        """Return a UTC time of whole seconds, or None after a fault."""
        value = self._get(key)
        if value is _MISSING:
            return None
        try:
            found = datetime.fromisoformat(value) if isinstance(value, str) else None
        except ValueError:
            found = None
        wish = "write it like 2026-05-04T10:00:00Z"
        if found is None:
            self.fault(key, "not_a_time", f"{_shown(value)} is no time; {wish}")
        elif found.tzinfo is None:
            self.fault(key, "no_time_zone", f"{value} has no time zone; {wish}")
        elif found.microsecond:
            self.fault(key, "not_whole", f"{value} has a fraction of a second; {wish}")
        elif not _FIRST_YEAR <= found.year <= _LAST_YEAR:
            self.fault(key, "out_of_range", f"{value} is not within {_FIRST_YEAR} to {_LAST_YEAR}")
        else:
            return found.astimezone(UTC)
        return None

    def object(self, key: str) -> Reader:
        """Return a reader of an object."""
        return Reader(self._get(key), path=self.place(key), faults=self.faults)

    def rows(self, key: str, *, required: bool = True) -> Iterator[Reader]:
        """Yield a reader for every object of a list."""
        if not required and not self.has(key):
            return
        for at, row in enumerate(self._list(key)):
            yield Reader(row, path=self.place(f"{key}.{at}"), faults=self.faults)

    def texts(self, key: str, names: Collection[str], *, what: str) -> tuple[str, ...]:
        """Return a list of texts that are all of ``names``."""
        rows = {str(at): row for at, row in enumerate(self._list(key))}
        inner = Reader(rows, path=self.place(key), faults=self.faults)
        return tuple(inner.known(at, names, what=what) for at in rows)

    def _list(self, key: str) -> list[Any]:
        value = self._get(key)
        if isinstance(value, list):
            return value
        if value is not _MISSING:
            self.fault(key, "not_a_list", f"{_shown(value)} is no list; write […]")
        return []

    def _get(self, key: str, default: Any = None) -> Any:
        if key in self._object:
            return self._object[key]
        if default is not None:
            return default
        if self._tells_missing:
            self.fault(key, "missing", f"the key {key!r} is missing; add it")
        return _MISSING


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def _choices(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:8])
    return f"there are {shown}" if shown else "there is none"
