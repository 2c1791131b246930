"""Is the cluster still there: one small request now and then, shared by all watches of a cluster.

A watch on a quiet cluster says nothing for minutes, and a cluster that froze says nothing either.
The pulse tells them apart within 8 seconds, and ends the watches of a cluster that stopped
answering. Its answers also show the time on the cluster; this machine's wall clock is not trusted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from clusters.errors import ClusterError, Terminal
from clusters.kube.client import KubeClient, Probe


@dataclass(frozen=True, slots=True)
class PulseSettings:
    """Seconds between requests, seconds that one may take, and failures in a row that mean lost."""

    every_s: float = 2.5
    timeout_s: float = 2.5
    failures: int = 2


class Pulse:
    """Probes one cluster until told to stop; safe to read from other threads.

    Attributes:
        last_answer: When the cluster answered last, in seconds of the steady clock.
        probed: What the last probe told, and when, in the same seconds; a refusal tells nothing.
    """

    def __init__(self, client: KubeClient, *, settings: PulseSettings | None = None) -> None:
        self._client = client
        self._settings = settings or PulseSettings()
        self._lock = threading.Lock()
        self._on_change: set[Callable[[], None]] = set()
        self._failed_at = self._returned_at = 0.0
        self.last_answer: float | None = None
        self.probed: tuple[Probe, float] | None = None
        self.last_error: ClusterError | None = None
        self.is_lost = False

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Calls `on_change` once whenever the cluster is found to be lost, and to be back."""
        with self._lock:
            self._on_change.add(on_change)

    def unsubscribe(self, on_change: Callable[[], None]) -> None:
        with self._lock:
            self._on_change.discard(on_change)

    @property
    def last_probe(self) -> Probe | None:
        return self.probed[0] if self.probed else None

    def failed_s_ago(self) -> float:
        """Seconds since the last request that was not answered; 0 before any failed."""
        return time.monotonic() - self._failed_at if self._failed_at else 0.0

    def returned_s_ago(self) -> float | None:
        """Seconds since a lost cluster answered again; None when that never happened."""
        return time.monotonic() - self._returned_at if self._returned_at else None

    def run(self, stop: threading.Event) -> None:
        """Probes until `stop` is set."""
        failures = 0
        while not stop.is_set():
            failures = 0 if self.beat() else failures + 1
            if failures == self._settings.failures:
                self.is_lost = True
                self._tell()
            suspicious = 0 < failures < self._settings.failures
            stop.wait(0.1 if suspicious else self._settings.every_s)

    def beat(self) -> bool:
        """Probes once; whether the cluster answered. A refusal is an answer, too."""
        asked_at = time.monotonic()
        try:
            probe = self._client.probe(timeout_s=self._settings.timeout_s)
        except Terminal as error:
            self.last_error = error
        except ClusterError as error:
            self.last_error = error
            self._failed_at = asked_at
            return False
        else:
            self.last_error = None
            # Together, so that no thread takes one answer's time for that of another.
            self.probed = probe, time.monotonic()
        self.last_answer = time.monotonic()
        if self.is_lost:
            self.is_lost = False
            self._returned_at = self.last_answer
            self._tell()
        return True

    def _tell(self) -> None:
        with self._lock:
            listeners = list(self._on_change)
        for listener in listeners:
            listener()


@dataclass(slots=True)
class _Shared:
    """A pulse that beats, and how many go by it."""

    pulse: Pulse
    stop: threading.Event = field(default_factory=threading.Event)
    users: int = 0


class Pulses:
    """The pulses of a process: one for all who reach a cluster in the same way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._beating: dict[Hashable, _Shared] = {}

    @contextmanager
    def shared(self, key: Hashable, connect: Callable[[], KubeClient]) -> Iterator[Pulse]:
        """The pulse of a cluster; it beats while somebody goes by it.

        Args:
            key: Of the cluster, and of the credential.
            connect: Makes its client, where nobody goes by it yet.

        Raises:
            ClusterError: of `connect`.
        """
        with self._lock:
            found = self._beating.get(key)
            if found is None:
                found = self._beating[key] = self._begin(connect())
            found.users += 1
        try:
            yield found.pulse
        finally:
            with self._lock:
                found.users -= 1
                if not found.users:
                    del self._beating[key]
                    found.stop.set()

    def _begin(self, client: KubeClient) -> _Shared:
        shared = _Shared(Pulse(client))

        def beat() -> None:
            with client:
                shared.pulse.run(shared.stop)

        threading.Thread(target=beat, name="pulse", daemon=True).start()
        return shared


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
        self._probed: object = None
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
        probed = pulse.probed
        if probed is None or probed is self._probed or probed[0].server_time is None:
            return
        self._probed = probed
        skew = probed[0].server_time - (wall - timedelta(seconds=steady - probed[1]))
        is_noise = abs(skew) <= NOISE
        self.skew = timedelta() if is_noise else timedelta(seconds=round(skew.total_seconds()))
