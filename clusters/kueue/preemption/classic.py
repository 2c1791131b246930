"""Which workloads to preempt without fair sharing: candidates, attempts, and the minimal set.

Tries run on the live tree and are undone before returning.

Source: Kueue pkg/scheduler/preemption/{preemption.go,classical/*,common/*}, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cmp_to_key
from typing import Any

from clusters.kueue.amounts import ZERO, FlavorResource, Usage
from clusters.kueue.quota.resource_node import ResourceNode
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import PreemptionPolicy
from clusters.kueue.quota.tree import ClusterQueueState, CohortState, Holding
from clusters.kueue.workload.workloads import Workload


class PreemptionReason(Enum):
    """Reason of the Preempted condition, with the words of its message."""

    IN_CLUSTER_QUEUE = ("InClusterQueue", "prioritization in the ClusterQueue")
    IN_COHORT_RECLAMATION = ("InCohortReclamation", "reclamation within the cohort")
    IN_COHORT_FAIR_SHARING = ("InCohortFairSharing", "Fair Sharing within the cohort")
    IN_COHORT_RECLAIM_WHILE_BORROWING = (
        "InCohortReclaimWhileBorrowing",
        "reclamation within the cohort while borrowing",
    )

    @property
    def text(self) -> str:
        """Reason of the condition."""
        return self.value[0]

    @property
    def words(self) -> str:
        """What the message says."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Victim:
    """A workload to preempt, and why."""

    holding: Holding
    reason: PreemptionReason


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A workload that looks for room.

    Attributes:
        keys: pairs that lack quota, or domains.
        requests: everything that has to fit afterwards.
        finds_places: whether its pods find domains as things are.
    """

    workload: Workload
    queue: ClusterQueueState
    keys: frozenset[FlavorResource]
    requests: Usage
    finds_places: Callable[[], bool] = lambda: True


class _Variant(Enum):
    """On what terms a candidate is preempted, in the order in which they are tried."""

    HIERARCHICAL = 0
    WITHOUT_BORROWING = 1
    WHILE_BORROWING = 2
    WITHIN_QUEUE = 3


_REASONS: Mapping[_Variant, PreemptionReason] = {
    _Variant.HIERARCHICAL: PreemptionReason.IN_COHORT_RECLAMATION,
    _Variant.WITHOUT_BORROWING: PreemptionReason.IN_COHORT_RECLAMATION,
    _Variant.WHILE_BORROWING: PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING,
    _Variant.WITHIN_QUEUE: PreemptionReason.IN_CLUSTER_QUEUE,
}
# Those two of another queue are tried as one.
_TURNS: Mapping[_Variant, int] = {item: item.value for item in _Variant} | {
    _Variant.WHILE_BORROWING: _Variant.WITHOUT_BORROWING.value
}


@dataclass(frozen=True, slots=True)
class _Candidate:
    holding: Holding
    variant: _Variant
    lowest_common: ResourceNode | None = None


def candidate_order(snapshot: Snapshot, queue_name: str) -> Callable[[Holding], Any]:
    """Sort key of candidates: told to stop, other queues, lowest priority, latest, smallest UID.

    Where past usage orders a ClusterQueue's workloads, those of the LocalQueue that used more go
    before those of another one in the same ClusterQueue, whatever their priority.
    """

    def key(holding: Holding) -> tuple[bool, bool, int, float, str]:
        reservation = holding.workload.reservation
        assert reservation is not None
        return (
            not holding.is_evicted,
            reservation.cluster_queue == queue_name,
            holding.workload.priority,
            -reservation.reserved_at.timestamp(),
            holding.workload.uid,
        )

    if snapshot.ledger.rules is None:
        return key

    def compare(one: Holding, other: Holding) -> int:
        first, second = key(one), key(other)
        if first[:2] == second[:2] and one.cluster_queue == other.cluster_queue:
            usage, other_usage = snapshot.past_usage(one), snapshot.past_usage(other)
            if usage is not None and other_usage is not None and usage != other_usage:
                return -1 if usage > other_usage else 1
        return (first > second) - (first < second)

    return cmp_to_key(compare)


def satisfies(policy: PreemptionPolicy, *, preemptor: Workload, candidate: Workload) -> bool:
    """Whether the policy lets ``preemptor`` take the place of ``candidate``."""
    if policy is PreemptionPolicy.ANY:
        return True
    if policy is PreemptionPolicy.NEVER:
        return False
    if candidate.priority < preemptor.priority:
        return True
    return (
        policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
        and candidate.priority == preemptor.priority
        and preemptor.queued_at < candidate.queued_at
    )


def candidates_in(
    queue: ClusterQueueState, preemptor: Preemptor, policy: PreemptionPolicy
) -> Iterator[Holding]:
    """What a ClusterQueue holds of the lacking pairs and the policy lets be preempted."""
    if policy is PreemptionPolicy.NEVER:
        return
    keys, workload = preemptor.keys, preemptor.workload
    for holding in queue.holdings.values():
        if not holding.keys.isdisjoint(keys) and satisfies(
            policy, preemptor=workload, candidate=holding.workload
        ):
            yield holding


def fill_back(
    snapshot: Snapshot, targets: list[Victim], *, fits: Callable[[], bool]
) -> list[Victim]:
    """Spare every target that is not needed after all, the latest but one first.

    The targets are taken out of the snapshot on entry; those that remain are so on return.
    """
    index = len(targets) - 2
    while index >= 0:
        snapshot.put_back(targets[index].holding)
        if fits():
            targets[index] = targets[-1]
            targets.pop()
        else:
            snapshot.take_out(targets[index].holding)
        index -= 1
    return targets


class ClassicalPreemption:
    """Finds targets by priority and reclaim policies."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def targets(self, preemptor: Preemptor) -> list[Victim]:
        """Workloads whose end makes room, empty when nothing helps.

        Cost: candidates x (flavor, resource) pairs x depth.
        """
        candidates = self._collect(preemptor)
        if not candidates:
            return []
        for may_borrow in self._attempts(preemptor, {item.variant for item in candidates}):
            targets = self._attempt(preemptor, candidates, may_borrow=may_borrow)
            if targets:
                return targets
        return []

    def _attempts(self, preemptor: Preemptor, variants: Collection[_Variant]) -> tuple[bool, ...]:
        """Whether borrowing is allowed, attempt by attempt."""
        may_borrow = preemptor.queue.spec.preemption.may_borrow_while_preempting
        node = preemptor.queue.node
        is_under_nominal = all(
            node.usage.get(key, ZERO) < node.nominal(key) for key in preemptor.keys
        )
        if variants == {_Variant.WITHIN_QUEUE}:
            return (True,)
        if not may_borrow and not is_under_nominal:
            return (True,)
        if not may_borrow and _Variant.HIERARCHICAL not in variants:
            return (False, True)
        return (True, False)

    def _attempt(
        self, preemptor: Preemptor, candidates: Iterable[_Candidate], *, may_borrow: bool
    ) -> list[Victim]:
        snapshot = self._snapshot
        targets: list[Victim] = []

        def fits() -> bool:
            return fits_after(preemptor, may_borrow=may_borrow)

        for candidate in candidates:
            if not self._is_valid(preemptor, candidate, may_borrow=may_borrow):
                continue
            snapshot.take_out(candidate.holding)
            targets.append(Victim(candidate.holding, _REASONS[candidate.variant]))
            if fits():
                targets = fill_back(snapshot, targets, fits=fits)
                restore(snapshot, targets)
                return targets
        restore(snapshot, targets)
        return []

    def _is_valid(self, preemptor: Preemptor, candidate: _Candidate, *, may_borrow: bool) -> bool:
        if candidate.variant is _Variant.WITHIN_QUEUE:
            return True
        if may_borrow and candidate.variant is _Variant.WITHOUT_BORROWING:
            return False
        node: ResourceNode | None = self._snapshot.queues[candidate.holding.cluster_queue].node
        while node is not None and node is not candidate.lowest_common:
            if node.is_within_nominal(preemptor.keys):
                return False
            node = node.parent
        return True

    def _collect(self, preemptor: Preemptor) -> list[_Candidate]:
        """Those already told to stop first, each turn after the other."""
        queue, rules = preemptor.queue, preemptor.queue.spec.preemption
        order = candidate_order(self._snapshot, queue.spec.name)
        same = candidates_in(queue, preemptor, rules.within_cluster_queue)
        found = [_Candidate(item, _Variant.WITHIN_QUEUE) for item in same]
        if rules.reclaim_within_cohort is not PreemptionPolicy.NEVER:
            found.extend(self._elsewhere(preemptor))
        found.sort(
            key=lambda item: (
                not item.holding.is_evicted,
                _TURNS[item.variant],
                order(item.holding),
            )
        )
        return found

    def _elsewhere(self, preemptor: Preemptor) -> Iterator[_Candidate]:
        """Walk up from the queue; what one subtree could hold alone has a better claim."""
        has_advantage, rest = preemptor.queue.node.fits_in_quota(preemptor.requests)
        below: CohortState | None = None
        cohort = self._snapshot.cohort_of(preemptor.queue)
        while cohort is not None:
            for holding in self._borrowers(preemptor, cohort, skipped=below):
                variant = _variant(preemptor, holding, has_advantage=has_advantage)
                yield _Candidate(holding, variant, cohort.node)
            fits, rest = cohort.node.fits_in_quota(rest)
            has_advantage = has_advantage or fits
            below = cohort
            cohort = self._snapshot.cohorts.get(cohort.spec.parent)

    def _borrowers(
        self, preemptor: Preemptor, cohort: CohortState, *, skipped: CohortState | None
    ) -> Iterator[Holding]:
        """What children of a Cohort hold that use more of ``keys`` than is theirs. O(borrowers)."""
        by_key = cohort.node.borrowers
        nodes = {node: None for key in preemptor.keys for node in by_key.get(key, ())}
        for node in nodes:
            queue = cohort.queues.get(node.name)
            if queue is None or queue.node is not node:
                child = cohort.cohorts[node.name]
                if child is not skipped:
                    yield from self._borrowers(preemptor, child, skipped=None)
            elif queue is not preemptor.queue and queue.takes_part:
                policy = preemptor.queue.spec.preemption.reclaim_within_cohort
                yield from candidates_in(queue, preemptor, policy)


def fits_after(preemptor: Preemptor, *, may_borrow: bool) -> bool:
    """Whether everything requested fits the snapshot as it is now."""
    node = preemptor.queue.node
    if not may_borrow and any(
        node.exceeds_with(key, amount) for key, amount in preemptor.requests.items()
    ):
        return False
    return preemptor.queue.fits(preemptor.requests) and preemptor.finds_places()


def restore(snapshot: Snapshot, targets: Iterable[Victim]) -> None:
    """Put back everything that is still taken out."""
    for target in targets:
        snapshot.put_back(target.holding)


def _variant(preemptor: Preemptor, holding: Holding, *, has_advantage: bool) -> _Variant:
    if has_advantage:
        return _Variant.HIERARCHICAL
    rules = preemptor.queue.spec.preemption
    threshold = rules.max_priority_threshold
    priority = holding.workload.priority
    if (
        not rules.may_borrow_while_preempting
        or priority >= preemptor.workload.priority
        or (threshold is not None and priority > threshold)
    ):
        return _Variant.WITHOUT_BORROWING
    return _Variant.WHILE_BORROWING
