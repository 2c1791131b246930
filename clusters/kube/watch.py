"""Keeps an image of one resource of one cluster: list, then watch, resume, list again when needed.

The image is level-triggered: after every list the handler has been told of each difference between
what it knew and what is, so nothing is missed whatever happened to the connection meanwhile.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from clusters.documents.keys import place_of, uid_of
from clusters.errors import ClusterError, Gone, Refusal, Retryable, Unreachable
from clusters.kube.client import EVERYTHING, KubeClient, Selection, WatchOptions
from clusters.kube.pulse import Pulse
from clusters.kube.resources import Document, Resource
from clusters.kube.stream import WatchEvent, WatchStream, WatchType

Key = tuple[str, str]
WAKE_EVERY_S = 0.1


class Handler(Protocol):
    """Who wants to know; called from the reflector's thread, one call at a time."""

    def upsert(self, document: Document) -> None:
        """An object is new or changed."""

    def deleted(self, document: Document) -> None:
        """An object is gone (or left the selection); the document is its last known state."""

    def synced(self) -> None:
        """A whole list was told; called after every list."""


@dataclass(frozen=True, slots=True)
class ReflectorSettings:
    """Waits in seconds. `jitter` gives numbers in [0, 1).

    With a pulse a watch may last minutes; without one it is short, so that its end is the probe.
    """

    watch_s: float = 240.0
    watch_without_pulse_s: float = 6.0
    grace_s: float = 2.5
    backoff_first_s: float = 0.2
    backoff_cap_s: float = 8.0
    jitter: Callable[[], float] = random.random


