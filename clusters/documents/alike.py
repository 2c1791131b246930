"""Parts that documents have alike are kept once: jobs of one script have one template."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from clusters.documents.packed import json_of

SMALL: Final = 128
LARGE: Final = 8 * 1024
"""Bytes of JSON of the parts that are kept once."""
MOST: Final = 256
"""So many different ones are remembered: those that were seen last."""


class Alike:
    """Parts of specs that were seen lately; for one thread."""

    def __init__(self) -> None:
        self._parts: OrderedDict[bytes, Any] = OrderedDict()

    def of(self, document: dict[str, Any]) -> dict[str, Any]:
        """The same document; each part of its spec that was seen before is that very one."""
        spec = document.get("spec")
        if type(spec) is dict:  # a packed one opens its parts where they are read
            for key, part in spec.items():
                if isinstance(part, dict | list) and part:
                    spec[key] = self._known(part)
        return document

    def _known(self, part: Any) -> Any:
        text = json_of(part)
        if not SMALL <= len(text) <= LARGE:
            return part
        known = self._parts.get(text)
        if known is None:
            self._parts[text] = part
            if len(self._parts) > MOST:
                self._parts.popitem(last=False)
            return part
        self._parts.move_to_end(text)
        return known
