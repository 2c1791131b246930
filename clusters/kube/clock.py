"""The time on a cluster, as its answers show it; this machine's wall clock is not trusted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from clusters.kube.pulse import Pulse

NOISE: Final = timedelta(seconds=1.5)
"""A Date header has whole seconds, and the answer was under way: less than this is no skew."""

MOST: Final = timedelta(days=1)
"""A clock further off than this is told, and not followed: it is broken, or means harm."""


class ClusterClock:
    """The cluster's clock; safe to read from any thread.

    What is written to a cluster, and what is billed, goes by one clock, whichever machine of the
    portal worked at the time. A wall clock that is set while a shift runs is noticed at once,
    beside the steady clock, and not only with the next answer.

    Args:
        wall: This machine's clock, UTC.
        pulse: Whose answers carry the cluster's time; None: the machine's clock holds.
        steady: Seconds of a clock that nobody sets.
    """

    def __init__(
        self,
        wall: Callable[[], datetime],
        *,
        pulse: Pulse | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._pulse, self._steady = wall, pulse, steady
        self._lock = threading.Lock()
        self._probe: object = None
        self._last: tuple[datetime, float] | None = None
        self.skew = timedelta()

    def now(self) -> datetime:
        """UTC, aware, by the cluster's clock."""
        with self._lock:
            wall = self._wall()
            if self._pulse is not None:
                self._follow(wall, self._pulse)
            return wall + self.skew if abs(self.skew) <= MOST else wall

    def _follow(self, wall: datetime, pulse: Pulse) -> None:
        steady = self._steady()
        if self._last is not None:
            passed = timedelta(seconds=steady - self._last[1])
            leap = wall - self._last[0] - passed
            if abs(leap) > NOISE:
                self.skew -= leap
        self._last = wall, steady
        probe, age = pulse.last_probe, pulse.age()
        if probe is None or probe is self._probe or probe.server_time is None or age is None:
            return
        self._probe = probe
        skew = probe.server_time - (wall - timedelta(seconds=age))
        is_noise = abs(skew) <= NOISE
        self.skew = timedelta() if is_noise else timedelta(seconds=round(skew.total_seconds()))
