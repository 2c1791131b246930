"""Ordered sets of pending workloads that can be parked and woken as a whole.

Source: of the order, Kueue pkg/cache/queue/cluster_queue.go, v0.19.2.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from clusters.kueue.assignment.outcome import FlavorAttempt
from clusters.kueue.workload.workloads import Workload

_FEW_TOPS: Final = 64
Order: TypeAlias = tuple[int, datetime, str]
HeapEntry: TypeAlias = tuple[Order, int, "QueueItem"]


@dataclass(slots=True, eq=False)
class QueueItem:
    """A pending workload and what earlier cycles left behind for the next.

    Attributes:
        sequence: tells entries of the same workload apart after it moved.
        last_tried: index of the last flavor looked at, by pod set and resource.
        tried_generation: generation of the ClusterQueue at that time.
        tried_cycle: number of that cycle.
        message: last pending message.
        reason: last pending reason.
        attempts: flavors looked at in the last cycle.
    """

    workload: Workload
    sequence: int = 0
    last_tried: Mapping[tuple[str, str], int] = field(default_factory=dict)
    tried_generation: int = 0
    tried_cycle: int = 0
    message: str = ""
    reason: str = ""
    attempts: tuple[FlavorAttempt, ...] = ()

    def copy(self) -> QueueItem:
        """The same item for another queue, sharing what never changes."""
        return QueueItem(
            self.workload,
            self.sequence,
            self.last_tried,
            self.tried_generation,
            self.tried_cycle,
            self.message,
            self.reason,
            self.attempts,
        )

    @property
    def key(self) -> str:
        """Key of the workload."""
        return self.workload.key


@dataclass(slots=True, eq=False)
class Bucket:
    """Workloads in order; entries of members that left stay in the heap until they surface."""

    members: dict[str, QueueItem] = field(default_factory=dict)
    heap: list[HeapEntry] = field(default_factory=list)

    def copy(self) -> Bucket:
        """The same with copies of its members. O(members)."""
        members = {key: item.copy() for key, item in self.members.items()}
        heap = [
            (entry[0], entry[1], members[entry[2].key])
            for entry in self.heap
            if self.is_member(entry)
        ]
        if len(heap) != len(self.heap):
            heapq.heapify(heap)
        return Bucket(members, heap)

    def push(self, item: QueueItem, sequence: int) -> None:
        """Let an item in."""
        item.sequence = sequence
        self.members[item.key] = item
        heapq.heappush(self.heap, (item.workload.order, sequence, item))

    def discard(self, key: str) -> bool:
        """Let a member go; returns whether it was one."""
        if self.members.pop(key, None) is None:
            return False
        if len(self.heap) > 2 * len(self.members) + 16:
            self.heap = [entry for entry in self.heap if self.is_member(entry)]
            heapq.heapify(self.heap)
        return True

    def top(self) -> HeapEntry | None:
        """The first member's entry, ``None`` when there is no member."""
        while self.heap and not self.is_member(self.heap[0]):
            heapq.heappop(self.heap)
        return self.heap[0] if self.heap else None

    def take_in(self, other: Bucket) -> None:
        """Move every member of another bucket here."""
        for entry in other.heap:
            if other.is_member(entry):
                heapq.heappush(self.heap, entry)
        self.members.update(other.members)
        other.heap, other.members = [], {}

    def is_member(self, entry: HeapEntry) -> bool:
        """Whether an entry still stands for a member."""
        item = self.members.get(entry[2].key)
        return item is entry[2] and item.sequence == entry[1]


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """Workloads of one shape, priority and namespace; where usage orders, of one LocalQueue.

    Attributes:
        lane: key of the LocalQueue where its usage decides, empty elsewhere.
    """

    namespace: str
    lane: str = ""
    active: Bucket = field(default_factory=Bucket)
    parked: Bucket = field(default_factory=Bucket)
    advertised: HeapEntry | None = None

    def copy(self) -> EquivalenceClass:
        """The same with copies of its members, not advertised."""
        return EquivalenceClass(self.namespace, self.lane, self.active.copy(), self.parked.copy())

    def park(self) -> None:
        """Park every active member."""
        self.active, self.parked = _joined(self.active, self.parked)

    def wake(self) -> None:
        """Make every parked member active."""
        self.parked, self.active = _joined(self.parked, self.active)


@dataclass(slots=True, eq=False)
class Lane:
    """Classes that compete by order alone, each with its first active member."""

    tops: list[tuple[Order, int, EquivalenceClass, HeapEntry]] = field(default_factory=list)
    most: int = _FEW_TOPS

    def advertise(self, group: EquivalenceClass, sequence: int) -> None:
        """Show the first active member of a class, if it is another than before."""
        top = group.active.top()
        if top is None:
            group.advertised = None
        elif group.advertised is not top:
            group.advertised = top
            heapq.heappush(self.tops, (top[0], sequence, group, top))
            if len(self.tops) > self.most:
                self._sweep()

    def first(self) -> QueueItem | None:
        """The first of all active members."""
        while self.tops:
            _, _, group, entry = self.tops[0]
            if group.advertised is entry and group.active.top() is entry:
                return entry[2]
            heapq.heappop(self.tops)
        return None

    def _sweep(self) -> None:
        """Drop what is no longer shown; behind a stuck head it never surfaces."""
        self.tops = [item for item in self.tops if item[2].advertised is item[3]]
        heapq.heapify(self.tops)
        self.most = max(_FEW_TOPS, 2 * len(self.tops))


def _joined(source: Bucket, sink: Bucket) -> tuple[Bucket, Bucket]:
    """Empty bucket and the union; the smaller moves into the larger."""
    if len(source.members) > len(sink.members):
        source, sink = sink, source
    sink.take_in(source)
    return source, sink
