"""What follows deletions: dependents go with their owners, content with its namespace.

One thread per cluster reads the changes and also sweeps now and then, as the garbage collector and
the namespace controller of a real cluster do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from clusters.devcluster.cluster import DevCluster
from clusters.devcluster.problems import Document, Failure
from clusters.devcluster.registry import BY_KEY, NAMESPACES
from clusters.devcluster.store import Commit
from clusters.devcluster.writes import MERGE, Address, Intent
from clusters.documents.keys import place_of

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_INTENT = Intent("devcluster-garbage")
_SWEEP_EVERY_S = 1.0
_BATCH_S = 0.05


class GarbageCollector:
    """Runs beside one cluster; `start` and `stop`."""

    def __init__(self, cluster: DevCluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        _, self._subscription = cluster.store.subscribe("", since=None)
        self._thread = threading.Thread(
            target=self._run, name=f"garbage-{cluster.name}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._subscription.end()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        store = self._cluster.store
        while not self._stop.is_set():
            self.sweep()
            if not self._subscription.read(_SWEEP_EVERY_S, stop=self._stop, take=_matters):
                # The cluster ended every watch, this one included.
                _, self._subscription = store.subscribe("", since=None)
        store.unsubscribe(self._subscription)

    def sweep(self) -> None:
        """Deletes what has lost its last owner, and moves on what waits to be gone."""
        everything = self._cluster.store.everything()
        uids = {document["metadata"]["uid"] for _, document in everything}
        for kind, document in everything:
            metadata = document["metadata"]
            owners = metadata.get("ownerReferences") or []
            if owners and not any(owner["uid"] in uids for owner in owners):
                self._delete(kind, document)
            finalizers = metadata.get("finalizers") or []
            if "deletionTimestamp" in metadata:
                if FOREGROUND in finalizers:
                    self._follow(kind, document, everything)
                elif ORPHAN in finalizers:
                    self._orphan(kind, document, everything)
                elif kind == NAMESPACES.key:
                    self._empty(document, everything)

    def _follow(self, kind: str, owner: Document, everything: list[tuple[str, Document]]) -> None:
        """Foreground: the dependents go first; those that block keep the owner."""
        waits = False
        for dependent_kind, dependent, reference in _dependents(owner, everything):
            self._delete(dependent_kind, dependent)
            still = self._cluster.store.get(dependent_kind, *place_of(dependent))
            waits = waits or (still is not None and bool(reference.get("blockOwnerDeletion")))
        if not waits:
            self._strip(kind, owner, FOREGROUND)

    def _orphan(self, kind: str, owner: Document, everything: list[tuple[str, Document]]) -> None:
        uid = owner["metadata"]["uid"]
        for dependent_kind, dependent, _ in _dependents(owner, everything):
            kept = [r for r in dependent["metadata"]["ownerReferences"] if r["uid"] != uid]
            self._patch(dependent_kind, dependent, {"ownerReferences": kept})
        self._strip(kind, owner, ORPHAN)

    def _empty(self, namespace: Document, everything: list[tuple[str, Document]]) -> None:
        name = namespace["metadata"]["name"]
        inside = [
            (kind, document)
            for kind, document in everything
            if document["metadata"].get("namespace") == name
        ]
        for kind, document in inside:
            self._delete(kind, document)
        if not any(self._cluster.store.get(kind, *place_of(document)) for kind, document in inside):
            target, body = Address(NAMESPACES, "", name), {"spec": {"finalizers": None}}
            self._try(lambda: self._cluster.writes.patch(target, body, MERGE, _INTENT))

    def _delete(self, kind: str, document: Document) -> None:
        target = Address(BY_KEY[kind], *place_of(document))
        exact = {"preconditions": {"uid": document["metadata"]["uid"]}}
        self._try(lambda: self._cluster.writes.delete(target, exact, dry_run=False))

    def _strip(self, kind: str, document: Document, finalizer: str) -> None:
        left = [f for f in document["metadata"].get("finalizers") or [] if f != finalizer]
        self._patch(kind, document, {"finalizers": left})

    def _patch(self, kind: str, document: Document, metadata: Document) -> None:
        target = Address(BY_KEY[kind], *place_of(document))
        body = {"metadata": {"uid": document["metadata"]["uid"]} | metadata}
        self._try(lambda: self._cluster.writes.patch(target, body, MERGE, _INTENT))

    @staticmethod
    def _try(write: Callable[[], object]) -> None:
        """Somebody may have been faster; the next sweep sees what is left."""
        try:
            write()
        except Failure as problem:
            if problem.code not in (404, 409):
                raise


def _matters(change: Commit) -> float | None:
    """After a change that matters the next sweep comes soon."""
    marks = change.document["metadata"].keys() & {"deletionTimestamp", "ownerReferences"}
    return _BATCH_S if change.type == "DELETED" or marks else None


def _dependents(
    owner: Document, everything: list[tuple[str, Document]]
) -> Iterator[tuple[str, Document, Document]]:
    uid = owner["metadata"]["uid"]
    for kind, document in everything:
        for reference in document["metadata"].get("ownerReferences") or []:
            if reference["uid"] == uid:
                yield kind, document, reference
