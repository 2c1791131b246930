"""The members of the quota tree: ClusterQueues, Cohorts, and what workloads hold in them.

``snapshot`` puts them together. Source: Kueue pkg/cache/scheduler, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from clusters.kueue.amounts import ZERO, Amount, FlavorResource, Usage, amount_of, whole
from clusters.kueue.quota.resource_node import ResourceNode
from clusters.kueue.quota.specifications import ClusterQueueSpec, CohortSpec, ResourceGroup
from clusters.kueue.topology.tree import PlacedUse
from clusters.kueue.workload.workloads import Workload


@dataclass(slots=True, eq=False)
class Holding:
    """A workload that holds quota.

    Attributes:
        workload: with its reservation.
        usage: amounts held.
        keys: (flavor, resource) pairs assigned to it, also those with amount 0.
        is_evicted: it was told to stop and still holds its quota.
        places: what its pods take of the topology.
    """

    workload: Workload
    usage: dict[FlavorResource, Amount]
    keys: frozenset[FlavorResource]
    is_evicted: bool
    places: tuple[PlacedUse, ...] = ()

    def copy(self) -> Holding:
        """The same for another tree, sharing what never changes."""
        return Holding(self.workload, self.usage, self.keys, self.is_evicted, self.places)

    @property
    def cluster_queue(self) -> str:
        """Name of the ClusterQueue it holds quota in."""
        assert self.workload.reservation is not None
        return self.workload.reservation.cluster_queue


@dataclass(slots=True, eq=False)
class Tally:
    """What several workloads hold together, kept as they come and go.

    Attributes:
        count: how many they are.
        usage: by flavor and resource: how much, without the bounds of an amount, so that what was
            added can be taken away again; and by how many.
    """

    count: int = 0
    usage: dict[FlavorResource, tuple[int, int]] = field(default_factory=dict)

    def change(self, usage: Usage, sign: int) -> None:
        """One more workload holds this (1), or one less (-1)."""
        self.count += sign
        for key, amount in usage.items():
            number, holders = self.usage.get(key, (0, 0))
            if holders + sign:
                self.usage[key] = number + sign * whole(amount), holders + sign
            else:
                del self.usage[key]

    def amounts(self) -> dict[FlavorResource, Amount]:
        """How much is held; pairs that nobody holds anything of are missing."""
        return {key: amount_of(number) for key, (number, _) in self.usage.items()}


@dataclass(slots=True, eq=False)
class Held:
    """What is held in a queue: by all that reserve quota there, and by those that are admitted."""

    reserving: Tally = field(default_factory=Tally)
    admitted: Tally = field(default_factory=Tally)

    def change(self, holding: Holding, sign: int) -> None:
        """It came (1) or went (-1)."""
        self.reserving.change(holding.usage, sign)
        if holding.workload.is_admitted:
            self.admitted.change(holding.usage, sign)


@dataclass(slots=True, eq=False)
class ClusterQueueState:
    """A ClusterQueue in the tree.

    Attributes:
        node: its numbers.
        group_of: resource group by resource name.
        holdings: what workloads hold here, by workload key.
        held: all of it together; what a try takes out counts on.
        held_of: the same of each LocalQueue that anything is held through.
        generation: grows whenever a flavor that was refused may fit again.
        is_active: whether it may admit (see ``readiness``).
        is_reachable: false below a cycle of Cohorts.
        is_placed_only: every flavor has a topology.
        is_remote: workers place the pods of its workloads.
        provisioned: flavors whose nodes are made only after quota is reserved.
    """

    spec: ClusterQueueSpec
    node: ResourceNode
    group_of: dict[str, ResourceGroup] = field(default_factory=dict)
    holdings: dict[str, Holding] = field(default_factory=dict)
    held: Held = field(default_factory=Held)
    held_of: dict[str, Held] = field(default_factory=dict)
    generation: int = 0
    is_active: bool = False
    is_reachable: bool = True
    is_placed_only: bool = False
    is_remote: bool = False
    provisioned: frozenset[str] = frozenset()

    @property
    def takes_part(self) -> bool:
        """Whether cycles see it as a queue; its quota and usage count either way."""
        return self.is_active and self.is_reachable

    def note(self, holding: Holding, sign: int) -> None:
        """Count what came (1) or went (-1)."""
        self.held.change(holding, sign)
        key = holding.workload.local_queue
        mine = self.held_of.setdefault(key, Held())
        mine.change(holding, sign)
        if not mine.reserving.count:
            del self.held_of[key]

    def follow(self, other: ClusterQueueState) -> None:
        """Take over what another one of the same specification knows of flavors and checks."""
        self.is_placed_only = other.is_placed_only
        self.is_remote, self.provisioned = other.is_remote, other.provisioned

    def fits(self, usage: Usage) -> bool:
        """Whether every amount is available now."""
        node = self.node
        return all(amount <= max(ZERO, node.available(key)) for key, amount in usage.items())


@dataclass(slots=True, eq=False)
class CohortState:
    """A Cohort in the tree, declared by an object or only named by others."""

    spec: CohortSpec
    node: ResourceNode
    is_declared: bool = False
    is_cyclic: bool = False
    queues: dict[str, ClusterQueueState] = field(default_factory=dict)
    cohorts: dict[str, CohortState] = field(default_factory=dict)


def queues_below(cohort: CohortState) -> Iterator[ClusterQueueState]:
    """Every ClusterQueue of a subtree."""
    for item in cohorts_below(cohort):
        yield from item.queues.values()


def cohorts_below(cohort: CohortState) -> Iterator[CohortState]:
    """A Cohort and every Cohort below it, top-down."""
    yield cohort
    for child in cohort.cohorts.values():
        yield from cohorts_below(child)


def mark_cyclic(member: CohortState, done: set[str]) -> None:
    """Cut off everything at and below a cycle of Cohorts; notes the names that it saw."""
    waiting = [member]
    while waiting:
        state = waiting.pop()
        if state.spec.name in done:
            continue
        done.add(state.spec.name)
        state.is_cyclic = True
        for queue in state.queues.values():
            queue.is_reachable = False
            queue.node.parent = None
        waiting.extend(state.cohorts.values())


def settle_alone(state: ClusterQueueState) -> None:
    """Derive the numbers of a ClusterQueue without a Cohort."""
    state.node.parent = None
    state.node.height = 0
    state.node.lendable = {}
    state.is_reachable = True
    state.generation += 1


def rebuild(root: CohortState) -> None:
    """Derive the numbers of a whole tree. O(size)."""
    root.node.parent = None
    _collect(root)
    keys = root.node.subtree_quota.keys()
    for cohort in cohorts_below(root):
        cohort.node.set_lendable(keys)


def _collect(state: CohortState) -> None:
    state.is_cyclic = False
    node = state.node
    for cohort in state.cohorts.values():
        cohort.node.parent = node
        _collect(cohort)
    for queue in state.queues.values():
        queue.node.parent = node
        queue.is_reachable = True
        queue.generation += 1
    heights = [1 + cohort.node.height for cohort in state.cohorts.values()]
    has_queues = any(queue.is_active for queue in state.queues.values())
    node.height = max(heights, default=int(has_queues))
    queue_nodes = [queue.node for queue in state.queues.values()]
    node.collect(queue_nodes + [cohort.node for cohort in state.cohorts.values()])
