"""What lies in Redis is numbers and texts as JSON: who may write to it cannot run code here."""

from __future__ import annotations

import json
from typing import Any, Final

from budgets.texts import read_json

LONGEST: Final = 64 * 1024
"""Bytes of one value that are read."""


class JsonSerializer:
    """For Django's cache, in place of pickle."""

    def dumps(self, value: Any) -> bytes:
        """A value that is stored.

        Raises:
            TypeError: it is none that JSON can hold.
        """
        return json.dumps(value).encode()

    def loads(self, data: bytes) -> Any:
        """The value, or None for what nobody here can have written."""
        try:
            return read_json(data) if len(data) <= LONGEST else None
        except ValueError:
            return None
