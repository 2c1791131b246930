"""The heads of a cycle, and what becomes of each.

Source: Kueue pkg/scheduler/scheduler.go, v0.19.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from clusters.kueue.amounts import Usage
from clusters.kueue.assignment.outcome import Assignment, AssignmentMode
from clusters.kueue.preemption.classic import Victim
from clusters.kueue.queueing.buckets import QueueItem
from clusters.kueue.queueing.queues import RequeueReason
from clusters.kueue.quota.tree import ClusterQueueState, Holding
from clusters.kueue.topology.tree import PlacedUse
from clusters.kueue.workload.workloads import Workload


class EntryStatus(Enum):
    """How far an entry got."""

    NOT_NOMINATED = auto()
    SKIPPED = auto()
    PREEMPTING = auto()
    ADMITTED = auto()
    EVICTED = auto()


@dataclass(slots=True, eq=False)
class Entry:
    """A head of this cycle and what becomes of it.

    Attributes:
        queue: its ClusterQueue.
        is_refused: it cannot be looked at; ``message`` and ``reason`` say why.
        targets: workloads to preempt.
        replaced: the older slice whose place it takes, where it can go on.
        message, reason: of the condition if it stays pending.
        places: what its pods take of the topology.
    """

    item: QueueItem
    queue: ClusterQueueState
    is_refused: bool = False
    assignment: Assignment = field(default_factory=Assignment)
    targets: list[Victim] = field(default_factory=list)
    replaced: Holding | None = None
    outcome: AssignmentMode = AssignmentMode.NO_FIT
    status: EntryStatus = EntryStatus.NOT_NOMINATED
    requeue_reason: RequeueReason = RequeueReason.GENERIC
    message: str = ""
    reason: str = "WaitingForQuota"
    places: tuple[PlacedUse, ...] = ()

    @property
    def is_second_pass(self) -> bool:
        """Whether it holds quota already and looks for domains only."""
        return self.item.workload.reservation is not None

    @property
    def usage(self) -> Usage:
        """Quota that it takes beyond what it holds."""
        return {} if self.is_second_pass else self.assignment.usage

    @property
    def leaving(self) -> dict[str, Holding]:
        """What goes when this entry goes on, by workload key."""
        holdings = [target.holding for target in self.targets]
        if self.replaced is not None:
            holdings.append(self.replaced)
        return {holding.workload.key: holding for holding in holdings}

    @property
    def workload(self) -> Workload:
        """The workload that is looked at."""
        return self.item.workload