class Reflector:
    """Runs in a thread of its caller's choice; everything else may be called from any thread.

    Args:
        client: The cluster.
        resource: What to keep an image of.
        handler: Told of every difference.
        selection: Which of it.
        settings: Waits.
        pulse: Notices a silent cluster.
        keep: What of a document is kept and told, its metadata's name, namespace, uid and
            resourceVersion at least; None for all of it.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        handler: Handler,
        *,
        selection: Selection = EVERYTHING,
        settings: ReflectorSettings | None = None,
        pulse: Pulse | None = None,
        keep: Callable[[Document], Document] | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._handler = handler
        self._selection = selection
        self._settings = settings or ReflectorSettings()
        self._pulse = pulse
        self._keep = keep or (lambda document: document)
        self._lock = threading.Lock()
        self._objects: dict[Key, Document] = {}
        self._version = ""
        self._stream: WatchStream | None = None
        self._last_contact: float | None = None
        self._has_progressed = False
        self._is_woken = False
        self.is_synced = False
        self.relists = 0
        self.last_error: ClusterError | None = None

    @property
    def version(self) -> str:
        """The resourceVersion up to which everything was told; empty before the first list."""
        return self._version if self.is_synced else ""

    @property
    def is_watching(self) -> bool:
        """Whether a watch is open at this moment."""
        return self._stream is not None

    def snapshot(self) -> list[Document]:
        """The image, ordered by namespace and name; the documents are not to be changed."""
        with self._lock:
            return [self._objects[key] for key in sorted(self._objects)]

    def age(self) -> float | None:
        """Seconds since the image was last known to be current; None before the first list."""
        contact = self._last_contact
        if contact is None:
            return None
        if self._pulse and self._pulse.last_answer and self.is_watching:
            contact = max(contact, self._pulse.last_answer)
        return time.monotonic() - contact

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set (call `interrupt` as well to end a silent watch at once).

        Whatever goes wrong with the cluster is tried again, with growing waits; `last_error` and
        `age` tell. What the handler raises ends the run.
        """
        if self._pulse:
            self._pulse.subscribe(self._follow_pulse)
        failures = 0
        try:
            while not stop.is_set():
                try:
                    self._round(stop)
                    failures = 0
                except ClusterError as error:
                    failures = self._failed(error, failures)
                    self._rest(stop, self._backoff_s(failures))
        finally:
            if self._pulse:
                self._pulse.unsubscribe(self._follow_pulse)

    def interrupt(self) -> None:
        """Ends the open watch; the run goes on with the next one unless its stop event is set."""
        stream = self._stream
        if stream is not None:
            stream.interrupt()

    def _follow_pulse(self) -> None:
        if self._pulse is not None and self._pulse.is_lost:
            self.interrupt()
        else:
            self._is_woken = True

    def _rest(self, stop: threading.Event, seconds: float) -> None:
        """Waits before the next try; not longer than until the pulse finds the cluster back."""
        ends = time.monotonic() + seconds
        self._is_woken = False
        while not self._is_woken and (left := ends - time.monotonic()) > 0:
            if stop.wait(min(left, WAKE_EVERY_S)):
                return

    def _failed(self, error: ClusterError, failures: int) -> int:
        self.last_error = error
        if not isinstance(error, Retryable) or isinstance(error, Gone):
            self._version = ""
        # A watch that told something before it broke starts the waits from the beginning.
        failures = 0 if self._has_progressed else failures
        self._has_progressed = False
        return failures + 1

    def _backoff_s(self, failures: int) -> float:
        if isinstance(self.last_error, Gone) and failures == 1:
            return 0.0
        settings = self._settings
        growth: int = 2 ** min(failures, 16)
        ceiling = min(settings.backoff_cap_s, settings.backoff_first_s * growth)
        return ceiling * (0.5 + settings.jitter() / 2)

    def _round(self, stop: threading.Event) -> None:
        if self._version and self._client.is_behind(self._resource, self._selection, self._version):
            self._version = ""
        if not self._version:
            self._relist()
        self._follow(stop)

    def _relist(self) -> None:
        listed = self._client.list(self._resource, self._selection)
        now = {place_of(document): self._keep(document) for document in listed.items}
        with self._lock:
            before, self._objects = self._objects, dict(now)
        # What is gone first: a name may have been taken again by another object.
        for key, document in before.items():
            if key not in now or uid_of(now[key]) != uid_of(document):
                self._handler.deleted(document)
        for key, document in now.items():
            known = before.get(key)
            if known is None or _version(known) != _version(document):
                self._handler.upsert(document)
        self._version = listed.resource_version
        self._touch()
        self.relists += 1
        self.is_synced = True
        self.last_error = None
        self._handler.synced()

    def _follow(self, stop: threading.Event) -> None:
        settings = self._settings
        longest = settings.watch_s if self._pulse else settings.watch_without_pulse_s
        seconds = max(1, round(longest * (0.8 + 0.2 * settings.jitter())))
        options = WatchOptions(
            resource_version=self._version,
            timeout_s=seconds,
            idle_timeout_s=seconds + settings.grace_s,
        )
        stream = self._client.watch(self._resource, self._selection, options=options)
        with stream:
            self._stream = stream
            try:
                if stop.is_set():
                    return  # it was interrupted before it was open
                self._touch()
                self.last_error = None
                for event in stream:
                    self._take(event)
                    if stop.is_set():
                        return
            finally:
                self._stream = None
        if stop.is_set():
            return
        if stream.was_interrupted:
            raise Unreachable(Refusal("the cluster stopped answering", target=stream.target))
        self._touch()

    def _take(self, event: WatchEvent) -> None:
        document = event.document
        self._touch()
        self._has_progressed = True
        if event.type is WatchType.BOOKMARK:
            self._version = event.resource_version
            return
        document.setdefault("apiVersion", self._resource.api_version)
        document.setdefault("kind", self._resource.kind)
        document = self._keep(document)
        with self._lock:
            if event.type is WatchType.DELETED:
                self._objects.pop(place_of(document), None)
            else:
                self._objects[place_of(document)] = document
        if event.type is WatchType.DELETED:
            self._handler.deleted(document)
        else:
            self._handler.upsert(document)
        self._version = event.resource_version

    def _touch(self) -> None:
        self._last_contact = time.monotonic()


def _version(document: Document) -> str:
    return str(document["metadata"].get("resourceVersion", ""))
