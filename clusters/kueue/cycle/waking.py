"""Which parked workloads are queued again, collected until a cycle or a question needs them.

Source: Kueue pkg/cache/queue/manager.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from clusters.kueue.queueing.queue_set import QueueSet
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.tree import ClusterQueueState


class WakeUps:
    """Trees whose parked workloads are queued again when that is needed next."""

    def __init__(self, snapshot: Snapshot, queues: QueueSet) -> None:
        self._snapshot, self._queues = snapshot, queues
        self._names: set[str] = set()
        self._is_all = False

    def wake(self, name: str) -> None:
        """Queue the parked workloads of the tree around a ClusterQueue again, when needed next."""
        self._names.add(name)

    def wake_cohort(self, name: str) -> None:
        """The same for a tree that a Cohort is in."""
        self._names.add(f"/{name}")

    def wake_all(self) -> None:
        """The same for all trees."""
        self._is_all = True

    def wake_active(self) -> None:
        """The same for the trees of queues that may admit."""
        for name, state in self._snapshot.queues.items():
            if state.is_active:
                self.wake(name)

    def happen(self, *, labels_of: Callable[[str], Mapping[str, str]], now: datetime) -> None:
        """Queue again what was collected, in namespaces that the queues select by their labels."""
        if not (self._names or self._is_all):
            return
        for state in self._waking():
            queue = self._queues.queue(state.spec.name)
            if queue is not None:
                selector = state.spec.namespace_selector
                queue.wake(
                    is_welcome=lambda name, selector=selector: selector.matches(  # type: ignore[misc]
                        labels_of(name)
                    ),
                    now=now,
                )
        self._names.clear()
        self._is_all = False

    def _waking(self) -> list[ClusterQueueState]:
        snapshot = self._snapshot
        if self._is_all:
            return list(snapshot.queues.values())
        found: dict[str, ClusterQueueState] = {}
        for name in self._names:
            if name in found:
                continue
            if name.startswith("/"):
                states = snapshot.cohort_queues(name[1:])
            else:
                state = snapshot.queues.get(name)
                states = snapshot.tree_queues(state) if state is not None else []
            found.update((state.spec.name, state) for state in states)
        return list(found.values())
