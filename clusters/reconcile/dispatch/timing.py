"""What the dispatch shift remembers for a while: failures and blocked places.

All of it may be lost; a new shift finds it out again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_FIRST_S, _CAP_S = 0.1, 5.0
BLOCKED_S: Final = 20.0

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
        self._known: dict[str, dict[str, tuple[str, bool, float]]] = {}

    def add(self, key: str, worker: str, why: str, *, is_foreign: bool = False) -> None:
        """A worker takes the workload no more for a while; not for somebody else's object there."""
        known = self._known.setdefault(key, {})
        was_foreign = worker in known and known[worker][1]
        known[worker] = why, is_foreign or was_foreign, self._monotonic() + BLOCKED_S

    def reasons(self, key: str) -> dict[str, str]:
        """Why, by worker."""
        return {worker: why for worker, (why, _, _) in self._known.get(key, {}).items()}

    def foreign(self, key: str) -> frozenset[str]:
        """Workers where somebody else's object has the workload's name."""
        known = self._known.get(key, {}).items()
        return frozenset(worker for worker, (_, is_foreign, _) in known if is_foreign)

    def due(self) -> list[str]:
        """Workloads that may be tried again somewhere; they are blocked there no longer."""
        now = self._monotonic()
        found = []
        for key, workers in list(self._known.items()):
            left = {worker: block for worker, block in workers.items() if block[2] > now}
            if len(left) < len(workers):
                found.append(key)
                self._known[key] = left
                if not left:
                    del self._known[key]
        return found

    def forget(self, key: str) -> None:
        """A workload is gone."""
        self._known.pop(key, None)
