"""What the dispatch shift remembers for a while: failures, blocked places, things people were told.

All of it may be lost; a new shift finds it out again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_FIRST_S, _CAP_S = 0.1, 5.0
_TOLD_LIMIT: Final = 20_000

Place = tuple[str, str]


class Holds:
    """Waits that grow with each failure of a place, (key, cluster)."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failures: dict[Place, int] = {}
        self._until: dict[Place, float] = {}

    def fail(self, place: Place, *, is_race: bool = False) -> None:
        """Note a failure; the first lost race costs no wait."""
        count = self._failures[place] = self._failures.get(place, 0) + 1
        delay = 0.0 if is_race and count == 1 else min(_CAP_S, _FIRST_S * 2 ** min(count, 12))
        self._until[place] = self._monotonic() + delay

    def clear(self, place: Place) -> None:
        self._failures.pop(place, None)
        self._until.pop(place, None)

    def is_held(self, place: Place) -> bool:
        return place in self._until

    def due(self) -> list[Place]:
        """Places whose wait is over; they are held no longer."""
        now = self._monotonic()
        places = [place for place, until in self._until.items() if until <= now]
        for place in places:
            del self._until[place]
        return places


class Blocks:
    """Why a workload may not go to a worker for now."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._known: dict[Place, tuple[str, float]] = {}

    def add(self, place: Place, why: str, *, seconds: float) -> None:
        self._known[place] = why, self._monotonic() + seconds

    def reasons(self) -> dict[Place, str]:
        return {place: why for place, (why, _) in self._known.items()}

    def due(self) -> list[Place]:
        """Places that may be tried again; they are blocked no longer."""
        now = self._monotonic()
        places = [place for place, (_, until) in self._known.items() if until <= now]
        for place in places:
            del self._known[place]
        return places

    def forget(self, key: str) -> None:
        """A workload is gone or starts over."""
        for place in [place for place in self._known if place[0] == key]:
            del self._known[place]


class Told:
    """Says of each text about a workload whether it is new."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], None] = {}

    def is_new(self, key: str, text: str) -> bool:
        return (key, text) not in self._texts

    def note(self, key: str, text: str) -> bool:
        """Remember a text; whether it was new."""
        is_new = self.is_new(key, text)
        self._texts[key, text] = None
        if len(self._texts) > _TOLD_LIMIT:
            for old in list(self._texts)[: _TOLD_LIMIT // 2]:
                del self._texts[old]
        return is_new
