"""Which workloads to preempt under fair sharing: from the highest share down, step by step.

Tries run on the live tree and are undone before returning.

Source: Kueue pkg/scheduler/preemption/{preemption.go,fairsharing/*}, KEP-1714, v0.19.2. Deviation:
exact ties between Cohorts go to the name that sorts last (Kueue follows map order).
"""

from __future__ import annotations

from collections.abc import Iterator

from clusters.kueue.configuration import Configuration, FairStrategy
from clusters.kueue.preemption.classic import (
    PreemptionReason,
    Preemptor,
    Victim,
    candidate_order,
    candidates_in,
    fill_back,
    fits_after,
    restore,
)
from clusters.kueue.quota.fair_sharing import DominantShare, share_of
from clusters.kueue.quota.resource_node import ResourceNode
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import PreemptionPolicy
from clusters.kueue.quota.tree import ClusterQueueState, CohortState, Holding


class _Walk:
    """Chooses the next ClusterQueue to take from, while shares change."""

    def __init__(
        self, snapshot: Snapshot, *, preemptor: ClusterQueueState, candidates: list[Holding]
    ) -> None:
        self.left: dict[str, list[Holding]] = {}
        for holding in candidates:
            self.left.setdefault(holding.cluster_queue, []).append(holding)
        self._snapshot, self._preemptor = snapshot, preemptor
        self._order = candidate_order(snapshot, preemptor.spec.name)
        self._own_path = frozenset(id(node) for node in preemptor.node.path())
        self._pruned: set[int] = set()

    def queues(self) -> Iterator[ClusterQueueState]:
        """Queues to take from; the same one again as long as it has the highest share."""
        root = self._snapshot.cohort_of(self._preemptor)
        if root is None:
            while self.left.get(self._preemptor.spec.name):
                yield self._preemptor
            return
        while root.spec.parent:
            root = self._snapshot.cohorts[root.spec.parent]
        while id(root) not in self._pruned:
            queue = self._next(root)
            if queue is not None:
                yield queue

    def drop(self, queue: ClusterQueueState) -> None:
        """Take nothing more from a queue."""
        self.left.pop(queue.spec.name, None)

    def _next(self, cohort: CohortState) -> ClusterQueueState | None:
        best_queue, queue_share = self._best_queue(cohort)
        best_cohort, cohort_share = self._best_cohort(cohort)
        if best_cohort is None and best_queue is None:
            self._pruned.add(id(cohort))
            return None
        if best_cohort is not None and (best_queue is None or cohort_share >= queue_share):
            return self._next(best_cohort)
        return best_queue

    def _best_queue(self, cohort: CohortState) -> tuple[ClusterQueueState | None, DominantShare]:
        best: ClusterQueueState | None = None
        best_share = DominantShare()
        for _, queue in sorted(cohort.queues.items()):
            if id(queue) in self._pruned or not queue.takes_part:
                continue
            share = share_of(queue.node)
            waiting = self.left.get(queue.spec.name)
            if not waiting or not (share.is_borrowing or queue is self._preemptor):
                self._pruned.add(id(queue))
                continue
            if best is not None and share == best_share:
                if self._order(waiting[0]) < self._order(self.left[best.spec.name][0]):
                    best = queue
            elif best is None or share > best_share:
                best, best_share = queue, share
        return best, best_share

    def _best_cohort(self, cohort: CohortState) -> tuple[CohortState | None, DominantShare]:
        best: CohortState | None = None
        best_share = DominantShare()
        for _, child in sorted(cohort.cohorts.items()):
            if id(child) in self._pruned:
                continue
            share = share_of(child.node)
            if not share.is_borrowing and id(child.node) not in self._own_path:
                self._pruned.add(id(child))
                continue
            if best is None or share >= best_share:
                best, best_share = child, share
        return best, best_share


