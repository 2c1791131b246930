"""The heads of a cycle, and what becomes of each.

Source: Kueue pkg/scheduler/scheduler.go, v0.19.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto

from clusters.kueue.amounts import Usage
from clusters.kueue.assignment.outcome import Assignment, Outcome
from clusters.kueue.preemption.classic import Target
from clusters.kueue.queueing.buckets import QueueItem
from clusters.kueue.queueing.queues import RequeueReason
from clusters.kueue.quota.tree import ClusterQueueState
from clusters.kueue.workload.workloads import Workload


class Standing(Enum):
    """How far an entry got."""

    NOT_NOMINATED = auto()
    SKIPPED = auto()
    PREEMPTING = auto()
    ADMITTED = auto()


@dataclass(slots=True, eq=False)
class Entry:
    """A head of this cycle and what becomes of it.

    Attributes:
        queue: its ClusterQueue; ``None`` when it cannot be looked at.
        message, reason: of the condition if it stays pending.
    """

    item: QueueItem
    queue_name: str
    queue: ClusterQueueState | None = None
    assignment: Assignment = field(default_factory=Assignment)
    targets: list[Target] = field(default_factory=list)
    outcome: Outcome = Outcome.NO_FIT
    standing: Standing = Standing.NOT_NOMINATED
    requeue_reason: RequeueReason = RequeueReason.GENERIC
    message: str = ""
    reason: str = "WaitingForQuota"

    @property
    def workload(self) -> Workload:
        """The workload that is looked at."""
        return self.item.workload


@dataclass(frozen=True, slots=True)
class EntryContender:
    """An entry as the fair-sharing tournament sees it."""

    entry: Entry
    queue: ClusterQueueState

    @property
    def usage(self) -> Usage:
        """What was assigned to it."""
        return self.entry.assignment.usage

    @property
    def priority(self) -> int:
        """Effective priority."""
        return self.entry.workload.priority

    @property
    def queued_at(self) -> datetime:
        """Time that decides among equals."""
        return self.entry.workload.queued_at

    @property
    def uid(self) -> str:
        """Last tie-break."""
        return self.entry.workload.uid
