"""When to look at something again: one time for each key."""

from __future__ import annotations

import heapq
from datetime import datetime


class Alarms:
    """The earliest time that was asked for, by key. Not for several threads."""

    def __init__(self) -> None:
        self._times: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def set(self, key: str, at: datetime) -> None:
        """Ask for a look at a key; an earlier wish stays."""
        known = self._times.get(key)
        if known is None or at < known:
            self._times[key] = at
            heapq.heappush(self._heap, (at, key))

    def due(self, now: datetime) -> list[str]:
        """Keys whose time has come; each is told once."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._times.get(key) == at:
                del self._times[key]
                found.append(key)
        return found
