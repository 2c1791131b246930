"""Celery's beat, for machines whose wall clock somebody sets.

Celery keeps when a task was sent last, and when it is due, by the wall clock: one that was ahead
for a moment and is set back leaves tasks waiting until that time comes round again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import structlog
from celery.beat import PersistentScheduler

log = structlog.stdlib.get_logger(__name__)

LEAP_S: Final = 5.0


class SteadyScheduler(PersistentScheduler):  # type: ignore[misc]  # celery has no types
    """Moves what it remembers along with a wall clock that was set, or that it finds set back."""

    steady: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._ahead_s: float | None = None
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """As Celery's, after a look at the clocks."""
        now = self.app.now()
        ahead_s = now.timestamp() - self.steady()
        leap_s = 0.0 if self._ahead_s is None else ahead_s - self._ahead_s
        if self._ahead_s is None or abs(leap_s) > LEAP_S:
            self._ahead_s = ahead_s
            self._move(timedelta(seconds=leap_s), latest=now)
        return super().tick(*args, **kwargs)

    def _move(self, leap: timedelta, *, latest: Any) -> None:
        for entry in self.schedule.values():
            last = entry.last_run_at
            if last is not None:
                entry.last_run_at = min(last + leap, latest.astimezone(last.tzinfo))
        # What is due when is worked out anew from these times.
        self._heap = None
        if leap:
            log.warning("clock_was_set", by_s=round(leap.total_seconds()))
