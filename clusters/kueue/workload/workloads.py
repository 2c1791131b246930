"""A Workload as the engine sees it: requests, order, what it holds and what keeps it out.

Values only; ``workload_parser`` reads them.

Source: Kueue pkg/workload/workload.go, pkg/workload/usage.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from clusters.kueue.amounts import (
    ZERO,
    Amount,
    FlavorResource,
    Requests,
    add,
    add_usage,
    multiply,
    split,
)
from clusters.kueue.workload.devices import ClaimProblem
from clusters.kueue.workload.matching import NodeRules, Toleration
from clusters.kueue.workload.placement import Placement
from clusters.kueue.workload.requests import PodRequests
from clusters.kueue.workload.topology_request import NO_REQUEST, TopologyRequest

UNKNOWN_TIME: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PodShape:
    """Everything of a pod set but its name; one object per distinct shape, compared by identity.

    Attributes:
        source: what decisions read of the pod set document, as canonical JSON.
        fingerprint: equal for shapes that the scheduler cannot tell apart.
        requests: of one pod, with what makes them inadmissible.
        rules: node selector, affinity, tolerations.
        topology: what it asks of the topology.
        templates: names of ResourceClaimTemplates that its pods claim devices by.
        problem: why its devices cannot be counted, ``None`` when they can.
    """

    source: str
    fingerprint: str
    requests: PodRequests
    rules: NodeRules
    topology: TopologyRequest = NO_REQUEST
    templates: tuple[str, ...] = ()
    problem: ClaimProblem | None = None


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one shape. ``min_count`` is ``None`` where no partial admission is allowed."""

    name: str
    count: int
    min_count: int | None
    shape: PodShape


@dataclass(frozen=True, slots=True)
class PodAdditions:
    """What AdmissionChecks add to the pods of a pod set."""

    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class PodSetHold:
    """What one pod set holds: flavors and total amounts by resource, for ``count`` pods.

    Attributes:
        placement: where its pods run, ``None`` without a topology.
        delayed: state of a placement that follows later, empty for none.
    """

    name: str
    flavors: Mapping[str, str]
    amounts: Requests
    count: int
    placement: Placement | None = None
    delayed: str = ""

    def of_pods(self, count: int) -> dict[str, Amount]:
        """What so many of its pods hold, by resource; each has the same part, rounded down."""
        return {
            name: multiply(split(amount, self.count or 1), count)
            for name, amount in self.amounts.items()
        }


@dataclass(frozen=True, slots=True)
class Reservation:
    """Quota held in a ClusterQueue (``status.admission`` with QuotaReserved).

    Attributes:
        cluster_queue: its name.
        pod_sets: holdings in pod set order.
        reserved_at: when QuotaReserved became true.
        is_admitted: whether Admitted is true as well.
    """

    cluster_queue: str
    pod_sets: tuple[PodSetHold, ...]
    reserved_at: datetime
    is_admitted: bool

    def left(self, counts: Mapping[str, int]) -> Iterator[PodSetHold]:
        """What the pod sets hold where fewer pods are left than were admitted, in their order.

        More pods than were admitted hold no more: the workload was admitted with a part of them.

        Args:
            counts: pods that still need resources, by pod set name.
        """
        for hold in self.pod_sets:
            count = counts.get(hold.name, 0)
            if count >= hold.count:
                yield hold
                continue
            yield PodSetHold(hold.name, hold.flavors, hold.of_pods(count), count)


