"""Is the cluster still there: one small request now and then, shared by all watches of a cluster.

A watch on a quiet cluster says nothing for minutes, and a cluster that froze says nothing either.
The pulse tells them apart within 8 seconds, and ends the watches of a cluster that stopped
answering.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from clusters.errors import ClusterError, Terminal
from clusters.kube.client import KubeClient, Probe


@dataclass(frozen=True, slots=True)
class PulseSettings:
    """Seconds between requests, seconds that one may take, and failures in a row that mean lost."""

    every_s: float = 2.5
    timeout_s: float = 2.5
    failures: int = 2


class Pulse:
    """Probes one cluster until told to stop; safe to read from other threads."""

    def __init__(self, client: KubeClient, *, settings: PulseSettings | None = None) -> None:
        self._client = client
        self._settings = settings or PulseSettings()
        self._lock = threading.Lock()
        self._on_change: set[Callable[[], None]] = set()
        self._failed_at = self._returned_at = 0.0
        self.last_answer: float | None = None
        self.last_probe: Probe | None = None
        self.last_error: ClusterError | None = None
        self.is_lost = False

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Calls `on_change` once whenever the cluster is found to be lost, and to be back."""
        with self._lock:
            self._on_change.add(on_change)

    def unsubscribe(self, on_change: Callable[[], None]) -> None:
        with self._lock:
            self._on_change.discard(on_change)

    def failed_s_ago(self) -> float:
        """Seconds since the last request that was not answered; 0 before any failed."""
        return time.monotonic() - self._failed_at if self._failed_at else 0.0

    def returned_s_ago(self) -> float | None:
        """Seconds since a lost cluster answered again; None when that never happened."""
        return time.monotonic() - self._returned_at if self._returned_at else None

    def age(self) -> float | None:
        """Seconds since the last answer, None before the first."""
        return None if self.last_answer is None else time.monotonic() - self.last_answer

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
            self.last_probe = self._client.probe(timeout_s=self._settings.timeout_s)
        except Terminal as error:
            self.last_error = error
        except ClusterError as error:
            self.last_error = error
            self._failed_at = asked_at
            return False
        else:
            self.last_error = None
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
