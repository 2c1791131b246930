"""The words of the plan: what is promised, and quota per cluster before it becomes documents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from budgets.choices import Choice

HOST_FLAVOR = "host"
"""The unlabelled flavor of cpu, memory and the rest; always unlimited in a queue."""

POOL_PREFIX = "pool-"
"""Of a platform pool's Cohort; an account slug has no hyphen, so the two never meet."""

USUAL_WEIGHT: Final = Decimal(1)
"""Of fair sharing, where nobody said another one; Kueue's own, so that it is not written."""


class Spill(Choice):
    """What a job meets when its first flavor has no floor left (flavorFungibility)."""

    NEXT_FLAVOR_FIRST = "next_flavor_first", "try the next flavor before borrowing"
    BORROW_FIRST = "borrow_first", "borrow before trying the next flavor"


class StopPolicy(Choice):
    """Kueue's stopPolicy."""

    NONE = "None", "Not held: new jobs start"
    HOLD = "Hold", "Held: running jobs finish, nothing new starts"
    HOLD_AND_DRAIN = "HoldAndDrain", "Drained: running jobs are stopped"


# On a cordoned ResourceFlavor: what does not tolerate it is given other flavors. No node has it.
MAINTENANCE_TAINT: Final = (
    ("effect", "NoSchedule"),
    ("key", "gpu-budget-portal.dev/maintenance"),
    ("value", "cordoned"),
)


@dataclass(frozen=True, slots=True)
class QueueQuota:
    """Three numbers of one (flavor, GPU resource) pair, whole GPUs; None means no limit.

    A queue or an account Cohort always has all three written; None is only for a root Cohort,
    where limits mean nothing.
    """

    nominal: int
    borrowing_limit: int | None
    lending_limit: int | None


@dataclass(frozen=True, slots=True)
class Line:
    """Committed, ceiling and lendable GPUs of one flavor in one workspace's budget."""

    flavor: str
    committed: int
    ceiling: int
    lendable: int


@dataclass(frozen=True, slots=True)
class FlavorPromise:
    """A kind of GPU node.

    Attributes:
        name: Flavor slug, which is the ResourceFlavor's name.
        resource: GPU resource name, such as ``nvidia.com/gpu``.
        node_labels: Sorted (key, value) pairs.
        node_taints: Each as sorted (key, value) pairs of the Kubernetes taint.
        tolerations: Likewise.
        gpus_per_node: Whole GPUs on one node; splits go in multiples of it.
        generation: Raised with every change.
        topology: Slug of how its nodes stand together; empty for none.
    """

    name: str
    resource: str
    node_labels: tuple[tuple[str, str], ...] = ()
    node_taints: tuple[tuple[tuple[str, str], ...], ...] = ()
    tolerations: tuple[tuple[tuple[str, str], ...], ...] = ()
    gpus_per_node: int = 8
    generation: int = 1
    topology: str = ""


@dataclass(frozen=True, slots=True)
class TopologyPromise:
    """How nodes of flavors stand together: node labels, the largest domain first."""

    name: str
    levels: tuple[str, ...]
    generation: int = 1


@dataclass(frozen=True, slots=True)
class AccountPromise:
    """A customer and its own pool: flavor → GPUs over all clusters; its weight among others."""

    name: str
    generation: int = 1
    pool: Mapping[str, int] = field(default_factory=dict)
    pool_split: Mapping[tuple[str, str], int] = field(default_factory=dict)
    fair_weight: Decimal = USUAL_WEIGHT

    def pool_on(self, flavor: str, cluster: str) -> int:
        """GPUs of its pool on a worker; on all of them where ``cluster`` is empty."""
        return self.pool_split.get((flavor, cluster), 0) if cluster else self.pool.get(flavor, 0)


@dataclass(frozen=True, slots=True)
class PoolPromise:
    """A pool that several accounts draw on.

    Attributes:
        name: Slug; the Cohort's name adds the reserved prefix.
        amounts: flavor → GPUs over all clusters.
        split: (flavor, worker) → GPUs of the pool on that worker; sums to ``amounts``.
        shares: account → (flavor → most GPUs that it may draw); an absent flavor means all.
    """

    name: str
    generation: int
    amounts: Mapping[str, int]
    split: Mapping[tuple[str, str], int]
    shares: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class WorkspacePromise:
    """What one workspace is promised now.

    Attributes:
        account: Account slug.
        workspace: Workspace slug.
        namespace: ``ACCOUNT-WORKSPACE``: namespace, ClusterQueue and LocalQueue owner.
        lines: Lines in force; a flavor dropped from the revision but still held stays as 0/0/0.
        preference: Flavor slugs in the order in which jobs try them; others follow in line order.
        spill: Borrow first, or try the next flavor first.
        split: (flavor, worker) → (C_w, L_w); absent means (0, 0).
        stop_policy: Kueue's stopPolicy.
        generation: The budget's generation.
        checks_spend: New jobs wait for the portal's own AdmissionCheck where they are submitted.
        fair_weight: Of fair sharing among the workspaces of the account.
    """

    account: str
    workspace: str
    namespace: str
    lines: tuple[Line, ...]
    preference: tuple[str, ...] = ()
    spill: Spill = Spill.NEXT_FLAVOR_FIRST
    split: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    stop_policy: StopPolicy = StopPolicy.NONE
    generation: int = 1
    checks_spend: bool = False
    fair_weight: Decimal = USUAL_WEIGHT

    def part_on(self, flavor: str, cluster: str) -> tuple[int, int]:
        """(C_w, L_w) of a line on a worker; (0, 0) where nothing stands."""
        return self.split.get((flavor, cluster), (0, 0))


