"""Pending workloads of one ClusterQueue: the heap, what is parked, and what brings it back.

Workloads that the scheduler cannot tell apart share a group, and a whole group is parked or woken
in one step; a wake-up costs the number of groups, not of workloads.

Source: Kueue pkg/cache/queue/cluster_queue.go, manager.go, v0.19.2. Deviation: Kueue moves parked
workloads one by one; order and sets are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from enum import Enum, auto
from typing import TypeAlias

from clusters.kueue.queueing.buckets import EquivalenceClass, Lane, Order, QueueItem
from clusters.kueue.quota.specifications import QueueingStrategy
from clusters.kueue.workload.workloads import Workload


class RequeueReason(Enum):
    """Why a head comes back without having been admitted."""

    GENERIC = auto()
    FAILED_AFTER_NOMINATION = auto()
    PENDING_PREEMPTION = auto()
    NO_FIT = auto()
    PREEMPTION_NO_CANDIDATES = auto()
    NAMESPACE_MISMATCH = auto()


_AT_ONCE = frozenset({RequeueReason.FAILED_AFTER_NOMINATION, RequeueReason.PENDING_PREEMPTION})
_SAME_FOR_EQUALS = frozenset({RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES})


UsageOf: TypeAlias = Callable[[str], float]
"""Tells a LocalQueue's usage by its key."""


