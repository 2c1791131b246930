"""The state that decisions read: the tree of Cohorts, ClusterQueues and what workloads hold.

One live tree serves every cycle. What a decision tries out (usage added, victims removed) is undone
step by step instead of copying the tree, so a try costs O(depth) per (flavor, resource).

Source: Kueue pkg/cache/scheduler/{cache,snapshot,cohort,clusterqueue}.go, pkg/cache/hierarchy,
v0.19.2. Deviation: Kueue copies everything each cycle; the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from clusters.kueue.amounts import ZERO, Amount, FlavorResource, Usage, add
from clusters.kueue.configuration import Gates
from clusters.kueue.quota.resource_node import ResourceNode
from clusters.kueue.quota.specifications import ClusterQueueSpec, CohortSpec, FlavorSpec
from clusters.kueue.quota.tree import (
    ClusterQueueState,
    CohortState,
    Held,
    Holding,
    mark_cyclic,
    queues_below,
    rebuild,
    settle_alone,
)
from clusters.kueue.quota.usage_ledger import UsageLedger
from clusters.kueue.topology.places import FlavorNodes, Places, held_uses
from clusters.kueue.topology.tree import PlacedUse
from clusters.kueue.workload.workloads import Workload


class Snapshot:
    """All quota objects and holdings, with derived numbers kept up to date."""

    def __init__(self, gates: Gates | None = None, *, ledger: UsageLedger | None = None) -> None:
        """Start empty; without a ledger no LocalQueue's usage counts."""
        self.ledger = UsageLedger(None) if ledger is None else ledger
        self.places = Places(gates or Gates())
        self.flavors: dict[str, FlavorSpec] = {}
        self.queues: dict[str, ClusterQueueState] = {}
        self.cohorts: dict[str, CohortState] = {}
        self._holdings: dict[str, Holding] = {}
        self._foreign_uses: tuple[PlacedUse, ...] = ()
        self._elsewhere: dict[str, dict[str, Holding]] = {}
        self._dirty: set[str] = set()
        self._dirty_queues: set[str] = set()

    # Quota objects

    def set_queue(self, spec: ClusterQueueSpec) -> None:
        """Create or change a ClusterQueue; numbers follow at the next ``refresh``."""
        state = self.queues.get(spec.name)
        if state is None:
            state = ClusterQueueState(spec=spec, node=ResourceNode(spec.name))
            self.queues[spec.name] = state
            state.holdings = self._elsewhere.pop(spec.name, {})
            for holding in state.holdings.values():
                state.node.add_all(holding.usage)
                state.note(holding, 1)
        elif state.spec.cohort != spec.cohort:
            self._leave(state)
        state.spec = spec
        state.node.quotas = spec.quotas
        state.node.weight = spec.weight
        state.group_of = {
            name: group for group in reversed(spec.groups) for name in group.resources
        }
        if spec.cohort:
            self._cohort(spec.cohort).queues[spec.name] = state
            self._dirty.add(spec.cohort)
        self._dirty_queues.add(spec.name)

    def delete_queue(self, name: str) -> None:
        """Remove a ClusterQueue; what workloads hold in it is kept for its return."""
        state = self.queues.pop(name, None)
        if state is None:
            return
        self._leave(state)
        self._dirty_queues.discard(name)
        if state.holdings:
            self._elsewhere[name] = state.holdings

    def set_cohort(self, spec: CohortSpec) -> None:
        """Create or change a Cohort."""
        state = self._cohort(spec.name)
        if state.spec.parent != spec.parent:
            self._unhook(state)
        state.spec = spec
        state.is_declared = True
        state.node.quotas = spec.quotas
        state.node.weight = spec.weight
        if spec.parent:
            self._cohort(spec.parent).cohorts[spec.name] = state
        self._dirty.add(spec.name)

    def delete_cohort(self, name: str) -> None:
        """Remove a Cohort object; as long as others name it, it stays without quota."""
        state = self.cohorts.get(name)
        if state is None or not state.is_declared:
            return
        self._unhook(state)
        state.spec = CohortSpec(name)
        state.node.quotas = {}
        state.node.weight = 1.0
        state.is_declared = False
        self._dirty.add(name)
        self._drop_unused(state)

    def set_active(self, name: str, *, is_active: bool) -> None:
        """Record whether a ClusterQueue may admit."""
        state = self.queues[name]
        if state.is_active != is_active:
            state.is_active = is_active
            if state.spec.cohort:
                self._dirty.add(state.spec.cohort)

    def refresh(self) -> None:
        """Derive the numbers of every tree that changed. O(size of those trees)."""
        for name in self._dirty_queues:
            self.queues[name].node.declare_leaf()
            if not self.queues[name].spec.cohort:
                settle_alone(self.queues[name])
        self._dirty_queues.clear()
        done: set[str] = set()
        for name in self._dirty & self.cohorts.keys():
            root, is_cyclic = self._root_of(name)
            if root.spec.name in done:
                continue
            if is_cyclic:
                mark_cyclic(root, done)
            else:
                done.add(root.spec.name)
                rebuild(root)
        self._dirty.clear()

    def adopt(self, other: Snapshot, *, names: Collection[str]) -> None:
        """Become a copy of another, refreshed snapshot.

        Of its ClusterQueues, with every tree complete; Cohorts without any are copied too.
        """
        # Topology couples what shares no quota.
        self._foreign_uses = (
            *other._foreign_uses,
            *(
                use
                for name, queue in other.queues.items()
                if name not in names
                for holding in queue.holdings.values()
                for use in holding.places
            ),
        )
        self.places.adopt(other.places)
        self.reshape_places()
        for cohort in other.cohorts.values():
            if cohort.is_declared:
                self.set_cohort(cohort.spec)
        for name in names:
            queue = other.queues[name]
            self.set_queue(queue.spec)
            self.set_active(name, is_active=queue.is_active)
            self.queues[name].follow(queue)
            for holding in queue.holdings.values():
                self._count(holding.copy())
        for held in other._elsewhere.values():
            for holding in held.values():
                self._count(holding.copy())
        self.refresh()
        for name in names:
            self.queues[name].generation = other.queues[name].generation

    # Holdings

    def holding(self, key: str) -> Holding | None:
        """What a workload holds."""
        return self._holdings.get(key)

    def holdings(self) -> Iterable[Holding]:
        """Everything that is held."""
        return self._holdings.values()

    def hold(self, workload: Workload, *, is_evicted: bool) -> Holding:
        """Count a workload's reservation; the workload must not hold anything yet."""
        assert workload.reservation is not None and workload.key not in self._holdings
        holding = Holding(
            workload=workload,
            usage=workload.usage(),
            keys=frozenset(
                FlavorResource(flavor, resource)
                for item in workload.reservation.pod_sets
                for resource, flavor in item.flavors.items()
            ),
            is_evicted=is_evicted,
            places=held_uses(workload),
        )
        return self._count(holding)

    def _count(self, holding: Holding) -> Holding:
        key = holding.workload.key
        self._holdings[key] = holding
        if holding.places:
            self.places.commit(holding.places)
        state = self.queues.get(holding.cluster_queue)
        if state is None:
            self._elsewhere.setdefault(holding.cluster_queue, {})[key] = holding
        else:
            state.holdings[key] = holding
            state.node.add_all(holding.usage)
            state.note(holding, 1)
        return holding

    def renew(self, holding: Holding, workload: Workload) -> None:
        """A newer state of a workload holds the same in the same ClusterQueue."""
        state = self.queues.get(holding.cluster_queue)
        if state is not None:
            state.note(holding, -1)
        holding.workload = workload
        if state is not None:
            state.note(holding, 1)

    def release(self, key: str) -> Holding | None:
        """Give back what a workload holds; returns what it was, ``None`` for nothing."""
        holding = self._holdings.pop(key, None)
        if holding is None:
            return None
        if holding.places:
            self.places.withdraw(holding.places)
        state = self.queues.get(holding.cluster_queue)
        if state is not None:
            del state.holdings[key]
            state.node.remove_all(holding.usage)
            state.note(holding, -1)
            state.generation += 1
            return holding
        elsewhere = self._elsewhere[holding.cluster_queue]
        del elsewhere[key]
        if not elsewhere:
            del self._elsewhere[holding.cluster_queue]
        return holding

    def held_through(self, local_queue: str, *, queue: str) -> Held:
        """What is held through a LocalQueue in a ClusterQueue, to be read only."""
        state = self.queues.get(queue)
        found = state.held_of.get(local_queue) if state is not None else None
        return Held() if found is None else found

    def admitted_of(self, local_queue: str, *, queue: str) -> dict[str, Amount]:
        """What the admitted workloads of a LocalQueue hold in a ClusterQueue, by resource."""
        total: dict[str, Amount] = {}
        held = self.held_through(local_queue, queue=queue)
        for key, amount in held.admitted.amounts().items():
            total[key.resource] = add(total.get(key.resource, ZERO), amount)
        return total

    def past_usage(self, holding: Holding) -> float | None:
        """Usage of the LocalQueue of what is held, where it orders the ClusterQueue's workloads."""
        queue = self.queues[holding.cluster_queue]
        if self.ledger.rules is None or not queue.spec.is_usage_based:
            return None
        return self.ledger.usage_of(holding.workload.local_queue)

    def are_pods_ready(self) -> bool:
        """Whether the pods of every admitted workload are ready. O(holdings)."""
        return not any(
            holding.workload.is_admitted and not holding.workload.is_pods_ready
            for holding in self._holdings.values()
        )

    # Trying out

    def take_out(self, holding: Holding) -> None:
        """Pretend that a workload stopped: its usage is gone and it is no candidate."""
        state = self.queues[holding.cluster_queue]
        del state.holdings[holding.workload.key]
        state.node.remove_all(holding.usage)
        if holding.places:
            self.places.release(holding.places)

    def put_back(self, holding: Holding) -> None:
        """Undo ``take_out``."""
        state = self.queues[holding.cluster_queue]
        state.holdings[holding.workload.key] = holding
        state.node.add_all(holding.usage)
        if holding.places:
            self.places.assume(holding.places)

    @contextmanager
    def without(self, holdings: Sequence[Holding]) -> Iterator[None]:
        """Within the block, ``holdings`` are taken out."""
        for holding in holdings:
            self.take_out(holding)
        try:
            yield
        finally:
            for holding in holdings:
                self.put_back(holding)

    @contextmanager
    def usage_without(self, holdings: Iterable[Holding]) -> Iterator[None]:
        """Within the block, the usage of ``holdings`` is gone."""
        removed = [
            (self.queues[item.cluster_queue].node, item.usage, item.places) for item in holdings
        ]
        for node, usage, places in removed:
            node.remove_all(usage)
            if places:
                self.places.release(places)
        try:
            yield
        finally:
            for node, usage, places in reversed(removed):
                node.add_all(usage)
                if places:
                    self.places.assume(places)

    @contextmanager
    def usage_with(self, state: ClusterQueueState, usage: Usage) -> Iterator[None]:
        """Within the block, ``usage`` is added to a ClusterQueue."""
        state.node.add_all(usage)
        try:
            yield
        finally:
            state.node.remove_all(usage)

    def reshape_places(self) -> None:
        """Follow flavors and topologies that came, went or changed."""
        flavors = {
            name: FlavorNodes(spec.topology, spec.node_labels, spec.tolerations)
            for name, spec in self.flavors.items()
            if spec.topology
        }
        held = (use for holding in self._holdings.values() for use in holding.places)
        self.places.reshape(flavors, (*self._foreign_uses, *held))

    # Reading

    def cohort_of(self, state: ClusterQueueState) -> CohortState | None:
        """The Cohort that a ClusterQueue is in."""
        return self.cohorts.get(state.spec.cohort) if state.spec.cohort else None

    def tree_queues(self, state: ClusterQueueState) -> list[ClusterQueueState]:
        """Every ClusterQueue of the tree that ``state`` is in."""
        cohort = self.cohort_of(state)
        return [state] if cohort is None else self.cohort_queues(cohort.spec.name)

    def cohort_queues(self, name: str) -> list[ClusterQueueState]:
        """Every ClusterQueue of the tree that a Cohort is in."""
        if name not in self.cohorts:
            return []
        root, is_cyclic = self._root_of(name)
        return [] if is_cyclic else list(queues_below(root))

    # Internals

    def _cohort(self, name: str) -> CohortState:
        state = self.cohorts.get(name)
        if state is None:
            state = CohortState(spec=CohortSpec(name), node=ResourceNode(name))
            self.cohorts[name] = state
            self._dirty.add(name)
        return state

    def _leave(self, state: ClusterQueueState) -> None:
        cohort = self.cohort_of(state)
        if cohort is not None:
            del cohort.queues[state.spec.name]
            self._dirty.add(cohort.spec.name)
            self._drop_unused(cohort)
        state.node.parent = None

    def _unhook(self, state: CohortState) -> None:
        parent = self.cohorts.get(state.spec.parent)
        if parent is not None and parent.cohorts.pop(state.spec.name, None) is not None:
            self._dirty.add(parent.spec.name)
            self._drop_unused(parent)

    def _drop_unused(self, state: CohortState) -> None:
        if not (state.is_declared or state.queues or state.cohorts):
            self.cohorts.pop(state.spec.name, None)

    def _root_of(self, name: str) -> tuple[CohortState, bool]:
        """Root above a Cohort; or, above a cycle, some member of it and true."""
        seen = {name}
        state = self.cohorts[name]
        while state.spec.parent:
            if state.spec.parent in seen:
                return state, True
            seen.add(state.spec.parent)
            state = self.cohorts[state.spec.parent]
        return state, False
