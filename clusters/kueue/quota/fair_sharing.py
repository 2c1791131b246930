"""Dominant resource shares.

Shares are float64 as in Kueue, so that equal decisions follow; nowhere else is a float allowed.

Source: Kueue pkg/cache/scheduler/fair_sharing.go, KEP-1714, v0.19.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import total_ordering
from typing import Final

from clusters.kueue.amounts import UNLIMITED, ZERO, Amount, add, subtract, whole
from clusters.kueue.quota.resource_node import ResourceNode


@total_ordering
@dataclass(frozen=True, slots=True)
class DominantShare:
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
        return whole(UNLIMITED) if self.is_infinite else math.ceil(self.sort_key[1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DominantShare) and self.sort_key == other.sort_key

    def __lt__(self, other: DominantShare) -> bool:
        return self.sort_key < other.sort_key

    def __hash__(self) -> int:
        return hash(self.sort_key)


NO_SHARE: Final = DominantShare()


def share_of(node: ResourceNode) -> DominantShare:
    """Dominant resource share of a node; none for a root. O(pairs in use)."""
    if node.parent is None:
        return NO_SHARE
    borrowed: dict[str, Amount] = {}
    for key, used in node.usage.items():
        quota = node.subtree_quota.get(key, ZERO)
        if used > quota:
            above = subtract(used, quota)
            borrowed[key.resource] = add(borrowed.get(key.resource, ZERO), above)
    if not borrowed:
        return DominantShare(weight=node.weight)
    ratio, dominant = 0.0, ""
    lendable = node.parent.lendable
    for resource in sorted(borrowed):
        most = whole(lendable.get(resource, ZERO))
        if most > 0:
            value = float(whole(borrowed[resource])) * 1000.0 / float(most)
            if value > ratio:
                ratio, dominant = value, resource
    return DominantShare(ratio=ratio, weight=node.weight, resource=dominant, is_borrowing=True)
