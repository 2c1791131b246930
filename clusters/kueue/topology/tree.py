"""The domains of one flavor's nodes, and what is free in them.

Source: Kueue pkg/cache/scheduler/{tas_topology_tree,tas_flavor,tas_flavor_snapshot}.go, v0.19.2.
Deviation: one live tree instead of a snapshot in each cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from clusters.documents.labels import HOSTNAME
from clusters.kueue.topology.nodes import PODS, Amounts, NodeSpec
from clusters.kueue.workload.matching import Toleration
from clusters.kueue.workload.placement import Placement, domain_name

_MOST_PODS: Final = 2**31 - 1
# Changes of leaves that are remembered.
MOST_TOUCHED: Final = 8192


@dataclass(slots=True, eq=False)
class Domain:
    """A domain.

    Attributes:
        name: unique within its level.
        values: of the levels down to this one.
    """

    name: str
    values: tuple[str, ...]
    parent: Domain | None = None
    children: list[Domain] = field(default_factory=list)

    def above(self, level: int) -> Domain:
        """The domain of a coarser level that this one lies in, itself for its own."""
        domain = self
        while len(domain.values) - 1 > level and domain.parent is not None:
            domain = domain.parent
        return domain


@dataclass(slots=True, eq=False)
class Leaf(Domain):
    """A domain of the lowest level.

    Attributes:
        node: its node, where the lowest level is the hostname.
        nodes: names of its nodes, all of them.
        free: allocatable amounts less what pods without a placement take; may be negative.
        rest: ``free`` less what placed workloads take.
    """

    node: NodeSpec | None = None
    nodes: set[str] = field(default_factory=set)
    free: dict[str, int] = field(default_factory=dict)
    rest: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlacedUse:
    """What the pods of one pod set take in one domain of a flavor.

    Attributes:
        requests: of one pod, without the pod itself.
        total: of all of them, pods included.
    """

    flavor: str
    domain: str
    count: int
    requests: Amounts
    total: Amounts


class Touched:
    """Names of leaves whose amounts changed, in order; only the last ones are kept.

    Attributes:
        now: how many there were so far.
    """

    def __init__(self) -> None:
        self.now = 0
        self._names: list[str] = []

    def add(self, name: str) -> None:
        """A leaf changed."""
        self.now += 1
        self._names.append(name)
        if len(self._names) > MOST_TOUCHED:
            del self._names[: MOST_TOUCHED // 2]

    def since(self, then: int) -> set[str] | None:
        """Leaves that changed since; ``None`` where that is too long ago to know."""
        count = self.now - then
        if count > len(self._names):
            return None
        return set(self._names[len(self._names) - count :])


class TopologyTree:
    """Domains of the nodes of one flavor, and their use.

    Attributes:
        topology: name of the topology.
        levels: labels from coarse to fine.
        is_by_host: whether a domain of the lowest level is a node.
        by_level: domains by name, level by level.
        leaves: domains of the lowest level by name.
        leaf_of: the same by name of each node.
        usage: amounts in use by domain, also of domains that are gone.
        touched: leaves whose use changed; nothing of nodes that come, go or change.
    """

    def __init__(
        self,
        topology: str,
        *,
        levels: Sequence[str],
        node_labels: Mapping[str, str],
        tolerations: Sequence[Toleration],
    ) -> None:
        self.topology = topology
        self.levels = tuple(levels)
        self.node_labels = node_labels
        self.tolerations = tuple(tolerations)
        self.is_by_host = self.levels[-1] == HOSTNAME
        self.by_level: list[dict[str, Domain]] = []
        self.leaves: dict[str, Leaf] = {}
        self.leaf_of: dict[str, Leaf] = {}
        self.usage: dict[str, dict[str, int]] = {}
        self.touched = Touched()

    def build(self, nodes: Iterable[NodeSpec], *, pods: Mapping[str, Amounts]) -> None:
        """Make the domains of these nodes anew; usage stays.

        Args:
            nodes: usable members of the flavor.
            pods: what pods without a placement take, by node.
        """
        self.by_level = [{} for _ in self.levels]
        self.leaves, self.leaf_of = {}, {}
        for node in nodes:
            self.add(node, pods=pods.get(node.name, {}))

    def is_shared(self, node: NodeSpec) -> bool:
        """Whether another node has the same hostname: which of them counts, only order tells."""
        leaf = self.leaves.get(node.labels[self.levels[-1]]) if self.is_by_host else None
        return leaf is not None and leaf.nodes != {node.name}

    def add(self, node: NodeSpec, *, pods: Amounts) -> None:
        """Take in a usable member that is new. O(depth).

        Args:
            node: of the flavor.
            pods: what pods without a placement take there.
        """
        values = tuple(node.labels[level] for level in self.levels)
        name = values[-1] if self.is_by_host else domain_name(values)
        leaf = self.leaves.get(name)
        if leaf is None:
            leaf = Leaf(name, values, node=node if self.is_by_host else None)
            self.leaves[name] = self.by_level[-1][name] = leaf
            self._connect(leaf)
            subtract_amounts(leaf.rest, self.usage.get(name, {}))
        leaf.nodes.add(node.name)
        self.leaf_of[node.name] = leaf
        for amounts in (leaf.free, leaf.rest):
            add_amounts(amounts, node.allocatable)
            subtract_amounts(amounts, pods)

    def remove(self, node: NodeSpec, *, pods: Amounts) -> None:
        """Undo ``add``; domains without a node are gone. O(depth and siblings)."""
        leaf = self.leaf_of.pop(node.name)
        leaf.nodes.discard(node.name)
        for amounts in (leaf.free, leaf.rest):
            subtract_amounts(amounts, node.allocatable)
            add_amounts(amounts, pods)
        if leaf.nodes:
            return
        del self.leaves[leaf.name]
        domain: Domain | None = leaf
        while domain is not None and not domain.children:
            del self.by_level[len(domain.values) - 1][domain.name]
            above = domain.parent
            if above is not None:
                above.children.remove(domain)
            domain = above

    def _connect(self, domain: Domain) -> None:
        while len(domain.values) > 1:
            values = domain.values[:-1]
            name = domain_name(values)
            level = self.by_level[len(values) - 1]
            parent = level.get(name)
            is_new = parent is None
            if parent is None:
                parent = level[name] = Domain(name, values)
            domain.parent = parent
            parent.children.append(domain)
            if not is_new:
                return
            domain = parent

    def use_node(self, node: str, amounts: Amounts) -> None:
        """Count a pod without a placement; an unknown node is no error."""
        leaf = self.leaf_of.get(node)
        if leaf is not None:
            subtract_amounts(leaf.free, amounts)
            subtract_amounts(leaf.rest, amounts)
            self.touched.add(leaf.name)

    def free_node(self, node: str, amounts: Amounts) -> None:
        """Undo ``use_node``."""
        leaf = self.leaf_of.get(node)
        if leaf is not None:
            add_amounts(leaf.free, amounts)
            add_amounts(leaf.rest, amounts)
            self.touched.add(leaf.name)

    def use(self, domain: str, amounts: Amounts) -> None:
        """Count placed pods."""
        add_amounts(self.usage.setdefault(domain, {}), amounts)
        leaf = self.leaves.get(domain)
        if leaf is not None:
            subtract_amounts(leaf.rest, amounts)
            self.touched.add(domain)

    def release(self, domain: str, amounts: Amounts) -> None:
        """Undo ``use``."""
        used = self.usage.setdefault(domain, {})
        subtract_amounts(used, amounts)
        if not any(used.values()):
            del self.usage[domain]
        leaf = self.leaves.get(domain)
        if leaf is not None:
            add_amounts(leaf.rest, amounts)
            self.touched.add(domain)

    def fits(self, use: PlacedUse) -> bool:
        """Whether a domain holds one item of a placement by itself.

        As the scheduler's last check does, without looking at the number of pods.
        """
        leaf = self.leaves.get(use.domain)
        return (
            leaf is not None and count_in(sorted(use.requests.items()), leaf.rest)[0] >= use.count
        )

    def missing(self, placement: Placement) -> str | None:
        """A domain of a placement that is gone, ``None`` when all are there."""
        for item in placement.domains:
            if item.domain not in self.leaves:
                return item.values[0]
        return None


def placed_uses(placement: Placement, *, flavor: str, requests: Amounts) -> list[PlacedUse]:
    """What a placement takes, domain by domain."""
    return [
        PlacedUse(flavor, item.domain, item.count, requests, total_of(requests, item.count))
        for item in placement.domains
    ]


def total_of(requests: Amounts, count: int) -> dict[str, int]:
    """What ``count`` pods take from their nodes, pods included."""
    total = {name: amount * count for name, amount in requests.items()}
    total[PODS] = total.get(PODS, 0) + count
    return total


def count_in(requests: Sequence[tuple[str, int]], capacity: Amounts) -> tuple[int, str]:
    """How often requests fit, and the resource of which there is least.

    Requests come in order of names, and among equals the first is named; without any it is 0.
    """
    least, name_of_least = _MOST_PODS + 1, ""
    for name, amount in requests:
        if amount:
            have = capacity.get(name, 0)
            fits = min(have // amount, _MOST_PODS) if have > 0 else 0
        else:
            fits = _MOST_PODS
        if fits < least:
            least, name_of_least = fits, name
    return (least, name_of_least) if name_of_least else (0, "")


def add_amounts(total: dict[str, int], extra: Amounts) -> None:
    """Add ``extra`` to ``total`` in place."""
    for name, amount in extra.items():
        total[name] = total.get(name, 0) + amount


def subtract_amounts(total: dict[str, int], less: Amounts) -> None:
    """Take ``less`` from ``total`` in place."""
    for name, amount in less.items():
        total[name] = total.get(name, 0) - amount
