"""What a placed Workload needs besides its own writes: pods to let go, pods to end, nodes to note.

Pods of one Workload are looked at together, and again only when all that was sent for them was
answered: else two of them could be told the same domain. Owned by the deciding thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from clusters.documents.conditions import is_true
from clusters.documents.keys import Document, key_of, status_of
from clusters.kube import resources as r
from clusters.kueue.configuration import Gates
from clusters.reconcile.admission.node_health import Ground, ending_write, look_at_nodes
from clusters.reconcile.admission.placed_pods import is_placed, release_write, released
from clusters.reconcile.admission.placement import Placement
from clusters.reconcile.runtime.cache import Cache
from clusters.reconcile.runtime.queue import WorkQueue
from clusters.reconcile.runtime.writer import Write

POD_KEY: Final = "Pod:"


@dataclass(frozen=True, slots=True)
class _Errand:
    """A write about a pod, and the admission that it carries out."""

    write: Write
    workload: str
    admission: Any


class Errands:
    """Writes about pods that wait for their turn.

    Args:
        placement: Knows nodes and pods.
        cache: Of the cluster.
        queue: Takes the keys of pods, ``Pod:namespace/name``.
    """

    def __init__(self, placement: Placement, cache: Cache, queue: WorkQueue[str]) -> None:
        self._placement, self._cache, self._queue = placement, cache, queue
        self._waiting: dict[str, _Errand] = {}

    def of_workload(
        self, key: str, workload: Document, *, gates: Gates, now: datetime
    ) -> Write | None:
        """The write that a Workload needs for its nodes; what its pods need is put into the queue.

        Raises:
            KeyError, ValueError: its admission cannot be read.
        """
        if not _runs(workload):
            return None
        pods = self._placement.pods_of(key)
        flavors = self._cache.of(r.RESOURCE_FLAVOR)
        ground = Ground(self._placement.nodes, pods, flavors, gates, now)
        health = look_at_nodes(workload, ground)
        if health.look_again is not None:
            self._queue.add_at(key, health.look_again)
        if all(self._is_free(pod) for pod in pods):
            for pod in health.ending:
                self._put(key, workload, pod, ending_write(pod, now=now))
            for item in () if health.write else released(workload, pods):
                self._put(key, workload, item.pod, release_write(item))
        return health.write

    def write_for(self, key: str) -> Write | None:
        """What waits for a pod, unless its Workload has been told otherwise meanwhile."""
        errand = self._waiting.pop(key, None)
        if errand is None:
            return None
        workload = self._cache.get(r.WORKLOAD, errand.workload)
        is_same = workload is not None and status_of(workload).get("admission") == errand.admission
        return errand.write if workload is not None and is_same and _runs(workload) else None

    def concerned(self, key: str) -> Iterable[str]:
        """Keys to look at when something was done for a pod."""
        pod = self._placement.cache.get(r.POD, key.removeprefix(POD_KEY))
        return self._placement.concerned(r.POD, pod) if pod is not None else ()

    def _put(self, key: str, workload: Document, pod: Document, write: Write) -> None:
        place = f"{POD_KEY}{key_of(pod)}"
        self._waiting[place] = _Errand(write, key, status_of(workload).get("admission"))
        self._queue.add(place)

    def _is_free(self, pod: Document) -> bool:
        place = f"{POD_KEY}{key_of(pod)}"
        return place not in self._waiting and self._queue.is_free(place)


def _runs(workload: Document) -> bool:
    return (
        is_placed(workload)
        and not is_true(workload, "Evicted")
        and not is_true(workload, "Finished")
    )
