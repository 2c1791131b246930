"""Which queue every workload without quota waits in, and why some wait in none.

Source: Kueue pkg/cache/queue/manager.go, pkg/controller/core/workload_controller.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from budgets.plan import StopPolicy
from clusters.kueue.queueing.buckets import QueueItem
from clusters.kueue.queueing.queues import PendingQueue, RequeueReason, UsageOf
from clusters.kueue.quota.specifications import LocalQueueSpec, QueueingStrategy
from clusters.kueue.workload.workloads import Workload


@dataclass(frozen=True, slots=True)
class NotQueued:
    """Why a workload is in no queue, as its QuotaReserved=False condition says it."""

    reason: str
    message: str


class QueueSet:
    """All pending workloads by LocalQueue and ClusterQueue."""

    def __init__(self, *, hashes_equals: bool, usage_of: UsageOf | None = None) -> None:
        """Start empty; without ``usage_of`` no ClusterQueue is ordered by usage."""
        self._hashes_equals = hashes_equals
        self._usage_of = usage_of
        self.local_queues: dict[str, LocalQueueSpec] = {}
        self._queues: dict[str, PendingQueue] = {}
        self._fed_by: dict[str, set[str]] = {}
        self._workloads: dict[str, dict[str, Workload]] = {}
        self._queue_of: dict[str, str] = {}
        self._refusals: dict[str, NotQueued] = {}

    def queue(self, name: str) -> PendingQueue | None:
        """Pending workloads of a ClusterQueue."""
        return self._queues.get(name)

    def queues(self) -> Iterable[PendingQueue]:
        """All of them."""
        return self._queues.values()

    def queue_of(self, key: str) -> str:
        """Name of the ClusterQueue that a workload waits in, empty for none."""
        return self._queue_of.get(key, "")

    def leads_to(self, local_queue: str) -> str:
        """Name of the ClusterQueue that a LocalQueue leads to, empty for none."""
        queue = self.local_queues.get(local_queue)
        return queue.cluster_queue if queue is not None else ""

    def reason_of_equals(self, key: str) -> str:
        """Why a parked workload was not tried: the reason of the last one that is equal."""
        name = self._queue_of.get(key)
        return self._queues[name].reason_of_equals(key) if name is not None else ""

    def item(self, key: str) -> QueueItem | None:
        """A workload that waits."""
        name = self._queue_of.get(key)
        return self._queues[name].item(key) if name is not None else None

    def refusal(self, key: str) -> NotQueued | None:
        """Why a workload waits in no queue."""
        return self._refusals.get(key)

    def waiting_in(self, local_queue: str) -> int:
        """Number of pending workloads of a LocalQueue; a stopped one shows none.

        Without a ClusterQueue all of them wait.
        """
        queue = self.local_queues.get(local_queue)
        if queue is None or queue.stop_policy is not StopPolicy.NONE:
            return 0
        if queue.cluster_queue not in self._queues:
            return len(self._workloads.get(local_queue, ()))
        return sum(1 for key in self._workloads.get(local_queue, ()) if key in self._queue_of)

    def waiting_for(self, template: str) -> list[Workload]:
        """Pending workloads that claim devices by a ResourceClaimTemplate, NAMESPACE/NAME.

        O(LocalQueues + pending workloads of the namespace).
        """
        namespace, _, name = template.partition("/")
        return [
            workload
            for local_queue, members in self._workloads.items()
            if local_queue.startswith(f"{namespace}/")
            for workload in members.values()
            if workload.claims(name)
        ]

    def adopt(self, other: QueueSet, *, names: Collection[str]) -> None:
        """Become a copy of another set, as far as it is about some ClusterQueues."""
        self.local_queues = dict(other.local_queues)
        self._fed_by = {name: set(keys) for name, keys in other._fed_by.items()}
        self._workloads = {name: dict(items) for name, items in other._workloads.items()}
        self._queue_of = {key: name for key, name in other._queue_of.items() if name in names}
        self._refusals = dict(other._refusals)
        for queue in (other._queues[name] for name in other._queues if name in names):
            copy = self._new_queue(queue.name, queue.strategy, is_usage_based=queue.is_usage_based)
            copy.adopt(queue)

    def set_queue(
        self,
        name: str,
        *,
        strategy: QueueingStrategy,
        now: datetime,
        is_usage_based: bool = False,
    ) -> None:
        """Create a ClusterQueue's queue or change how it is ordered."""
        queue = self._queues.get(name)
        if queue is not None and queue.is_usage_based != (
            is_usage_based and self._usage_of is not None
        ):
            self.delete_queue(name, now=now)
            queue = None
        if queue is None:
            self._new_queue(name, strategy, is_usage_based=is_usage_based)
            self._route_again(self._fed_by.get(name, ()), now)
        else:
            queue.strategy = strategy

    def delete_queue(self, name: str, *, now: datetime) -> None:
        """Remove a ClusterQueue's queue; its workloads wait for it to come back."""
        if name not in self._queues:
            return
        for key in self._fed_by.get(name, ()):
            for workload in self._workloads.get(key, {}).values():
                self._unroute(workload.key)
        del self._queues[name]
        self._route_again(self._fed_by.get(name, ()), now)

    def set_local_queue(self, spec: LocalQueueSpec, *, now: datetime) -> None:
        """Create or change a LocalQueue."""
        before = self.local_queues.get(spec.key)
        if before == spec:
            return
        if before is not None:
            self._fed_by[before.cluster_queue].discard(spec.key)
        self.local_queues[spec.key] = spec
        self._fed_by.setdefault(spec.cluster_queue, set()).add(spec.key)
        self._route_again([spec.key], now)

    def feeding(self, name: str) -> Collection[str]:
        """Keys of the LocalQueues that lead to a ClusterQueue."""
        return self._fed_by.get(name, ())

    def delete_local_queue(self, key: str, *, now: datetime) -> None:
        """Remove a LocalQueue; its workloads wait for it to come back."""
        spec = self.local_queues.pop(key, None)
        if spec is not None:
            self._fed_by[spec.cluster_queue].discard(key)
            self._route_again([key], now)

    def add(self, workload: Workload, *, now: datetime) -> bool:
        """Let a workload wait where its LocalQueue says; returns true when it was only parked."""
        self._workloads.setdefault(workload.local_queue, {})[workload.key] = workload
        return self._route(workload, now)

    def refresh(self, workload: Workload) -> None:
        """Replace a waiting workload by a version that does not change its place."""
        self._workloads[workload.local_queue][workload.key] = workload
        name = self._queue_of.get(workload.key)
        if name is not None:
            self._queues[name].refresh(workload)

    def remove(self, workload: Workload, *, keeps_sticky: bool = False) -> None:
        """Let a workload go."""
        local_queue = workload.local_queue
        members = self._workloads.get(local_queue)
        if members is None or members.pop(workload.key, None) is None:
            return
        if not members:
            del self._workloads[local_queue]
        self._unroute(workload.key, keeps_sticky=keeps_sticky)

    @property
    def active_count(self) -> int:
        """Workloads in all heaps. O(queues)."""
        return sum(queue.active_count for queue in self._queues.values())

    def heads(self, *, is_open: Callable[[str], bool]) -> list[tuple[str, QueueItem]]:
        """Pop one workload of every queue that may admit, in order of queue names."""
        result = []
        for name in sorted(name for name, queue in self._queues.items() if queue.active_count):
            if is_open(name):
                item = self._queues[name].pop()
                if item is not None:
                    result.append((name, item))
        return result

    def requeue(self, name: str, item: QueueItem, *, reason: RequeueReason) -> None:
        """Take a head back."""
        queue = self._queues.get(name)
        if queue is not None:
            has_pending_flavors = any(index != -1 for index in item.last_tried.values())
            queue.requeue(item, reason=reason, has_pending_flavors=has_pending_flavors)

    def _new_queue(
        self, name: str, strategy: QueueingStrategy, *, is_usage_based: bool
    ) -> PendingQueue:
        queue = self._queues[name] = PendingQueue(
            name,
            strategy=strategy,
            hashes_equals=self._hashes_equals,
            usage_of=self._usage_of if is_usage_based else None,
        )
        return queue

    def _route_again(self, local_queues: Iterable[str], now: datetime) -> None:
        for local_queue in sorted(local_queues):
            for workload in self._workloads.get(local_queue, {}).values():
                self._unroute(workload.key)
                self._route(workload, now)

    def _route(self, workload: Workload, now: datetime) -> bool:
        spec = self.local_queues.get(workload.local_queue)
        refusal = self._why_not(workload, spec)
        if refusal is not None:
            self._unroute(workload.key)
            self._refusals[workload.key] = refusal
            return False
        self._refusals.pop(workload.key, None)
        assert spec is not None
        name = spec.cluster_queue
        if self._queue_of.get(workload.key, name) != name:
            self._unroute(workload.key)
        self._queue_of[workload.key] = name
        return self._queues[name].add(workload, now=now)[1]

    def _unroute(self, key: str, *, keeps_sticky: bool = False) -> None:
        self._refusals.pop(key, None)
        name = self._queue_of.pop(key, None)
        if name is not None:
            self._queues[name].remove(key, keeps_sticky=keeps_sticky)

    def _why_not(self, workload: Workload, spec: LocalQueueSpec | None) -> NotQueued | None:
        problem = workload.claim_problem()
        if problem is not None:
            return NotQueued("Misconfigured", problem.text)
        if workload.gated_by:
            return NotQueued("AdmissionGated", f"Admission is gated by: {workload.gated_by}")
        if workload.refused:
            return NotQueued("Misconfigured", workload.refused)
        if spec is None:
            return NotQueued("Misconfigured", f"LocalQueue {workload.queue_name} doesn't exist")
        if spec.stop_policy is not StopPolicy.NONE:
            return NotQueued("Suspended", f"LocalQueue {workload.queue_name} is inactive")
        if spec.cluster_queue not in self._queues:
            return NotQueued("Misconfigured", f"ClusterQueue {spec.cluster_queue} doesn't exist")
        return None
