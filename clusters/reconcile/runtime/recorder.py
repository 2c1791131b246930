"""Writes Kubernetes Events beside a shift's work: late rather than in its way, or not at all.

One thread, a bounded queue and a bounded rate. What waits already is not queued twice; what is to
be told once is not told again. An event that cannot be written is dropped, and counted: statuses
say the same, and nothing is decided by events.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog

from clusters.documents.keys import Document
from clusters.documents.times import stamp
from clusters.errors import AlreadyExists, ClusterError, Forbidden, LeaseLost
from clusters.kube import resources as r
from clusters.reconcile.runtime import threads
from clusters.reconcile.runtime.writer import Verb, Write, Writer, WritingStopped

log = structlog.stdlib.get_logger(__name__)

COMPONENT: Final = "gpu-budget-portal"
MESSAGE_LIMIT: Final = 1024
QUEUE_LIMIT: Final = 1000
TOLD_LIMIT: Final = 20_000
# So many at once, and so many a second after that: a cluster full of starting jobs has other needs.
BURST, PER_S = 100, 25.0
# Rest after each event, as a multiple of the time that writing it took.
REST: Final = 4.0
_FORBIDDEN_PAUSE_S: Final = 300.0
_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(
        cls,
        document: Document,
        *,
        api_version: str = r.WORKLOAD.api_version,
        kind: str = "Workload",
    ) -> Reference:
        """A document of a kind; a Workload where none is named."""
        metadata = document["metadata"]
        return cls(api_version, kind, metadata["namespace"], metadata["name"], metadata["uid"])


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        is_once: The same words about the same object are told once, also by later shifts.
    """

    about: Reference
    reason: str
    message: str
    is_warning: bool = False
    is_once: bool = False

    @property
    def name(self) -> str:
        """Of the object to create: of an event that is told once always the same."""
        if not self.is_once:
            return f"{self.about.name[:200]}.{uuid.uuid4().hex[:16]}"
        said = f"{self.about.uid}{self.reason}{self.message}"
        return f"{self.about.name[:240]}.{hashlib.sha256(said.encode()).hexdigest()[:12]}"

    def document(self, *, now: datetime) -> dict[str, Any]:
        """The Event to create, in the form of the core API."""
        about, at = self.about, stamp(now)
        return {
            "metadata": {"name": self.name, "namespace": about.namespace},
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": "Warning" if self.is_warning else "Normal",
            "reason": self.reason,
            "message": _cut(self.message),
            "source": {"component": COMPONENT},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }


class Recorder:
    """Tells events to one cluster.

    Args:
        writer: Of the cluster; one without a hook.
        cluster: Its name, for logs.
        now: Clock for the events' times.
        monotonic: Clock for the rate, seconds.

    Attributes:
        dropped: Events that did not fit since it was last told in the log.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        cluster: str,
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer, self._cluster, self._now = writer, cluster, now
        self._monotonic = monotonic
        self._queue: queue.Queue[Event] = queue.Queue(QUEUE_LIMIT)
        self._waiting: set[Event] = set()
        self._told: dict[Event, None] = {}
        self._allowance, self._counted_at = float(BURST), monotonic()
        self._paused_until = float("-inf")
        self.dropped = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{cluster}-events", daemon=True)

    def close(self) -> None:
        """Writes no more and waits for the write under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def record(self, events: Iterable[Event]) -> None:
        """Queue events; never waits. Called from one thread; the first call begins to write."""
        for event in events:
            if event in self._waiting or event in self._told:
                continue
            try:
                self._waiting.add(event)
                self._queue.put_nowait(event)
            except queue.Full:
                self._waiting.discard(event)
                self.dropped += 1
                continue
            if event.is_once:
                self._remember(event)
            if self._thread.ident is None and not self._stop.is_set():
                threads.start(self._thread)

    def _remember(self, event: Event) -> None:
        self._told[event] = None
        if len(self._told) > TOLD_LIMIT:
            for old in list(self._told)[: TOLD_LIMIT // 2]:
                del self._told[old]

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                event = self._queue.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            self._stop.wait(self.pause_s())
            if not self._stop.is_set():
                begun = self._monotonic()
                self.write(event)
                # A cluster that answers slowly has decisions to write: events take a small part.
                self._stop.wait(REST * (self._monotonic() - begun))

    def pause_s(self) -> float:
        """How long the next event has to wait, seconds; counts it."""
        now = self._monotonic()
        earned = (now - self._counted_at) * PER_S
        self._allowance = min(float(BURST), self._allowance + earned) - 1.0
        self._counted_at = now
        return max(0.0, -self._allowance / PER_S)

    def write(self, event: Event) -> None:
        """Write one event, if that is possible now."""
        self._waiting.discard(event)
        if self._monotonic() < self._paused_until:
            return
        if self.dropped:
            log.info("events_dropped", cluster=self._cluster, count=self.dropped)
            self.dropped = 0
        body = event.document(now=self._now())
        name, namespace = body["metadata"]["name"], event.about.namespace
        try:
            self._writer.send(Write("tell", Verb.CREATE, r.EVENT, namespace, name, body))
        except LeaseLost:
            self._stop.set()  # the shift's own thread learns it by its own writes
        except (WritingStopped, AlreadyExists):
            return  # switched off, or told by an earlier shift
        except Forbidden as error:
            self._paused_until = self._monotonic() + _FORBIDDEN_PAUSE_S
            log.warning("events_refused", cluster=self._cluster, message=error.message)
        except ClusterError as error:
            log.debug("event_failed", cluster=self._cluster, reason=error.reason)


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 4] + " ..."
