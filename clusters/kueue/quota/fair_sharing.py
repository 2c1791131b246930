"""Dominant resource shares, and the order of a cycle's entries under fair sharing.

Shares are float64 as in Kueue, so that equal decisions follow; nowhere else is a float allowed.

Source: Kueue pkg/cache/scheduler/fair_sharing.go, pkg/scheduler/fair_sharing_iterator.go, KEP-1714,
v0.19.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import total_ordering
from typing import Final, Protocol

from clusters.kueue.amounts import UNLIMITED, Usage
from clusters.kueue.quota.resource_node import ResourceNode
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.tree import ClusterQueueState, CohortState, most_lendable


@total_ordering
@dataclass(frozen=True, slots=True)
class Share:
    """How much more than its own a node uses, relative to what the tree could lend.

    Attributes:
        ratio: per mille of the dominant resource, not yet divided by the weight.
        weight: fair-sharing weight.
        resource: the dominant resource, empty when nothing lendable is borrowed.
        is_borrowing: true as well for what nobody could lend.
    """

    ratio: float = 0.0
    weight: float = 1.0
    resource: str = ""
    is_borrowing: bool = False

    @property
    def is_infinite(self) -> bool:
        """Whether a node of weight 0 borrows."""
        return self.weight == 0 and self.ratio > 0

    @property
    def sort_key(self) -> tuple[bool, float]:
        """Infinite shares above all others, among them by ratio."""
        if self.is_infinite:
            return (True, self.ratio)
        return (False, self.ratio / self.weight if self.ratio else 0.0)

    @property
    def published(self) -> int:
        """``status.fairSharing.weightedShare``: rounded up, the largest number when infinite."""
        return UNLIMITED if self.is_infinite else math.ceil(self.sort_key[1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Share) and self.sort_key == other.sort_key

    def __lt__(self, other: Share) -> bool:
        return self.sort_key < other.sort_key

    def __hash__(self) -> int:
        return hash(self.sort_key)


NO_SHARE: Final = Share()


def share_of(node: ResourceNode) -> Share:
    """Dominant resource share of a node; none for a root. O(pairs in use)."""
    if node.parent is None:
        return NO_SHARE
    borrowed: dict[str, int] = {}
    for key, used in node.usage.items():
        above = used - node.subtree_quota.get(key, 0)
        if above > 0:
            borrowed[key.resource] = borrowed.get(key.resource, 0) + above
    if not borrowed:
        return Share(weight=node.weight)
    ratio, dominant = 0.0, ""
    lendable = most_lendable(node)
    for resource in sorted(borrowed):
        most = lendable.get(resource, 0)
        if most > 0:
            value = float(borrowed[resource]) * 1000.0 / float(most)
            if value > ratio:
                ratio, dominant = value, resource
    return Share(ratio=ratio, weight=node.weight, resource=dominant, is_borrowing=True)


class Contender(Protocol):
    """An entry of the cycle, as the tournament sees it."""

    @property
    def queue(self) -> ClusterQueueState:
        """Its ClusterQueue, in the snapshot."""

    @property
    def usage(self) -> Usage:
        """What was assigned to it."""

    @property
    def priority(self) -> int:
        """Effective priority."""

    @property
    def queued_at(self) -> datetime:
        """Time that decides among equals."""

    @property
    def uid(self) -> str:
        """Last tie-break, ours."""


_Rank = tuple[bool, tuple[bool, float], int, datetime, str]


@dataclass(slots=True)
class _Tree:
    root: CohortState
    contenders: dict[str, Contender]
    ranks: dict[tuple[str, str], _Rank] = field(default_factory=dict)


def tournament(
    contenders: Sequence[Contender], *, snapshot: Snapshot, prioritizes_non_borrowing: bool
) -> Iterator[Contender]:
    """Yield entries so that whoever would have the lowest share comes first, again each time.

    The caller changes the snapshot between two entries; only the entries below the same child of
    the root as the last one are weighed again, as no other's share can have changed.

    Args:
        contenders: one per ClusterQueue, every queue takes part in the snapshot.
        snapshot: read, and changed within one step only.
        prioritizes_non_borrowing: whoever does not borrow wins over whoever does.
    """
    trees: dict[str, _Tree] = {}
    for item in contenders:
        cohort = snapshot.cohort_of(item.queue)
        if cohort is None:
            yield item
            continue
        while cohort.spec.parent:
            cohort = snapshot.cohorts[cohort.spec.parent]
        tree = trees.setdefault(cohort.spec.name, _Tree(cohort, {}))
        tree.contenders[item.queue.spec.name] = item
    for _, tree in sorted(trees.items()):
        stale = list(tree.contenders.values())
        while tree.contenders:
            for item in stale:
                _weigh(tree, item, prioritizes_non_borrowing=prioritizes_non_borrowing)
            winner = _winner(tree, tree.root)
            assert winner is not None
            del tree.contenders[winner.queue.spec.name]
            yield winner
            branch = _branch(winner)
            stale = [item for item in tree.contenders.values() if _branch(item) is branch]


def _branch(item: Contender) -> ResourceNode:
    path = item.queue.node.path()
    return path[-2]


def _weigh(tree: _Tree, item: Contender, *, prioritizes_non_borrowing: bool) -> None:
    """Note the rank of an entry at every Cohort above it, its usage added."""
    node = item.queue.node
    node.add_all(item.usage)
    name = item.queue.spec.name
    below = node
    while below.parent is not None:
        is_borrowing = prioritizes_non_borrowing and not below.is_within_nominal(item.usage.keys())
        tree.ranks[below.parent.name, name] = (
            is_borrowing,
            share_of(below).sort_key,
            -item.priority,
            item.queued_at,
            item.uid,
        )
        below = below.parent
    node.remove_all(item.usage)


def _winner(tree: _Tree, cohort: CohortState) -> Contender | None:
    rivals = [tree.contenders[name] for name in cohort.queues if name in tree.contenders]
    for child in cohort.cohorts.values():
        rival = _winner(tree, child)
        if rival is not None:
            rivals.append(rival)
    if not rivals:
        return None
    return min(rivals, key=lambda item: tree.ranks[cohort.spec.name, item.queue.spec.name])
