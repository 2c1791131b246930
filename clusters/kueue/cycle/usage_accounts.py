"""When LocalQueues are charged for what their workloads get, and when a charge becomes usage.

Source: Kueue pkg/scheduler/scheduler.go, pkg/controller/core (workload and LocalQueue controllers),
v0.19.2.
"""

from __future__ import annotations

from datetime import datetime

from budgets.plan import StopPolicy
from clusters.kueue.queueing.queue_set import QueueSet
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import LocalQueueSpec
from clusters.kueue.workload.workloads import Workload


class UsageAccounts:
    """Keeps the ledger of admission fair sharing in step with what workloads hold."""

    def __init__(self, snapshot: Snapshot, queues: QueueSet) -> None:
        self._snapshot, self._queues = snapshot, queues
        self._ledger = snapshot.ledger

    def charge(self, workload: Workload, *, now: datetime) -> None:
        """Charge a LocalQueue for a reservation, where usage of the past orders workloads."""
        if self._counts(workload):
            requests = workload.total_requests()
            self._ledger.charge(workload.local_queue, workload.key, requests=requests, now=now)

    def settle(self, workload: Workload, *, now: datetime) -> None:
        """Make a workload's charge usage, now that it is admitted."""
        if self._counts(workload):
            assert workload.reservation is not None
            admitted = self._snapshot.admitted_of(
                workload.local_queue, queue=workload.reservation.cluster_queue
            )
            self._ledger.settle(workload.local_queue, workload.key, admitted=admitted, now=now)

    def sample(self, *, now: datetime) -> list[str]:
        """Bring LocalQueues up to date where that is due; returns their keys, in order fed."""
        return [
            key
            for key, spec in self._queues.local_queues.items()
            if self._admits(spec)
            and self._ledger.is_due(key, now=now)
            and self._ledger.sample(
                key,
                admitted=self._snapshot.admitted_of(key, queue=spec.cluster_queue),
                now=now,
            )
        ]

    def follow(self, before: Workload | None, after: Workload) -> None:
        """Forget a charge that a workload can settle no more, by what its document says now."""
        if before is None:
            return
        is_out = not after.is_active and after.reservation is None
        if before.queue_name != after.queue_name or after.is_finished or is_out:
            self._ledger.drop(before.local_queue, before.key)

    def _admits(self, spec: LocalQueueSpec) -> bool:
        queue = self._snapshot.queues.get(spec.cluster_queue)
        return spec.stop_policy is StopPolicy.NONE and queue is not None and queue.is_active

    def _counts(self, workload: Workload) -> bool:
        if self._ledger.rules is None or workload.reservation is None:
            return False
        queue = self._snapshot.queues.get(workload.reservation.cluster_queue)
        return queue is not None and queue.spec.is_usage_based


def becomes_admitted(before: Workload | None, after: Workload, *, is_assumed: bool) -> bool:
    """Whether a document is the first to say that a workload is admitted that was known before.

    ``is_assumed`` tells that what was known is a decision, not a document.
    """
    if before is None or not after.is_active or after.is_finished:
        return False
    return after.is_admitted and (is_assumed or not before.is_admitted)
