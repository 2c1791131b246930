"""Writes Kubernetes Events beside the shift's work: late rather than in its way, or not at all.

One thread, a bounded queue and a bounded rate. An event that cannot be written is dropped: the
statuses say the same, and nothing is decided by events.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from clusters.errors import ClusterError, Forbidden, LeaseLost
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.reconcile.admission.events import Told, event_document

log = logging.getLogger(__name__)

QUEUE_LIMIT: Final = 1000
# So many at once, and so many a second after that: a cluster full of starting jobs has other needs.
BURST, PER_S = 100, 25.0
_FORBIDDEN_PAUSE_S: Final = 300.0
_POLL_S: Final = 0.5
# Rest after each event, as a multiple of the time that writing it took.
REST: Final = 4.0


class Herald:
    """Tells events to one cluster.

    Args:
        client: The cluster.
        cluster: Its name, for logs.
        may_write: Whether this process may write now.
        fence: Raises LeaseLost when it may not any more.
        now: Clock for the events' times.
        monotonic: Clock for the rate, seconds.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        cluster: str,
        may_write: Callable[[], bool],
        fence: Callable[[], None],
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._cluster = client, cluster
        self._may_write, self._fence, self._now = may_write, fence, now
        self._monotonic = monotonic
        self._queue: queue.Queue[Told] = queue.Queue(QUEUE_LIMIT)
        self._allowance, self._counted_at = float(BURST), monotonic()
        self._paused_until = float("-inf")
        self._dropped = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{cluster}-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Writes no more and waits for the write under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def tell(self, events: Iterable[Told]) -> None:
        """Queue events; never waits."""
        for told in events:
            try:
                self._queue.put_nowait(told)
            except queue.Full:
                self._dropped += 1

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                told = self._queue.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            self._stop.wait(self.pause_s())
            if not self._stop.is_set():
                begun = self._monotonic()
                self._write(told)
                # A cluster that answers slowly has decisions to write: events take a small part.
                self._stop.wait(REST * (self._monotonic() - begun))

    def pause_s(self) -> float:
        """How long the next event has to wait, seconds; counts it."""
        now = self._monotonic()
        earned = (now - self._counted_at) * PER_S
        self._allowance = min(float(BURST), self._allowance + earned) - 1.0
        self._counted_at = now
        return max(0.0, -self._allowance / PER_S)

    def _write(self, told: Told) -> None:
        if not self._may_write() or self._monotonic() < self._paused_until:
            return
        if self._dropped:
            log.info("events_dropped cluster=%s count=%d", self._cluster, self._dropped)
            self._dropped = 0
        name = f"{told.about.name[:200]}.{uuid.uuid4().hex[:16]}"
        try:
            self._fence()
            self._client.create(r.EVENT, event_document(told, name=name, now=self._now()))
        except LeaseLost:
            self._stop.set()  # the shift's own thread learns it by its own writes
        except Forbidden as error:
            self._paused_until = self._monotonic() + _FORBIDDEN_PAUSE_S
            log.warning("events_refused cluster=%s message=%s", self._cluster, error.message)
        except ClusterError as error:
            log.debug("event_failed cluster=%s reason=%s", self._cluster, error.reason)