class PendingQueue:
    """Everything that waits in one ClusterQueue; ``active_count`` is that of its heap."""

    def __init__(
        self,
        name: str,
        *,
        strategy: QueueingStrategy,
        hashes_equals: bool,
        usage_of: UsageOf | None = None,
    ) -> None:
        """Start empty; with ``usage_of``, usage of LocalQueues goes before priority and time."""
        self.name = name
        self.strategy = strategy
        self._usage_of = usage_of
        self._hashes_equals = hashes_equals
        self._items: dict[str, QueueItem] = {}
        self._groups: dict[str, dict[str, EquivalenceClass]] = {}
        self._lanes: dict[str, Lane] = {}
        self._backing_off: dict[str, QueueItem] = {}
        self._unschedulable: dict[str, str] = {}
        self._sticky = ""
        self._sequence = 0
        self.active_count = 0
        self._pops = 0
        self._woken_at = -1

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_usage_based(self) -> bool:
        """Whether usage of LocalQueues orders the workloads."""
        return self._usage_of is not None

    def item(self, key: str) -> QueueItem | None:
        """A pending workload, in flight ones included."""
        return self._items.get(key)

    def items(self) -> Iterable[QueueItem]:
        """Every pending workload, in no order."""
        return self._items.values()

    def add(self, workload: Workload, *, now: datetime) -> tuple[QueueItem, bool]:
        """Take in a workload, anew if it was here.

        Returns:
            The item, and true when it was parked at once because an equal one just failed.
        """
        self.remove(workload.key, keeps_sticky=True)
        item = self._take_in(QueueItem(workload))
        if not workload.is_backoff_over(now):
            self._backing_off[item.key] = item
            return item, False
        if self._is_best_effort and workload.shape_hash in self._unschedulable:
            self._park(item)
            return item, True
        self._activate(item)
        return item, False

    def adopt(self, other: PendingQueue) -> None:
        """Become a copy of another queue that has none in flight: what is parked stays parked."""
        self._sticky = other._sticky
        self._unschedulable = dict(other._unschedulable)
        self._sequence = other._sequence
        for shape_hash, by_namespace in other._groups.items():
            copies = {name: group.copy() for name, group in by_namespace.items()}
            self._groups[shape_hash] = copies
            for group in copies.values():
                self._items.update(group.active.members)
                self._items.update(group.parked.members)
                self.active_count += len(group.active.members)
                self._advertise(group)
        for item in other._backing_off.values():
            self._backing_off[item.key] = self._take_in(item.copy())

    def refresh(self, workload: Workload) -> None:
        """Replace a workload by a version that does not change its place."""
        self._items[workload.key].workload = workload

    def remove(self, key: str, *, keeps_sticky: bool = False) -> bool:
        """Let a workload go; returns whether it was here."""
        item = self._items.pop(key, None)
        if item is None:
            return False
        self._detach(item)
        if not keeps_sticky:
            self.forget_preemptor(key)
        return True

    def forget_preemptor(self, key: str) -> None:
        """End the precedence that a workload has since it caused preemptions."""
        if self._sticky == key:
            self._sticky = ""

    def pop(self) -> QueueItem | None:
        """Take the head; it stays pending, in flight, until it is requeued or removed."""
        item = self._first()
        if item is None:
            return None
        self._pops += 1
        self._detach(item)
        return item

    def requeue(self, item: QueueItem, *, reason: RequeueReason, has_pending_flavors: bool) -> None:
        """Take a head back, to the heap or parked."""
        if self._items.get(item.key) is not item:
            return
        is_best_effort = self._is_best_effort
        if is_best_effort and reason is RequeueReason.PENDING_PREEMPTION:
            self._sticky = item.key
        if is_best_effort:
            was_woken = self._woken_at >= self._pops
            at_once = reason in _AT_ONCE or was_woken or has_pending_flavors
        else:
            at_once = reason is not RequeueReason.NAMESPACE_MISMATCH
        if at_once:
            self._activate(item)
            return
        self._park(item)
        if is_best_effort and self._hashes_equals and reason in _SAME_FOR_EQUALS:
            self._park_equals(item.workload.shape_hash, reason=item.reason)

    def wake(self, *, is_welcome: Callable[[str], bool], now: datetime) -> bool:
        """Move what is parked, in namespaces that are welcome, back to the heap.

        Returns whether anything moved.
        """
        self._woken_at = self._pops
        self._unschedulable.clear()
        before = self.active_count
        for group in self._all_groups():
            if group.parked.members and is_welcome(group.namespace):
                self.active_count += len(group.parked.members)
                group.wake()
                self._advertise(group)
        for item in list(self._backing_off.values()):
            if item.workload.is_backoff_over(now) and is_welcome(item.workload.namespace):
                del self._backing_off[item.key]
                self._activate(item)
        return self.active_count != before

    def is_active(self, key: str) -> bool:
        """Whether a workload is in the heap: tried again without anything having to change."""
        item = self._items.get(key)
        group = self._group_of(item) if item is not None else None
        return group is not None and key in group.active.members

    def reason_of_equals(self, key: str) -> str:
        """Why the last equal one of a parked workload found no room; empty where none was tried."""
        item = self._items.get(key)
        if item is None or self.is_active(key):
            return ""
        return self._unschedulable.get(item.workload.shape_hash, "")

    def active_keys(self) -> list[str]:
        """Keys in the heap, in the order in which they would be popped."""
        items = [item for group in self._all_groups() for item in group.active.members.values()]
        return self._in_order(items)

    def parked_keys(self) -> list[str]:
        """Keys that are parked, in the order in which they would be popped."""
        return self._in_order(list(self._parked()))

    def _in_order(self, items: list[QueueItem]) -> list[str]:
        if len(items) > 1:
            items.sort(key=self._rank)
        return [item.key for item in items]

    def _parked(self) -> Iterator[QueueItem]:
        for group in self._all_groups():
            yield from group.parked.members.values()
        yield from self._backing_off.values()

    def _take_in(self, item: QueueItem) -> QueueItem:
        self._items[item.key] = item
        return item

    @property
    def _is_best_effort(self) -> bool:
        return self.strategy is QueueingStrategy.BEST_EFFORT_FIFO

    def _all_groups(self) -> Iterator[EquivalenceClass]:
        for by_namespace in self._groups.values():
            yield from by_namespace.values()

    def _group(self, item: QueueItem) -> EquivalenceClass:
        peers = self._groups.setdefault(item.workload.shape_hash, {})
        name = self._peers_name(item.workload)
        group = peers.get(name)
        if group is None:
            lane = name if self._usage_of is not None else ""
            group = peers[name] = EquivalenceClass(item.workload.namespace, lane)
        return group

    def _peers_name(self, workload: Workload) -> str:
        """What tells apart, among workloads of one shape, those that are not moved together."""
        return workload.namespace if self._usage_of is None else workload.local_queue

    def _group_of(self, item: QueueItem) -> EquivalenceClass | None:
        peers = self._groups.get(item.workload.shape_hash, {})
        return peers.get(self._peers_name(item.workload))

    def _activate(self, item: QueueItem) -> None:
        group = self._group(item)
        self._sequence += 1
        group.active.push(item, self._sequence)
        self.active_count += 1
        self._advertise(group)

    def _park(self, item: QueueItem) -> None:
        self._sequence += 1
        self._group(item).parked.push(item, self._sequence)

    def _park_equals(self, shape_hash: str, *, reason: str) -> None:
        self._unschedulable[shape_hash] = reason
        for group in self._groups.get(shape_hash, {}).values():
            if group.active.members:
                self.active_count -= len(group.active.members)
                group.park()
                group.advertised = None

    def _detach(self, item: QueueItem) -> None:
        """Take an item out of wherever it waits."""
        if self._backing_off.pop(item.key, None) is not None:
            return
        group = self._group_of(item)
        if group is None:
            return
        if group.active.discard(item.key):
            self.active_count -= 1
            self._advertise(group)
        else:
            group.parked.discard(item.key)
        if not group.active.members and not group.parked.members:
            peers = self._groups[item.workload.shape_hash]
            del peers[self._peers_name(item.workload)]
            if not peers:
                del self._groups[item.workload.shape_hash]

    def _advertise(self, group: EquivalenceClass) -> None:
        self._sequence += 1
        lane = self._lanes.get(group.lane)
        if lane is None:
            lane = self._lanes[group.lane] = Lane()
        lane.advertise(group, self._sequence)

    def _sticky_item(self) -> QueueItem | None:
        is_first = self._is_best_effort and self.is_active(self._sticky)
        return self._items[self._sticky] if is_first else None

    def _first(self) -> QueueItem | None:
        """The head: the preemptor, else the first; where usage orders, of who used least."""
        sticky = self._sticky_item()
        if self._usage_of is None:
            lane = self._lanes.get("")
            return sticky or (lane.first() if lane is not None else None)
        found = {name: lane.first() for name, lane in self._lanes.items()}
        self._lanes = {name: lane for name, lane in self._lanes.items() if found[name] is not None}
        firsts = [item for item in found.values() if item is not None]
        if sticky is not None:
            firsts.append(sticky)
        return min(firsts, key=self._rank, default=None)

    def _rank(self, item: QueueItem) -> tuple[float, bool, Order]:
        usage = self._usage_of(item.workload.local_queue) if self._usage_of is not None else 0.0
        is_sticky = self._is_best_effort and item.key == self._sticky
        return (usage, not is_sticky, item.workload.order)
