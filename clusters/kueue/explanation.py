"""Why a workload waits: the sentence, and the evidence behind it.

Reads only. Names other workloads and queues; whoever shows it decides what a reader may see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from clusters.kueue.amounts import FlavorResource
from clusters.kueue.assignment import FlavorAttempt
from clusters.kueue.documents import PreemptionPolicy
from clusters.kueue.engine import BYPASSED_MESSAGE, Engine
from clusters.kueue.preemption import satisfies
from clusters.kueue.tree import ClusterQueueState, Holding
from clusters.kueue.workloads import Workload


class Protection(Enum):
    """Why a workload that holds what is lacking is not preempted."""

    NONE = "it may be preempted, but that does not make enough room"
    STOPPING = "it was told to stop already"
    WITHIN_QUEUE_NEVER = "the queue preempts none of its own workloads"
    RECLAIM_NEVER = "the queue reclaims nothing from others"
    PRIORITY = "its priority, or its age, protects it"
    WITHIN_NOMINAL = "its queue does not borrow what is lacking"


@dataclass(frozen=True, slots=True)
class Holder:
    """A workload that holds what another one lacks.

    Attributes:
        amounts: what it holds of the lacking pairs.
        protection: why it is not preempted.
    """

    key: str
    cluster_queue: str
    amounts: Mapping[FlavorResource, int]
    protection: Protection


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a workload waits, with the evidence.

    Attributes:
        reason, message: of its QuotaReserved=False condition, empty before its first cycle.
        cluster_queue: where it waits, empty when nowhere.
        position: 1 for the next of its ClusterQueue, 0 when it waits in none.
        is_parked: it is not tried again before something in its tree changes.
        attempts: flavors looked at in its last cycle.
        holders: workloads that hold what it lacks, its own ClusterQueue's first.
    """

    reason: str
    message: str
    cluster_queue: str = ""
    position: int = 0
    is_parked: bool = False
    attempts: tuple[FlavorAttempt, ...] = ()
    holders: tuple[Holder, ...] = ()


def explain(engine: Engine, key: str, *, now: datetime) -> Explanation | None:
    """Why a workload waits; ``None`` for one that is unknown or does not wait."""
    state = engine.state
    state.settle(now)
    workload = state.workloads.get(key)
    if workload is None or workload.reservation is not None:
        return None
    refusal = state.queues.refusal(key)
    if refusal is not None:
        return Explanation(refusal.reason, refusal.message)
    item = state.queues.item(key)
    if item is None:
        return Explanation("Deactivated", "The workload is deactivated")
    name = state.queues.queue_of(key)
    queue = state.snapshot.queues[name]
    reason, message = item.reason, item.message
    if not queue.is_active:
        reason, message = "Suspended", f"ClusterQueue {name} is inactive"
    elif key in state.bypassed and not message:
        reason, message = "WaitingForQuota", BYPASSED_MESSAGE
    pending = state.queues.queue(name)
    assert pending is not None
    active = pending.active_keys()
    order = active if key in active else active + pending.parked_keys()
    return Explanation(
        reason=reason,
        message=message,
        cluster_queue=name,
        position=order.index(key) + 1,
        is_parked=key not in active,
        attempts=item.attempts,
        holders=_holders(engine, workload, queue, item.attempts),
    )


def _holders(
    engine: Engine,
    workload: Workload,
    own: ClusterQueueState,
    attempts: Iterable[FlavorAttempt],
) -> tuple[Holder, ...]:
    lacking = frozenset(
        FlavorResource(attempt.flavor, resource)
        for attempt in attempts
        for resource in attempt.missing
    )
    queues = engine.state.snapshot.tree_queues(own)
    ordered = sorted(queues, key=lambda queue: (queue is not own, queue.spec.name))
    return tuple(
        Holder(
            key=key,
            cluster_queue=queue.spec.name,
            amounts={pair: holding.usage[pair] for pair in lacking if pair in holding.usage},
            protection=_protection(workload, own, queue, holding, lacking),
        )
        for queue in ordered
        for key, holding in sorted(queue.holdings.items())
        if not lacking.isdisjoint(holding.usage)
    )


def _protection(
    workload: Workload,
    own: ClusterQueueState,
    queue: ClusterQueueState,
    holding: Holding,
    lacking: frozenset[FlavorResource],
) -> Protection:
    if holding.is_evicted:
        return Protection.STOPPING
    rules = own.spec.preemption
    is_own = queue is own
    policy = rules.within_cluster_queue if is_own else rules.reclaim_within_cohort
    if policy is PreemptionPolicy.NEVER:
        return Protection.WITHIN_QUEUE_NEVER if is_own else Protection.RECLAIM_NEVER
    if not is_own and queue.node.is_within_nominal(lacking):
        return Protection.WITHIN_NOMINAL
    if not satisfies(policy, preemptor=workload, candidate=holding.workload):
        return Protection.PRIORITY
    return Protection.NONE