@dataclass(frozen=True, slots=True)
class Workload:
    """One Workload object, reduced to what decisions need.

    Attributes:
        key: ``namespace/name``.
        priority: effective priority.
        queued_at: the time that decides its place among equal priorities.
        reclaimable: done pods by pod set name.
        reservation: quota it holds, ``None`` while pending.
        is_evicted: Evicted is true.
        is_pods_ready: PodsReady is true.
        is_requeue_blocked: Requeued is false.
        requeue_at: it must not be tried before.
        check_states: state by AdmissionCheck name.
        gated_by: names that hold admission back (annotation).
        refused: why it can never start as it is (annotation), empty when it can.
        replaces: key of the workload whose place it takes, and whose usage it may count on.
        shape_hash: equal for workloads that the scheduler cannot tell apart.
        unhealthy_nodes: nodes of its placement that failed.
        additions: what AdmissionChecks that are ready add to its pods, by pod set.
        is_single_pod: a Pod owns it, which can move nowhere.
        is_elastic: its size may change while it runs.
        owner: kind of the job it stands for, as ``batch/v1, Kind=Job``; empty where none is told.
    """

    key: str
    namespace: str
    name: str
    uid: str
    job_uid: str
    queue_name: str
    priority: int
    created_at: datetime
    queued_at: datetime
    pod_sets: tuple[PodSet, ...]
    shape_hash: str
    is_active: bool = True
    is_finished: bool = False
    is_evicted: bool = False
    is_pods_ready: bool = False
    is_requeue_blocked: bool = False
    requeue_at: datetime | None = None
    reclaimable: Mapping[str, int] = field(default_factory=dict)
    reservation: Reservation | None = None
    check_states: Mapping[str, str] = field(default_factory=dict)
    gated_by: str = ""
    refused: str = ""
    replaces: str = ""
    unhealthy_nodes: tuple[str, ...] = ()
    additions: Mapping[str, PodAdditions] = field(default_factory=dict)
    is_single_pod: bool = False
    is_elastic: bool = False
    owner: str = ""

    @property
    def local_queue(self) -> str:
        """Key of its LocalQueue, which need not exist."""
        return f"{self.namespace}/{self.queue_name}"

    def total_requests(self) -> dict[str, Amount]:
        """What all pods that still need resources ask for."""
        total: dict[str, Amount] = {}
        for item in self.pod_sets:
            add_usage(total, scaled(item.shape.requests.amounts, self.remaining_count(item)))
        return total

    @property
    def order(self) -> tuple[int, datetime, str]:
        """Sort key inside a ClusterQueue: priority, then time, then UID."""
        return (-self.priority, self.queued_at, self.uid)

    @property
    def is_admitted(self) -> bool:
        """Whether it holds quota, and is admitted as well."""
        return self.reservation is not None and self.reservation.is_admitted

    @property
    def is_retrying_checks(self) -> bool:
        """Whether an AdmissionCheck said Retry or Rejected."""
        return any(state in ("Retry", "Rejected") for state in self.check_states.values())

    @property
    def is_placement_delayed(self) -> bool:
        """Whether domains are looked for only after quota was reserved, and were not yet."""
        return self.reservation is not None and any(
            item.placement is None and item.delayed == "Pending"
            for item in self.reservation.pod_sets
        )

    @property
    def has_lost_node(self) -> bool:
        """Whether a node of its placement failed."""
        return (
            bool(self.unhealthy_nodes)
            and self.reservation is not None
            and any(
                place.values[-1] in self.unhealthy_nodes
                for item in self.reservation.pod_sets
                if item.placement is not None
                for place in item.placement.domains
            )
        )

    def is_backoff_over(self, now: datetime) -> bool:
        """Whether nothing tells the workload to wait before it is tried again."""
        if self.is_requeue_blocked:
            return False
        return self.requeue_at is None or self.requeue_at <= now

    def remaining_count(self, pod_set: PodSet) -> int:
        """Pods of a pod set that still need resources."""
        return pod_set.count - min(self.reclaimable.get(pod_set.name, 0), pod_set.count)

    def held(self) -> tuple[PodSetHold, ...]:
        """What its pod sets hold, less what pods gave back that are done or no longer wanted."""
        if self.reservation is None:
            return ()
        counts = {item.name: self.remaining_count(item) for item in self.pod_sets}
        return tuple(self.reservation.left(counts))

    def usage(self) -> dict[FlavorResource, Amount]:
        """Amounts held; empty while pending."""
        total: dict[FlavorResource, Amount] = {}
        for hold in self.held():
            for resource, flavor in hold.flavors.items():
                key = FlavorResource(flavor, resource)
                total[key] = add(total.get(key, ZERO), hold.amounts.get(resource, ZERO))
        return total

    def resource_problem(self) -> str:
        """Why its requests keep it out, by limits or LimitRanges; empty when they do not."""
        over_limit = [text for item in self.pod_sets for text in item.shape.requests.limit_problems]
        if over_limit:
            return f"resources validation failed: {_listed(over_limit)}"
        in_range = [text for item in self.pod_sets for text in item.shape.requests.range_problems]
        if in_range:
            return f"resources didn't satisfy LimitRange constraints: {_listed(in_range)}"
        return ""

    def claim_problem(self) -> ClaimProblem | None:
        """Why the devices that its pods claim cannot be counted; ``None`` when they can."""
        least = None
        for item in self.pod_sets:
            problem = item.shape.problem
            if problem is not None and (least is None or problem.rank < least.rank):
                least = problem
        return least

    def claims(self, template: str) -> bool:
        """Whether its pods claim devices by a ResourceClaimTemplate of that name."""
        return any(template in item.shape.templates for item in self.pod_sets)

    def may_be_partial(self) -> bool:
        """Whether fewer pods than asked for are acceptable."""
        return any(
            item.min_count is not None and item.min_count < item.count for item in self.pod_sets
        )


def scaled(requests: Requests, count: int) -> dict[str, Amount]:
    """Requests of ``count`` pods."""
    return {name: multiply(amount, count) for name, amount in requests.items()}


def _listed(problems: list[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
