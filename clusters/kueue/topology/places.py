"""The topologies, nodes and pods of a cluster, and what placed workloads take, flavor by flavor.

Usage of every flavor whose lowest level is the hostname counts in all of them, once it is
committed; what a cycle tries out or assumes counts in its own flavor alone.

Source: Kueue pkg/cache/scheduler/{tas_cache,snapshot,clusterqueue_snapshot}.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from clusters.kueue.amounts import wholes
from clusters.kueue.configuration import Gates
from clusters.kueue.topology.nodes import NodeSpec, PodUse, is_member
from clusters.kueue.topology.placer import Placer
from clusters.kueue.topology.tree import (
    PlacedUse,
    TopologyTree,
    add_amounts,
    placed_uses,
    subtract_amounts,
)
from clusters.kueue.workload.matching import Toleration
from clusters.kueue.workload.workloads import Workload


class FlavorNodes(NamedTuple):
    """Which nodes a flavor with a topology has, and what its pods tolerate."""

    topology: str
    node_labels: Mapping[str, str]
    tolerations: tuple[Toleration, ...]


class Places:
    """Everything that placement knows of a cluster."""

    def __init__(self, gates: Gates) -> None:
        self.gates = gates
        self.topologies: dict[str, tuple[str, ...]] = {}
        self.nodes: dict[str, NodeSpec] = {}
        self.pods: dict[str, PodUse] = {}
        self._on_node: dict[str, dict[str, int]] = {}
        self._placers: dict[str, Placer] = {}
        self._shaped_by: dict[str, tuple[FlavorNodes, tuple[str, ...]]] = {}

    def placer(self, flavor: str) -> Placer | None:
        """Who places pods on a flavor; ``None`` when it has no topology that is known."""
        return self._placers.get(flavor)

    def adopt(self, other: Places) -> None:
        """Become a copy of another one, without its usage."""
        self.topologies.update(other.topologies)
        self.nodes.update(other.nodes)
        self.pods.update(other.pods)
        self._on_node = {name: dict(amounts) for name, amounts in other._on_node.items()}

    def begin_cycle(self) -> None:
        """Forget what holds for one cycle only."""
        for placer in self._placers.values():
            placer.begin_cycle()

    # Objects

    def set_node(self, name: str, spec: NodeSpec | None) -> bool:
        """Note a node, ``None`` for one that is gone; returns whether a flavor is concerned."""
        before = self.nodes.get(name)
        if before == spec:
            return False
        if spec is None:
            del self.nodes[name]
        else:
            self.nodes[name] = spec
        is_concerned = False
        for placer in self._placers.values():
            left, came = (
                item if item is not None and _is_in(placer.tree, item) else None
                for item in (before, spec)
            )
            if left is not None or came is not None:
                is_concerned = True
                self._follow(placer, left, came)
        return is_concerned

    def set_pod(self, key: str, use: PodUse | None) -> str:
        """Note a pod, ``None`` for one that is gone; returns the node that it freed, if any."""
        before = self.pods.get(key)
        after = use if use is not None and use.node else None
        if before == after:
            return ""
        if before is not None:
            del self.pods[key]
            self._count_pod(before, -1)
        if after is not None:
            self.pods[key] = after
            self._count_pod(after, 1)
        if before is None or (after is not None and _takes_as_much(after, before)):
            return ""
        return before.node

    def flavors_of(self, node: str) -> list[str]:
        """Flavors that a node is a member of, whether it is usable or not."""
        spec = self.nodes.get(node)
        if spec is None:
            return []
        return [name for name, placer in self._placers.items() if _is_in(placer.tree, spec)]

    def reshape(self, flavors: Mapping[str, FlavorNodes], uses: Iterable[PlacedUse]) -> None:
        """Follow flavors and topologies that came, went or changed; ``uses`` is all committed."""
        shapes = {
            name: (spec, self.topologies[spec.topology])
            for name, spec in flavors.items()
            if self.topologies.get(spec.topology)
        }
        if shapes == self._shaped_by or not self.gates.topology_aware_scheduling:
            return
        self._shaped_by = shapes
        self._placers = {
            name: Placer(
                TopologyTree(
                    spec.topology,
                    levels=levels,
                    node_labels=spec.node_labels,
                    tolerations=spec.tolerations,
                ),
                gates=self.gates,
            )
            for name, (spec, levels) in shapes.items()
        }
        for placer in self._placers.values():
            self._build(placer)
        self.commit(uses)

    # Usage

    def commit(self, uses: Iterable[PlacedUse]) -> None:
        """Count what a workload holds from now on."""
        for use in uses:
            for placer in self._sharing(use.flavor):
                placer.tree.use(use.domain, use.total)

    def withdraw(self, uses: Iterable[PlacedUse]) -> None:
        """Undo ``commit``."""
        for use in uses:
            for placer in self._sharing(use.flavor):
                placer.tree.release(use.domain, use.total)

    def assume(self, uses: Iterable[PlacedUse]) -> None:
        """Count usage in its own flavor, for a try or for the rest of a cycle."""
        for use in uses:
            if use.flavor in self._placers:
                self._placers[use.flavor].tree.use(use.domain, use.total)

    def release(self, uses: Iterable[PlacedUse]) -> None:
        """Undo ``assume``, or take committed usage out for a try."""
        for use in uses:
            if use.flavor in self._placers:
                self._placers[use.flavor].tree.release(use.domain, use.total)

    def fit(self, uses: Iterable[PlacedUse]) -> bool:
        """Whether each item fits by itself."""
        return all(
            use.flavor in self._placers and self._placers[use.flavor].tree.fits(use) for use in uses
        )

    def _sharing(self, flavor: str) -> Sequence[Placer]:
        """Placers of the flavors in which a flavor's committed usage counts."""
        own = self._placers.get(flavor)
        if own is None:
            return ()
        if not (own.tree.is_by_host and self.gates.tas_handle_overlapping_flavors):
            return (own,)
        return [placer for placer in self._placers.values() if placer.tree.is_by_host]

    def _follow(self, placer: Placer, left: NodeSpec | None, came: NodeSpec | None) -> None:
        """Let a tree follow one member, as it was and as it is."""
        tree = placer.tree
        if any(tree.is_shared(item) for item in (left, came) if item is not None):
            self._build(placer)
            return
        if left is not None and left.is_usable:
            tree.remove(left, pods=self._on_node.get(left.name, {}))
        if came is not None and came.is_usable:
            tree.add(came, pods=self._on_node.get(came.name, {}))
        placer.forget_nodes()

    def _build(self, placer: Placer) -> None:
        tree = placer.tree
        tree.build(
            (
                node
                for _, node in sorted(self.nodes.items())
                if node.is_usable and _is_in(tree, node)
            ),
            pods=self._on_node,
        )
        placer.forget_nodes()

    def _count_pod(self, use: PodUse, sign: int) -> None:
        total = self._on_node.setdefault(use.node, {})
        (add_amounts if sign > 0 else subtract_amounts)(total, use.amounts)
        for placer in self._placers.values():
            change = placer.tree.use_node if sign > 0 else placer.tree.free_node
            change(use.node, use.amounts)
        if not any(total.values()):
            del self._on_node[use.node]


def held_uses(workload: Workload) -> tuple[PlacedUse, ...]:
    """What a workload with a reservation takes of the topology; empty where nothing is placed."""
    reservation = workload.reservation
    if reservation is None or all(item.placement is None for item in reservation.pod_sets):
        return ()
    shapes = {item.name: item.shape for item in workload.pod_sets}
    found: list[PlacedUse] = []
    for hold in reservation.pod_sets:
        if hold.placement is None:
            continue
        shape = shapes.get(hold.name)
        requests = wholes(hold.of_pods(1) if shape is None else shape.requests.of_pod)
        for flavor in sorted(set(hold.flavors.values())):
            found.extend(placed_uses(hold.placement, flavor=flavor, requests=requests))
    return tuple(found)


def _is_in(tree: TopologyTree, node: NodeSpec) -> bool:
    return is_member(node.labels, flavor=tree.node_labels, levels=tree.levels)


def _takes_as_much(after: PodUse, before: PodUse) -> bool:
    """Whether a changed pod freed nothing."""
    return after.node == before.node and all(
        after.amounts.get(name, 0) >= amount for name, amount in before.amounts.items()
    )