@dataclass(frozen=True, slots=True)
class Promises:
    """Everything in force at one instant; the only input of rendering besides the cluster."""

    flavors: tuple[FlavorPromise, ...]
    accounts: tuple[AccountPromise, ...]
    pools: tuple[PoolPromise, ...]
    workspaces: tuple[WorkspacePromise, ...]
    topologies: tuple[TopologyPromise, ...] = ()

    def renewed(self, newer: Promises, accounts: Collection[str]) -> Promises:
        """These promises, with what a newer reading of some accounts alone says of them.

        Args:
            newer: That reading; flavors, topologies and platform pools are the same in both.
            accounts: Slugs.
        """
        kept = tuple(row for row in self.workspaces if row.account not in accounts)
        used = {line.flavor for row in kept for line in row.lines}
        flavors = {row.name: row for row in self.flavors if row.name in used}
        flavors |= {row.name: row for row in newer.flavors}
        named = {row.topology for row in flavors.values()}
        topologies = {row.name: row for row in self.topologies if row.name in named}
        topologies |= {row.name: row for row in newer.topologies}
        return Promises(
            flavors=tuple(flavors.values()),
            accounts=tuple(row for row in self.accounts if row.name not in accounts)
            + newer.accounts,
            pools=newer.pools,
            workspaces=kept + newer.workspaces,
            topologies=tuple(topologies.values()),
        )


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """Where a plan is for.

    Attributes:
        name: Cluster slug.
        is_manager: The manager carries whole lines; a worker its part of the split.
        workers: Worker slugs that the manager dispatches to, in order (manager only).
        host_resources: Covered by the unlabelled, unlimited flavor ``host``.
        stop_policy: Of every queue there, while the worker is cordoned.
        cordoned_flavors: Slugs of flavors that take no new work there.
        is_single: A cluster of its own: it carries its part, and takes jobs as a manager does.
        elsewhere: Slugs of flavors that stand in the fleet or on a single cluster besides this
            one; their lines are nothing here, so that no ceiling counts twice.
    """

    name: str
    is_manager: bool
    workers: tuple[str, ...] = ()
    host_resources: tuple[str, ...] = ("cpu", "memory", "ephemeral-storage")
    stop_policy: StopPolicy = StopPolicy.NONE
    cordoned_flavors: frozenset[str] = frozenset()
    is_single: bool = False
    elsewhere: frozenset[str] = frozenset()

    @property
    def takes_jobs(self) -> bool:
        """Whether jobs are submitted there."""
        return self.is_manager or self.is_single


@dataclass(frozen=True, slots=True)
class CohortPlan:
    """One Cohort: ``quotas`` maps flavor slug to its three numbers."""

    name: str
    parent: str | None
    quotas: Mapping[str, QueueQuota]
    subject: str
    generation: int
    fair_weight: Decimal = USUAL_WEIGHT


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """One ClusterQueue with its namespace and LocalQueue.

    Attributes:
        name: ClusterQueue name and namespace.
        cohort: The account's Cohort.
        flavors: Flavor slugs in trying order, grouped by GPU resource when rendered.
        quotas: flavor slug → three numbers.
        try_next_flavor_before_borrowing: flavorFungibility.whenCanBorrow TryNextFlavor.
        checks_spend: Jobs wait for the portal's own AdmissionCheck; only where they are submitted.
    """

    name: str
    cohort: str
    flavors: tuple[str, ...]
    quotas: Mapping[str, QueueQuota]
    try_next_flavor_before_borrowing: bool
    stop_policy: StopPolicy
    subject: str
    generation: int
    checks_spend: bool = False
    fair_weight: Decimal = USUAL_WEIGHT


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """All quota objects of one cluster, before they become documents.

    ``subject`` of each part is ``flavor:SLUG``, ``topology:SLUG``, ``account:SLUG``,
    ``pool:SLUG`` or ``budget:NAMESPACE``; with its generation it is what AppliedGeneration records.
    """

    place: ClusterPlace
    flavors: tuple[FlavorPromise, ...]
    cohorts: tuple[CohortPlan, ...]
    queues: tuple[QueuePlan, ...]
    topologies: tuple[TopologyPromise, ...] = ()


_STRENGTH: Final = (StopPolicy.NONE, StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN)


def strongest_stop(*asked: StopPolicy) -> StopPolicy:
    """The strongest of what is asked for; NONE when nobody asks for anything.

    The single rule of precedence: a person's hold, an archived workspace and a spend rule each
    have a reason of their own, kept where it belongs. None overwrites another: the strongest that
    is asked for now is applied, and when it goes the next strongest is.
    """
    return max(asked, key=_STRENGTH.index, default=StopPolicy.NONE)
