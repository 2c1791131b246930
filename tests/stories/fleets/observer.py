"""The independent observer of a story: every state of its jobs and Workloads on every cluster.

It reads the clusters' own histories through watches of its own, past whatever is cut, and judges
when the story is over. The rules are those of ``tests.reconcile.dispatch_watcher``.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from clusters.documents import labels
from clusters.documents.keys import labels_of
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.resources import Resource
from clusters.kube.watch import Reflector
from tests.reconcile.dispatch_watcher import Watcher
from tests.stories.fleets.form import CLUSTERS
from tests.waiting import PATIENCE_S

Document = dict[str, Any]
# As the watcher calls them.
KINDS: Mapping[Resource, str] = {r.JOB: "batch/jobs", r.WORKLOAD: "kueue.x-k8s.io/workloads"}
_order = itertools.count()
Entry = tuple[int, str, str, str, Document]


class Judge(Watcher):
    """The watcher's rules over a history that somebody else wrote."""

    def __init__(self, history: list[Entry], *, origin: str) -> None:
        super().__init__(SimpleNamespace(places=CLUSTERS), origin=origin)  # type: ignore[arg-type]
        self.history = history

    def broken(self) -> dict[str, list[str]]:
        """What was broken, by the name of the rule."""
        found = {
            "two-jobs": [*self._two_jobs(), *self._second_starts()],
            "unnominated": self._unnominated(),
            "retry-under-eviction": self._retry_under_eviction(),
            "second-reservation": self._second_reservations(),
        }
        return {rule: faults for rule, faults in found.items() if faults}


class History:
    """What happened on all clusters so far; safe to write from any thread."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def note(self, cluster: str, resource: Resource, change: str, document: Document) -> None:
        """One state; ``change`` is DELETED for the last one."""
        entry = next(_order), cluster, KINDS[resource], change, document
        self._entries.append(entry)

    def of(self, namespace: str) -> list[Entry]:
        """The part of one namespace."""
        return [entry for entry in self._entries if entry[4]["metadata"]["namespace"] == namespace]


class _Scribe:
    """Writes down what one reflector tells."""

    def __init__(self, history: History, cluster: str, resource: Resource) -> None:
        self._history, self._place = history, (cluster, resource)

    def upsert(self, document: Document) -> None:
        self._history.note(*self._place, "MODIFIED", document)

    def deleted(self, document: Document) -> None:
        self._history.note(*self._place, "DELETED", document)

    def synced(self) -> None:
        """Nothing to write down."""


class Observer:
    """Watches all clusters over HTTP; a context manager."""

    def __init__(self, clients: Mapping[str, KubeClient]) -> None:
        self.history = History()
        self._stop = threading.Event()
        self._reflectors = [
            Reflector(client, resource, _Scribe(self.history, cluster, resource))
            for cluster, client in clients.items()
            for resource in KINDS
        ]
        self._threads = [
            threading.Thread(target=each.run, args=(self._stop,), daemon=True)
            for each in self._reflectors
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._stop.set()
        for each in self._reflectors:
            each.interrupt()
        for thread in self._threads:
            thread.join(timeout=PATIENCE_S)


def has_origin(document: Document, origin: str) -> bool:
    """Whether dispatch of this manager made it."""
    return labels_of(document).get(labels.ORIGIN) == origin
