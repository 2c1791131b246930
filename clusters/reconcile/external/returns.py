"""Notices within a quarter of a second that a lost worker answers again, and what it holds.

Watches come back by their own growing waits. A Kueue that was cut off tries again after 5, 10,
20, ... seconds (spec dispatch 2.7); whoever has to be there first cannot wait as long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clusters.documents import labels
from clusters.errors import ClusterError
from clusters.jobs.table import JobKinds
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.kube.resources import Document, Resource

ASK_EVERY_S: Final = 0.2
ANSWER_WITHIN_S: Final = 1.0
CALM_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Return:
    """A lost worker answers again; ``objects`` by kind is everything there with our origin.

    None where one that had answered again does so no longer.
    """

    worker: str
    objects: Mapping[Resource, Sequence[Document]] | None


class Returns:
    """Asks lost workers, one thread each; what they answer goes to ``sink``, from the threads."""

    def __init__(
        self,
        *,
        origin: str,
        kinds: JobKinds,
        sink: Callable[[Return], None],
    ) -> None:
        self._selection = Selection(labels=f"{labels.ORIGIN}={origin}")
        self._kinds, self._sink = kinds, sink
        self._asked: dict[str, tuple[KubeClient, threading.Event, threading.Thread]] = {}

    def follow(self, lost: Mapping[str, KubeClient]) -> None:
        """Ask these workers and no others."""
        for name in [name for name, item in self._asked.items() if lost.get(name) is not item[0]]:
            self._asked.pop(name)[1].set()
        for name, client in lost.items():
            if name not in self._asked:
                stop = threading.Event()
                thread = threading.Thread(
                    target=self._ask, args=(name, client, stop), name=f"{name}-return", daemon=True
                )
                self._asked[name] = client, stop, thread
                thread.start()

    def close(self) -> None:
        """Ask nobody any more."""
        threads = [item[2] for item in self._asked.values()]
        self.follow({})
        for thread in threads:
            thread.join(timeout=10)

    def _ask(self, worker: str, client: KubeClient, stop: threading.Event) -> None:
        is_here = False
        while not stop.is_set():
            try:
                client.probe(timeout_s=ANSWER_WITHIN_S)
                found = None if is_here else self._list(client)
            except ClusterError:
                if is_here:
                    self._sink(Return(worker, None))
                is_here = False
                stop.wait(ASK_EVERY_S)
                continue
            if found is not None and not stop.is_set():
                self._sink(Return(worker, found))
            is_here = True
            stop.wait(CALM_S)

    def _list(self, client: KubeClient) -> dict[Resource, Sequence[Document]]:
        found: dict[Resource, Sequence[Document]] = {}
        for kind in (r.WORKLOAD, *self._kinds.resources):
            try:
                found[kind] = client.list(kind, self._selection).items
            except ClusterError:
                if kind not in self._kinds.optional:
                    raise
        return found