class FairPreemption:
    """Finds targets so that shares come closer to each other."""

    def __init__(self, snapshot: Snapshot, *, configuration: Configuration) -> None:
        self._snapshot = snapshot
        self._strategies = configuration.fair_strategies
        self._within_nominal = configuration.gates.fair_sharing_preempt_within_nominal

    def targets(self, preemptor: Preemptor) -> list[Victim]:
        """Workloads whose end makes room, empty when nothing helps."""
        candidates = self._collect(preemptor)
        if not candidates:
            return []
        candidates.sort(key=candidate_order(self._snapshot, preemptor.queue.spec.name))
        targets: list[Victim] = []
        with self._snapshot.usage_with(preemptor.queue, preemptor.requests):
            fits, retry = self._first(preemptor, candidates, targets)
            if not fits and len(self._strategies) > 1:
                fits = self._second(preemptor, retry, targets)
        if fits:
            targets = fill_back(
                self._snapshot, targets, fits=lambda: fits_after(preemptor, may_borrow=True)
            )
        restore(self._snapshot, targets)
        return targets if fits else []

    def _collect(self, preemptor: Preemptor) -> list[Holding]:
        rules = preemptor.queue.spec.preemption
        found = list(candidates_in(preemptor.queue, preemptor, rules.within_cluster_queue))
        if rules.reclaim_within_cohort is PreemptionPolicy.NEVER:
            return found
        for queue in self._snapshot.tree_queues(preemptor.queue):
            if queue is preemptor.queue or not queue.takes_part:
                continue
            if not queue.node.is_within_nominal(preemptor.keys):
                found.extend(candidates_in(queue, preemptor, rules.reclaim_within_cohort))
        return found

    def _first(
        self, preemptor: Preemptor, candidates: list[Holding], targets: list[Victim]
    ) -> tuple[bool, list[Holding]]:
        """Apply the first strategy; returns whether it fits and who was spared by the shares."""
        retry: list[Holding] = []
        own = preemptor.queue
        walk = _Walk(self._snapshot, preemptor=own, candidates=candidates)
        # Weighed once: recorded runs show that own victims do not make the queue entitled later.
        is_entitled = self._within_nominal and own.node.is_within_nominal(preemptor.keys)
        for queue in walk.queues():
            waiting = walk.left[queue.spec.name]
            if queue is own or is_entitled:
                reason = (
                    PreemptionReason.IN_CLUSTER_QUEUE
                    if queue is own
                    else PreemptionReason.IN_COHORT_RECLAMATION
                )
                self._take(waiting.pop(0), reason, targets)
            elif not self._take_by_share(own, queue, waiting, targets, retry):
                continue
            if self._fits(preemptor):
                return True, retry
        return False, retry

    def _take_by_share(
        self,
        own: ClusterQueueState,
        queue: ClusterQueueState,
        waiting: list[Holding],
        targets: list[Victim],
        retry: list[Holding],
    ) -> bool:
        ours, theirs = _diverging_nodes(own.node, queue.node)
        our_share, their_share = share_of(ours), share_of(theirs)
        if our_share.is_infinite and not their_share.is_infinite:
            retry.extend(waiting)
            waiting.clear()
            return False
        while waiting:
            holding = waiting.pop(0)
            with self._snapshot.usage_without([holding]):
                after = share_of(theirs)
            if _allows(self._strategies[0], ours=our_share, before=their_share, after=after):
                self._take(holding, PreemptionReason.IN_COHORT_FAIR_SHARING, targets)
                return True
            retry.append(holding)
        return False

    def _second(self, preemptor: Preemptor, retry: list[Holding], targets: list[Victim]) -> bool:
        own = preemptor.queue
        walk = _Walk(self._snapshot, preemptor=own, candidates=retry)
        for queue in walk.queues():
            ours, theirs = _diverging_nodes(own.node, queue.node)
            if share_of(ours) < share_of(theirs):
                holding = walk.left[queue.spec.name][0]
                self._take(holding, PreemptionReason.IN_COHORT_FAIR_SHARING, targets)
                if self._fits(preemptor):
                    return True
            walk.drop(queue)
        return False

    def _take(self, holding: Holding, reason: PreemptionReason, targets: list[Victim]) -> None:
        self._snapshot.take_out(holding)
        targets.append(Victim(holding, reason))

    def _fits(self, preemptor: Preemptor) -> bool:
        """Fit test without the usage that was added for the shares."""
        node = preemptor.queue.node
        node.remove_all(preemptor.requests)
        fits = fits_after(preemptor, may_borrow=True)
        node.add_all(preemptor.requests)
        return fits


def _allows(
    strategy: FairStrategy, *, ours: DominantShare, before: DominantShare, after: DominantShare
) -> bool:
    if strategy is FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE:
        return ours <= after
    return ours < before


def _diverging_nodes(ours: ResourceNode, theirs: ResourceNode) -> tuple[ResourceNode, ResourceNode]:
    """Children of the lowest common ancestor on the way to each of the two."""
    our_path = ours.path()
    positions = {id(node): index for index, node in enumerate(our_path)}
    below = theirs
    while below.parent is not None and id(below.parent) not in positions:
        below = below.parent
    assert below.parent is not None
    return our_path[positions[id(below.parent)] - 1], below
