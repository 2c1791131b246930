"""Questions about an engine's state: usage, conditions and shares.

Reads only. Figures have the shapes of the status fields that show them.

Source: Kueue pkg/controller/core/{clusterqueue,localqueue}_controller.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clusters.kueue.amounts import (
    ZERO,
    FlavorResource,
    Usage,
    format_amount,
    subtract,
    whole,
)
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.queueing.readiness import ActiveCondition, local_queue_condition
from clusters.kueue.quota.fair_sharing import share_of
from clusters.kueue.quota.resource_node import ResourceNode
from clusters.kueue.quota.tree import ClusterQueueState, Tally
from clusters.kueue.workload.workloads import Workload, scaled


@dataclass(frozen=True, slots=True)
class QueueReport:
    """Status of a ClusterQueue or LocalQueue.

    Attributes:
        flavors_reservation: ``status.flavorsReservation``: what reservations hold.
        flavors_usage: ``status.flavorsUsage``: what admitted workloads hold.
        pending, reserving, admitted: numbers of workloads.
        weighted_share: per mille, rounded up; 0 for a LocalQueue.
    """

    condition: ActiveCondition
    flavors_reservation: list[dict[str, Any]]
    flavors_usage: list[dict[str, Any]]
    pending: int
    reserving: int
    admitted: int
    weighted_share: int = 0


def cluster_queue_report(engine: Engine, name: str) -> QueueReport:
    """Status of a ClusterQueue.

    Raises:
        KeyError: it does not exist.
    """
    engine.state.refresh()
    queue = engine.state.snapshot.queues[name]
    pending = engine.state.queues.queue(name)
    held = queue.held
    return QueueReport(
        condition=engine.state.condition(queue.spec),
        flavors_reservation=_flavors(queue, held.reserving, shows_borrowed=True),
        flavors_usage=_flavors(queue, held.admitted, shows_borrowed=True),
        pending=len(pending) if pending is not None else 0,
        reserving=held.reserving.count,
        admitted=held.admitted.count,
        weighted_share=share_of(queue.node).published,
    )


def local_queue_report(engine: Engine, key: str) -> QueueReport:
    """Status of a LocalQueue, named as ``namespace/name``.

    Raises:
        KeyError: it does not exist.
    """
    engine.state.refresh()
    spec = engine.state.queues.local_queues[key]
    queue = engine.state.snapshot.queues.get(spec.cluster_queue)
    held = engine.state.snapshot.held_through(key, queue=spec.cluster_queue)
    condition = engine.state.condition(queue.spec) if queue is not None else None
    return QueueReport(
        condition=local_queue_condition(spec, queue=condition),
        flavors_reservation=_flavors(queue, held.reserving, shows_borrowed=False),
        flavors_usage=_flavors(queue, held.admitted, shows_borrowed=False),
        pending=engine.state.queues.waiting_in(key),
        reserving=held.reserving.count,
        admitted=held.admitted.count,
    )


def resource_requests(workload: Workload) -> list[dict[str, Any]]:
    """``status.resourceRequests`` of a pending workload: total amounts by pod set."""
    return [
        {
            "name": pod_set.name,
            "resources": {
                resource: format_amount(amount, resource)
                for resource, amount in sorted(
                    scaled(pod_set.shape.requests.amounts, pod_set.count).items()
                )
            },
        }
        for pod_set in workload.pod_sets
    ]


def cohort_share(engine: Engine, name: str) -> int:
    """``status.fairSharing.weightedShare`` of a Cohort.

    Raises:
        KeyError: nothing names it.
    """
    engine.state.refresh()
    return share_of(engine.state.snapshot.cohorts[name].node).published


@dataclass(frozen=True, slots=True)
class ShareReport:
    """What one node below a Cohort borrows, against its weight.

    Attributes:
        name: of the ClusterQueue or Cohort.
        is_cohort: which of them it is.
        parent: the Cohort above.
        resource: the dominant one, empty where nothing is borrowed that could be lent.
        borrowed, lendable: of that resource, in its own unit.
        published: ``status.fairSharing.weightedShare``.
    """

    name: str
    is_cohort: bool
    parent: str
    weight: float
    resource: str
    borrowed: int
    lendable: int
    published: int


def share_reports(engine: Engine) -> Iterator[ShareReport]:
    """Shares of everything below a Cohort, ClusterQueues first. O(nodes and pairs in use)."""
    engine.state.refresh()
    snapshot = engine.state.snapshot
    nodes = [
        *((False, state.node) for state in snapshot.queues.values()),
        *((True, state.node) for state in snapshot.cohorts.values()),
    ]
    for is_cohort, node in nodes:
        if node.parent is None:
            continue
        share = share_of(node)
        borrowed = sum(
            max(0, whole(subtract(used, node.subtree_quota.get(key, ZERO))))
            for key, used in node.usage.items()
            if key.resource == share.resource
        )
        yield ShareReport(
            node.name,
            is_cohort,
            node.parent.name,
            node.weight,
            share.resource,
            borrowed,
            whole(node.parent.lendable.get(share.resource, ZERO)),
            share.published,
        )


def _flavors(
    queue: ClusterQueueState | None, held: Tally, *, shows_borrowed: bool
) -> list[dict[str, Any]]:
    if queue is None:
        return []
    total = held.amounts()
    return [
        {
            "name": flavor,
            "resources": [
                _resource(queue.node, FlavorResource(flavor, resource), total, shows_borrowed)
                for resource in sorted(group.resources)
            ],
        }
        for group in queue.spec.groups
        for flavor in group.flavors
    ]


def _resource(
    node: ResourceNode,
    key: FlavorResource,
    total: Usage,
    shows_borrowed: bool,
) -> dict[str, str]:
    used = total.get(key, ZERO)
    shown = {"name": key.resource, "total": format_amount(used, key.resource)}
    if shows_borrowed:
        above = subtract(used, node.nominal(key)) if node.parent is not None else ZERO
        borrowed = max(ZERO, above)
        shown["borrowed"] = format_amount(borrowed, key.resource)
    return shown
