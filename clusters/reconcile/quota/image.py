"""What a cluster carries of the kinds that quota sync writes, kept by watches.

Objects of other owners are seen too: a name that is taken must be known before it is written.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from clusters.kube import resources as r
from clusters.kube.resources import Document, Resource
from clusters.kube.watch import Reflector
from clusters.manifests.names import INSTALLATION_LABEL, Key, key_of
from clusters.reconcile.context import ShiftContext

QUOTA_RESOURCES = (r.NAMESPACE, r.RESOURCE_FLAVOR, r.COHORT, r.CLUSTER_QUEUE, r.LOCAL_QUEUE)
MULTIKUEUE_RESOURCES = (r.MULTIKUEUE_CLUSTER, r.MULTIKUEUE_CONFIG, r.ADMISSION_CHECK)
RESOURCES: dict[str, Resource] = {
    resource.kind: resource for resource in (*QUOTA_RESOURCES, *MULTIKUEUE_RESOURCES, r.SECRET)
}


def condition(document: Document, kind: str) -> Document:
    """A status condition; empty when it is not there."""
    conditions = (document.get("status") or {}).get("conditions") or []
    return next((found for found in conditions if found.get("type") == kind), {})


def reserving(document: Document) -> int:
    """Workloads that hold quota of a ClusterQueue, as whoever admits there counts them."""
    return int((document.get("status") or {}).get("reservingWorkloads") or 0)


class Image:
    """Documents by key, which of them changed since the last look, and an event to wait for."""

    def __init__(self, context: ShiftContext, resources: Sequence[Resource]) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._documents: dict[Key, Document] = {}
        self._looks: dict[Key, tuple[object, ...]] = {}
        self._dirty: set[Key] = set()
        self._threads: list[threading.Thread] = []
        self.changed = threading.Event()
        self._reflectors = [
            Reflector(context.client, resource, _Feed(self), pulse=context.pulse)
            for resource in resources
        ]

    def start(self) -> None:
        """Begins to watch, one thread per kind."""
        context = self._context
        context.report_watch_age(self.age)
        for reflector in self._reflectors:
            thread = threading.Thread(
                target=reflector.run,
                args=(context.stop,),
                name=f"{context.cluster.slug}-quota-watch",
                daemon=True,
            )
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Ends the watches; the stop event of the shift has to be set."""
        for reflector in self._reflectors:
            reflector.interrupt()
        for thread in self._threads:
            thread.join(timeout=5)

    @property
    def is_synced(self) -> bool:
        return all(reflector.is_synced for reflector in self._reflectors)

    def age(self) -> float | None:
        """Age of the oldest watch in seconds; None before all have listed once."""
        ages = [reflector.age() for reflector in self._reflectors]
        known = [age for age in ages if age is not None]
        return max(known) if len(known) == len(ages) else None

    def documents(self) -> dict[Key, Document]:
        """Everything; the documents are not to be changed."""
        with self._lock:
            return dict(self._documents)

    def take_changed(self) -> set[Key]:
        """Keys that changed since the last call."""
        with self._lock:
            self.changed.clear()
            found, self._dirty = self._dirty, set()
            return found

    def put(self, document: Document) -> None:
        """Takes what a watch, or the answer to our own write, shows."""
        key = key_of(document)
        look = _look(document)
        with self._lock:
            known = self._documents.get(key)
            if known is not None and _is_older(document, known):
                return
            self._documents[key] = document
            if self._looks.get(key) != look:
                self._looks[key] = look
                self._dirty.add(key)
                self.changed.set()

    def drop(self, document: Document) -> None:
        """Forgets an object that is gone."""
        key = key_of(document)
        with self._lock:
            known = self._documents.get(key)
            if known is not None and known["metadata"]["uid"] != document["metadata"]["uid"]:
                return
            self._documents.pop(key, None)
            self._looks.pop(key, None)
            self._dirty.add(key)
            self.changed.set()


class _Feed:
    """Handler of one watch."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def upsert(self, document: Document) -> None:
        self._image.put(document)

    def deleted(self, document: Document) -> None:
        self._image.drop(document)

    def synced(self) -> None:
        self._image.changed.set()


def _look(document: Document) -> tuple[object, ...]:
    """What quota sync looks at; usage in the status changes with every admission and is not."""
    metadata = document["metadata"]
    active = condition(document, "Active")
    return (
        metadata.get("uid"),
        metadata.get("generation"),
        metadata.get("labels"),
        metadata.get("annotations"),
        metadata.get("deletionTimestamp"),
        reserving(document) == 0,
        active.get("status"),
        active.get("message"),
        # Kinds without metadata.generation are compared as they are.
        None if "generation" in metadata else metadata.get("resourceVersion"),
    )


def _is_older(document: Document, known: Document) -> bool:
    """A watch may still tell what our own write has already answered."""
    ours, theirs = document["metadata"], known["metadata"]
    if ours.get("uid") != theirs.get("uid"):
        return False
    try:
        return int(ours["resourceVersion"]) < int(theirs["resourceVersion"])
    except (KeyError, ValueError):
        return False


def is_of(document: Document, installation: str) -> bool:
    """Whether an object carries an installation's label."""
    labels = document["metadata"].get("labels") or {}
    return bool(labels.get(INSTALLATION_LABEL) == installation)
