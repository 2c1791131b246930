"""Quota arithmetic of one node in the tree of Cohorts: what it owns, lends, borrows and has left.

A leaf is a ClusterQueue, an inner node a Cohort. Usage of a leaf is a fact; usage of a Cohort is
what its children exceed their guaranteed part by. Nothing here knows workloads.

Source: Kueue pkg/cache/scheduler/resource_node.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from clusters.kueue.amounts import UNLIMITED, ZERO, Amount, FlavorResource, Usage, add, subtract


@dataclass(frozen=True, slots=True)
class Quota:
    """Declared numbers of one (flavor, resource); ``None`` means that no limit is set."""

    nominal: Amount
    borrowing_limit: Amount | None = None
    lending_limit: Amount | None = None


NO_QUOTA: Final = Quota(nominal=ZERO)


@dataclass(slots=True, eq=False)
class ResourceNode:
    """One node: quotas as declared, subtree quota and usage as derived.

    Attributes:
        name: of the ClusterQueue or Cohort.
        quotas: declared numbers.
        weight: fair-sharing weight, 1 unless declared.
        parent: the Cohort above, ``None`` at a root.
        subtree_quota: what the node owns or can pass on, see ``rebuild``.
        guaranteed: the part of ``subtree_quota`` that is not lent.
        usage: amounts in use; in a Cohort, what its children exceed their guaranteed part by.
        height: 0 for a ClusterQueue, the distance to the farthest leaf for a Cohort.
        lendable: per resource, what the whole tree could give at most (fair shares divide by it).
        borrowers: children that use more than their subtree quota, by (flavor, resource).
    """

    name: str
    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    weight: float = 1.0
    parent: ResourceNode | None = None
    subtree_quota: dict[FlavorResource, Amount] = field(default_factory=dict)
    guaranteed: dict[FlavorResource, Amount] = field(default_factory=dict)
    usage: dict[FlavorResource, Amount] = field(default_factory=dict)
    height: int = 0
    lendable: dict[str, Amount] = field(default_factory=dict)
    borrowers: dict[FlavorResource, dict[ResourceNode, None]] = field(default_factory=dict)

    def nominal(self, key: FlavorResource) -> Amount:
        """Declared nominal quota."""
        return self.quotas.get(key, NO_QUOTA).nominal

    def local_available(self, key: FlavorResource) -> Amount:
        """Guaranteed quota that is still free."""
        return max(ZERO, subtract(self.guaranteed.get(key, ZERO), self.usage.get(key, ZERO)))

    def available(self, key: FlavorResource) -> Amount:
        """What the node can still take; negative at a root that is over-admitted. O(depth)."""
        used = self.usage.get(key, ZERO)
        subtree = self.subtree_quota.get(key, ZERO)
        if self.parent is None:
            return subtract(subtree, used)
        guaranteed = self.guaranteed.get(key, ZERO)
        from_parent = self.parent.available(key)
        limit = self.quotas.get(key, NO_QUOTA).borrowing_limit
        if limit is not None:
            lent = subtract(subtree, guaranteed)
            above = max(ZERO, subtract(used, guaranteed))
            from_parent = min(from_parent, add(subtract(lent, above), limit))
        return add(max(ZERO, subtract(guaranteed, used)), from_parent)

    def potential(self, key: FlavorResource) -> Amount:
        """The most that could ever be available, if nobody used anything. O(depth)."""
        subtree = self.subtree_quota.get(key, ZERO)
        if self.parent is None:
            return subtree
        most = add(self.guaranteed.get(key, ZERO), self.parent.potential(key))
        limit = self.quotas.get(key, NO_QUOTA).borrowing_limit
        return most if limit is None else min(most, add(subtree, limit))

    def add(self, key: FlavorResource, amount: Amount) -> None:
        """Add usage here, and above what the guaranteed part cannot hold. O(depth)."""
        free = self.local_available(key)
        used = self.usage[key] = add(self.usage.get(key, ZERO), amount)
        if self.parent is None:
            return
        if used > self.subtree_quota.get(key, ZERO):
            self.parent.borrowers.setdefault(key, {})[self] = None
        if amount > free:
            self.parent.add(key, subtract(amount, free))

    def remove(self, key: FlavorResource, amount: Amount) -> None:
        """Take usage away, first from what was kept above. O(depth).

        A negative amount undoes its addition, which had changed nothing above.
        """
        used = self.usage.get(key, ZERO)
        above = subtract(used, self.guaranteed.get(key, ZERO))
        left = subtract(used, amount)
        if left:
            self.usage[key] = left
        else:
            self.usage.pop(key, None)
        if self.parent is None:
            return
        if left <= self.subtree_quota.get(key, ZERO) and key in self.parent.borrowers:
            self.parent.borrowers[key].pop(self, None)
        if above > ZERO and amount > ZERO:
            self.parent.remove(key, min(amount, above))

    def add_all(self, usage: Usage) -> None:
        """Add every amount of ``usage``."""
        for key, amount in usage.items():
            if amount:
                self.add(key, amount)

    def remove_all(self, usage: Usage) -> None:
        """Take every amount of ``usage`` away."""
        for key, amount in usage.items():
            if amount:
                self.remove(key, amount)

    def exceeds_with(self, key: FlavorResource, amount: Amount) -> bool:
        """Whether ``amount`` more would go beyond the subtree quota: the node would borrow."""
        return add(self.usage.get(key, ZERO), amount) > self.subtree_quota.get(key, ZERO)

    def is_within_nominal(self, keys: Collection[FlavorResource]) -> bool:
        """Whether none of ``keys`` is borrowed."""
        # A plain loop: preemption asks this of every queue of a tree.
        usage, subtree = self.usage, self.subtree_quota
        for key in keys:  # noqa: SIM110 - three times as fast as all()
            if usage.get(key, ZERO) > subtree.get(key, ZERO):
                return False
        return True

    def fits_in_quota(self, requests: Usage) -> tuple[bool, dict[FlavorResource, Amount]]:
        """Whether the node's own subtree holds ``requests``; and what to ask the parent for."""
        fits = not any(self.exceeds_with(key, amount) for key, amount in requests.items())
        rest = {
            key: max(ZERO, subtract(amount, self.local_available(key)))
            for key, amount in requests.items()
        }
        return fits, rest

    def borrowing_level(self, key: FlavorResource, amount: Amount) -> tuple[int, bool]:
        """Height of the lowest subtree that holds ``amount`` more.

        Returns:
            The height (0: the node itself) and whether quota may be reclaimed from outside of that
            subtree. O(depth).
        """
        if self.parent is None or not self.exceeds_with(key, amount):
            return 0, self.parent is not None
        rest = subtract(amount, self.local_available(key))
        ancestor = self.parent
        while True:
            if not ancestor.exceeds_with(key, rest):
                return ancestor.height, ancestor.parent is not None
            if ancestor.parent is None:
                return ancestor.height, False
            rest = subtract(rest, ancestor.local_available(key))
            ancestor = ancestor.parent

    def path(self) -> list[ResourceNode]:
        """The node and its ancestors, bottom-up."""
        nodes = [self]
        while (parent := nodes[-1].parent) is not None:
            nodes.append(parent)
        return nodes

    def path_text(self) -> str:
        """``/root/.../name``, as messages print it."""
        return "/" + "/".join(node.name for node in reversed(self.path()))

    def declare_leaf(self) -> None:
        """Derive a ClusterQueue's own numbers from its quotas."""
        self.subtree_quota = {key: quota.nominal for key, quota in self.quotas.items()}
        self.set_guaranteed()

    def set_guaranteed(self) -> None:
        """Derive the part that is not lent from subtree quota and lending limits."""
        self.guaranteed = {
            key: max(ZERO, subtract(self.subtree_quota.get(key, ZERO), quota.lending_limit))
            for key, quota in self.quotas.items()
            if quota.lending_limit is not None
        }

    def collect(self, children: Collection[ResourceNode]) -> None:
        """Derive a Cohort's subtree quota and usage from its quotas and its children."""
        subtree = {key: quota.nominal for key, quota in self.quotas.items()}
        usage: dict[FlavorResource, Amount] = {}
        self.borrowers = {}
        for child in children:
            for key, quota in child.subtree_quota.items():
                lent = subtract(quota, child.guaranteed.get(key, ZERO))
                subtree[key] = add(subtree.get(key, ZERO), lent)
            for key, used in child.usage.items():
                above = max(ZERO, subtract(used, child.guaranteed.get(key, ZERO)))
                if above:
                    usage[key] = add(usage.get(key, ZERO), above)
                if used > child.subtree_quota.get(key, ZERO):
                    self.borrowers.setdefault(key, {})[child] = None
        self.subtree_quota = subtree
        self.usage = usage
        self.set_guaranteed()

    def set_lendable(self, keys: Collection[FlavorResource]) -> None:
        """Sum, per resource, the potential of every (flavor, resource) of the tree at this node."""
        self.lendable = {}
        for key in keys:
            total = add(self.lendable.get(key.resource, ZERO), self.potential(key))
            self.lendable[key.resource] = min(UNLIMITED, total)
