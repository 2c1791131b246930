"""Several watches of one cluster that tell everything to one place."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from clusters.documents.alike import Alike
from clusters.documents.keys import without_writers
from clusters.documents.packed import packed
from clusters.errors import Forbidden, NotFound
from clusters.kube.client import EVERYTHING, KubeClient, Selection
from clusters.kube.pulse import Pulse
from clusters.kube.resources import Resource
from clusters.kube.shares import recounted
from clusters.kube.watch import Reflector, ReflectorSettings
from clusters.reconcile.runtime import threads

BATCH: Final = 500
"""So many things are taken at once, so that a flood leaves time to act between them."""
T = TypeVar("T")


class Change(StrEnum):
    """What a watch tells; SYNCED follows every whole list."""

    UPSERT = "upsert"
    DELETED = "deleted"
    SYNCED = "synced"


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that a watch told; `document` is empty with SYNCED."""

    change: Change
    cluster: str
    resource: Resource
    document: dict[str, Any]


Sink = Callable[[Seen], None]
Keep = Callable[[dict[str, Any]], dict[str, Any]]


class Inbox(Generic[T]):
    """What comes in to a deciding thread, in order; any thread may put.

    It waits by an event, and not in ``SimpleQueue.get``: where a signal comes meanwhile and is
    handled until after the end of the wait, that of Python 3.11 waits for ever.
    """

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._came = threading.Event()

    def __len__(self) -> int:
        return self._items.qsize()

    def put(self, item: T) -> None:
        """Put one thing in."""
        self._items.put(item)
        if not self._came.is_set():
            self._came.set()

    def take(self, *, wait_s: float = 0.0, everything: bool = False) -> list[T]:
        """What has come in.

        Args:
            wait_s: So long for the first thing, where nothing is there.
            everything: All of it, however much and without waiting, for what the first lists told;
                else at most :data:`BATCH`.
        """
        if wait_s and not everything and not self:
            self._came.wait(wait_s)
        self._came.clear()  # before anything is taken: what comes from now on sets it again
        items: list[T] = []
        try:
            while everything or len(items) < BATCH:
                items.append(self._items.get_nowait())
        except queue.Empty:
            pass
        return items


class _Teller:
    """Handler of one reflector."""

    def __init__(self, cluster: str, resource: Resource, sink: Sink) -> None:
        self._cluster, self._resource, self._sink = cluster, resource, sink

    def upsert(self, document: dict[str, Any]) -> None:
        self._sink(Seen(Change.UPSERT, self._cluster, self._resource, document))

    def deleted(self, document: dict[str, Any]) -> None:
        self._sink(Seen(Change.DELETED, self._cluster, self._resource, document))

    def synced(self) -> None:
        self._sink(Seen(Change.SYNCED, self._cluster, self._resource, {}))


def _keeping(keep: Keep) -> Keep:
    """The same, packed, with what others have alike, and counted for what it takes itself.

    One that it cannot read is told whole.
    """
    alike = Alike()

    def kept(document: dict[str, Any]) -> dict[str, Any]:
        try:
            return recounted(document, alike.of(packed(keep(document))))
        except Exception:  # in a thread that all other objects of the kind depend on
            return document

    return kept


class Watches:
    """Reflectors and their threads; `close` ends them.

    Args:
        client: The cluster.
        cluster: Its name, told with everything.
        pulse: Notices a silent cluster; None where watches are kept short instead.
        sink: Called from the reflectors' threads.
    """

    def __init__(
        self, client: KubeClient, *, cluster: str, pulse: Pulse | None, sink: Sink
    ) -> None:
        self._client, self._cluster, self._pulse, self._sink = client, cluster, pulse, sink
        self._stop = threading.Event()
        self._reflectors: dict[Resource, Reflector] = {}
        self._optional: set[Resource] = set()
        self._absent: set[Resource] = set()
        self._threads: list[threading.Thread] = []

    def add(
        self,
        resource: Resource,
        *,
        selection: Selection = EVERYTHING,
        is_optional: bool = False,
        settings: ReflectorSettings | None = None,
        keep: Keep = without_writers,
    ) -> Reflector:
        """Watch one more resource.

        Args:
            resource: What to watch.
            selection: Which of it.
            is_optional: A cluster that does not serve it, or forbids it, counts as synced.
            settings: Waits of the ``Reflector``.
            keep: What of a document is kept and told.
        """
        teller = _Teller(self._cluster, resource, self._sink)
        reflector = Reflector(
            self._client,
            resource,
            teller,
            selection=selection,
            settings=settings,
            pulse=self._pulse,
            keep=_keeping(keep),
        )
        self._reflectors[resource] = reflector
        if is_optional:
            self._optional.add(resource)
        name = f"{self._cluster}-{resource.plural}"
        thread = threading.Thread(target=reflector.run, args=(self._stop,), name=name, daemon=True)
        threads.start(thread)
        self._threads.append(thread)
        return reflector

    def _watched(self) -> list[tuple[Resource, Reflector]]:
        """As they are now: the heartbeat asks while the shift adds others."""
        return list(self._reflectors.items())

    def of(self, resource: Resource) -> Reflector:
        """The watch of a resource that was added."""
        return self._reflectors[resource]

    @property
    def is_synced(self) -> bool:
        """Whether every watch has told its first whole list, or is one that may be missing."""
        return all(
            reflector.is_synced or self._is_absent(resource)
            for resource, reflector in self._watched()
        )

    def missing(self) -> tuple[Resource, ...]:
        """Kinds that may be missing and are: not served, or forbidden."""
        return tuple(resource for resource, _ in self._watched() if self._is_absent(resource))

    def _is_absent(self, resource: Resource) -> bool:
        """Whether a kind that may be missing is; what was told last holds while a try fails."""
        error = self._reflectors[resource].last_error
        if resource not in self._optional or error is None:
            self._absent.discard(resource)
        elif isinstance(error, NotFound | Forbidden):
            self._absent.add(resource)
        return resource in self._absent

    @property
    def is_connected(self) -> bool:
        """Whether every watch that is needed stands at this moment."""
        return self.is_synced and all(
            reflector.is_watching or reflector.last_error is None
            for resource, reflector in self._watched()
            if resource not in self._optional
        )

    def last_error(self) -> Exception | None:
        """Why a needed watch does not stand; None when all do."""
        for resource, reflector in self._watched():
            if resource not in self._optional and reflector.last_error is not None:
                return reflector.last_error
        return None

    def age(self) -> float | None:
        """Seconds since the oldest needed image was current; None before all are there."""
        ages = [
            reflector.age()
            for resource, reflector in self._watched()
            if resource not in self._optional
        ]
        known = [age for age in ages if age is not None]
        return max(known, default=None) if len(known) == len(ages) else None

    def wait_synced(self, stop: threading.Event, *, poll_s: float = 0.02) -> bool:
        """Wait until everything is synced; False when told to stop before."""
        while not stop.is_set():
            if self.is_synced:
                return True
            time.sleep(poll_s)
        return False

    def snapshot(self, resource: Resource) -> list[dict[str, Any]]:
        """The image of one resource."""
        return self._reflectors[resource].snapshot()

    def close(self) -> None:
        """End every watch and wait for its thread."""
        self._stop.set()
        for reflector in self._reflectors.values():
            reflector.interrupt()
        for thread in self._threads:
            thread.join(timeout=10)
