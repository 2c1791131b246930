"""One scheduling cycle, in six numbered steps; returns decisions and writes nothing.

Source: Kueue pkg/scheduler/scheduler.go, v0.19.2. Deviations: full ties go to the smaller UID;
instead of a copied snapshot the live tree is used, and what only this cycle assumes is undone at
its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from clusters.kueue.amounts import FlavorResource, Usage, add, subtract
from clusters.kueue.assignment.flavor_assigner import AssignmentRequest, FlavorAssigner
from clusters.kueue.assignment.outcome import Assignment, AssignmentMode, FlavorMode
from clusters.kueue.configuration import Configuration
from clusters.kueue.cycle.entries import Entry, EntryStatus
from clusters.kueue.cycle.tournament import tournament
from clusters.kueue.preemption.classic import ClassicalPreemption, Preemptor, Victim
from clusters.kueue.preemption.fair import FairPreemption
from clusters.kueue.queueing.buckets import QueueItem
from clusters.kueue.queueing.queues import RequeueReason
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import PreemptionPolicy
from clusters.kueue.quota.tree import ClusterQueueState, Holding
from clusters.kueue.workload.workloads import Workload

_Tried: TypeAlias = tuple[Assignment, list[Victim]]
_WAITING_FOR_PODS: Final = "waiting for all admitted workloads to be in PodsReady condition"
_OVERLAPPING: Final = "Workload has overlapping preemption targets with another workload"
_NO_LONGER_FITS: Final = "Workload no longer fits after processing another workload"
PASSING_MESSAGES: Final = frozenset({_OVERLAPPING, _NO_LONGER_FITS, _WAITING_FOR_PODS})
"""Said of heads that are tried again at once, because of what else happened in their cycle."""


@dataclass(slots=True)
class _Assumed:
    """What only this cycle believes.

    Attributes:
        usage: added to queues for entries that wait for preemptions or reserve capacity.
        victims: targets chosen so far, by workload key.
        has_admitted: some entry was admitted.
    """

    usage: list[tuple[ClusterQueueState, Usage]] = field(default_factory=list)
    victims: dict[str, Victim] = field(default_factory=dict)
    has_admitted: bool = False

    def add(self, queue: ClusterQueueState, usage: Usage) -> None:
        queue.node.add_all(usage)
        self.usage.append((queue, usage))


class Scheduler:
    """Decides one cycle against a snapshot."""

    def __init__(self, snapshot: Snapshot, *, configuration: Configuration) -> None:
        self._snapshot = snapshot
        self._configuration = configuration
        self._gates = configuration.gates
        self._preemption: ClassicalPreemption | FairPreemption = (
            FairPreemption(snapshot, configuration=configuration)
            if configuration.has_fair_sharing
            else ClassicalPreemption(snapshot)
        )
        self._assigner = FlavorAssigner(snapshot, configuration=configuration, oracle=self)

    def run(self, entries: Sequence[Entry], *, cycle: int) -> list[Entry]:
        """Decide about the heads of a cycle; those that were refused before are left as they are.

        Returns:
            The entries in the order in which they were decided. Usage of admitted ones stays added
            to the snapshot; the caller replaces it by a holding.
        """
        # 1. Nominate: every head against the state at the beginning of the cycle.
        nominated = [entry for entry in entries if not entry.is_refused]
        for entry in nominated:
            self._nominate(entry, cycle)
        # 2. Order: who goes first.
        assumed = _Assumed()
        decided: list[Entry] = []
        for entry in self._in_order(nominated):
            # 3. to 5. for each entry, see there.
            self._process(entry, assumed)
            decided.append(entry)
        # 6. Undo what only this cycle assumed; requeueing is the caller's.
        for queue, usage in reversed(assumed.usage):
            queue.node.remove_all(usage)
        return decided

    def try_preemption(
        self, workload: Workload, *, queue: ClusterQueueState, key: FlavorResource, amount: int
    ) -> tuple[FlavorMode, int]:
        """Mode and borrowing level that preemption for one (flavor, resource) would lead to."""
        targets = self._preemption.targets(
            Preemptor(workload=workload, queue=queue, keys=frozenset({key}), requests={key: amount})
        )
        if not targets:
            return FlavorMode.NO_CANDIDATES, queue.node.borrowing_level(key, amount)[0]
        with self._snapshot.usage_without(target.holding for target in targets):
            level, _ = queue.node.borrowing_level(key, amount)
        is_own = any(target.holding.cluster_queue == queue.spec.name for target in targets)
        return (FlavorMode.PREEMPT if is_own else FlavorMode.RECLAIM), level

    def _nominate(self, entry: Entry, cycle: int) -> None:
        item, queue = entry.item, entry.queue
        if self._is_outdated(item, queue, cycle):
            item.last_tried = {}
        assignment, targets = self._attempt(entry, None)
        mode = assignment.outcome
        is_hopeless = mode is not AssignmentMode.FIT and not targets
        if is_hopeless and self._gates.partial_admission and entry.workload.may_be_partial():
            reduced = _smallest_reduction(
                entry.workload, attempt=lambda counts: self._useful(entry, counts)
            )
            if reduced is not None:
                assignment, targets = reduced
                mode = assignment.outcome
        entry.assignment, entry.targets, entry.outcome = assignment, targets, mode
        entry.message = assignment.message()
        item.last_tried = assignment.last_tried
        item.tried_generation = queue.generation
        item.tried_cycle = cycle
        item.attempts = tuple(assignment.attempts)

    def _is_outdated(self, item: QueueItem, queue: ClusterQueueState, cycle: int) -> bool:
        """Whether the scan of flavors has to begin again at the first one."""
        if self._gates.flavor_fungibility_preserve_scan_progress and item.tried_cycle >= cycle - 1:
            return False
        return item.tried_generation < queue.generation

    def _useful(self, entry: Entry, counts: Sequence[int]) -> _Tried | None:
        assignment, targets = self._attempt(entry, counts)
        return (
            (assignment, targets) if assignment.outcome is AssignmentMode.FIT or targets else None
        )

    def _attempt(self, entry: Entry, counts: Sequence[int] | None) -> _Tried:
        older = self._replaced(entry)
        if older is None or older.workload.reservation is None:
            return self._tried(entry, counts)
        kept = {
            (item.name, resource): flavor
            for item in older.workload.reservation.pod_sets
            for resource, flavor in item.flavors.items()
        }
        with self._snapshot.without([older]):
            return self._tried(entry, counts, allowed=kept)

    def _replaced(self, entry: Entry) -> Holding | None:
        """What the older slice of an elastic workload holds in the same queue."""
        key = entry.workload.replaces
        older = self._snapshot.holding(key) if key else None
        is_here = older is not None and older.cluster_queue == entry.queue.spec.name
        return older if is_here else None

    def _tried(
        self,
        entry: Entry,
        counts: Sequence[int] | None,
        *,
        allowed: Mapping[tuple[str, str], str] | None = None,
    ) -> _Tried:
        assignment = self._assigner.assign(
            AssignmentRequest(
                workload=entry.workload,
                queue=entry.queue,
                counts=counts,
                last_tried=entry.item.last_tried,
                allowed=allowed,
            )
        )
        if assignment.outcome is not AssignmentMode.PREEMPT:
            return assignment, []
        preemptor = Preemptor(
            workload=entry.workload,
            queue=entry.queue,
            keys=assignment.needing_preemption(),
            requests=assignment.usage,
        )
        return assignment, self._preemption.targets(preemptor)

    def _in_order(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        if self._configuration.has_fair_sharing:
            yield from tournament(
                entries,
                snapshot=self._snapshot,
                prioritizes_non_borrowing=self._gates.fair_sharing_prioritize_non_borrowing,
            )
            return
        by_priority = self._gates.priority_sorting_within_cohort
        yield from sorted(
            entries,
            key=lambda entry: (
                entry.assignment.level,
                -entry.workload.priority if by_priority else 0,
                entry.workload.queued_at,
                entry.workload.uid,
            ),
        )

    def _process(self, entry: Entry, assumed: _Assumed) -> None:
        # 3. What cannot go on: no flavor, or nothing to preempt.
        if entry.outcome is AssignmentMode.NO_FIT:
            entry.requeue_reason = RequeueReason.NO_FIT
            entry.reason = entry.assignment.obstacle.text
            return
        if entry.outcome is AssignmentMode.PREEMPT and not entry.targets:
            self._reserve(entry, assumed)
            return
        # 4. What other entries of this cycle leave room for.
        if any(target.holding.workload.key in assumed.victims for target in entry.targets):
            if self._fits_after_victims(entry, assumed):
                self._defer(entry, assumed)
            else:
                self._skip(entry, _OVERLAPPING)
            return
        if not self._fits_projected(entry, assumed):
            self._skip(entry, _NO_LONGER_FITS)
            return
        if entry.outcome is AssignmentMode.FIT and self._waits_for_pods(assumed):
            self._skip(entry, _WAITING_FOR_PODS)
            entry.reason = "WaitingForPodsReady"
            return
        # 5. Preempt or admit.
        for target in entry.targets:
            assumed.victims[target.holding.workload.key] = target
        if entry.outcome is AssignmentMode.FIT:
            entry.queue.node.add_all(entry.assignment.usage)
            entry.status = EntryStatus.ADMITTED
            assumed.has_admitted = True
            return
        assumed.add(entry.queue, entry.assignment.usage)
        entry.item.last_tried = {}
        entry.status = EntryStatus.PREEMPTING
        entry.requeue_reason = RequeueReason.PENDING_PREEMPTION
        entry.reason = "WaitingForPreemptedWorkloads"
        entry.message += f". Pending the preemption of {len(entry.targets)} workload(s)"

    def _skip(self, entry: Entry, message: str) -> None:
        entry.status = EntryStatus.SKIPPED
        entry.message = message
        entry.requeue_reason = RequeueReason.FAILED_AFTER_NOMINATION
        if not self._gates.flavor_fungibility_preserve_scan_progress:
            entry.item.last_tried = {}

    def _waits_for_pods(self, assumed: _Assumed) -> bool:
        """Whether nothing may start before the pods of everything admitted are ready."""
        if not self._configuration.blocks_admission:
            return False
        return assumed.has_admitted or not self._snapshot.are_pods_ready()

    def _fits_after_victims(self, entry: Entry, assumed: _Assumed) -> bool:
        """Whether the victims of others are enough, with the flavors nominated before."""
        if not self._gates.recompute_assignment_upon_preemption_targets_overlap:
            return False
        nominated = {
            (item.name, resource): choice.flavor
            for item in entry.assignment.pod_sets
            for resource, choice in item.choices.items()
        }
        request = AssignmentRequest(
            workload=entry.workload,
            queue=entry.queue,
            counts=[item.count for item in entry.assignment.pod_sets],
            allowed=nominated,
        )
        with self._snapshot.without([target.holding for target in assumed.victims.values()]):
            assignment = self._assigner.assign(request)
        if assignment.outcome is not AssignmentMode.FIT:
            return False
        entry.assignment = assignment
        return True

    def _defer(self, entry: Entry, assumed: _Assumed) -> None:
        """Keep the room that other entries' preemptions make for the next cycle."""
        entry.outcome = AssignmentMode.DEFERRED_FIT
        entry.status = EntryStatus.SKIPPED
        entry.message = f"{_OVERLAPPING}, but will fit after these preemptions complete"
        entry.reason = "WaitingForPreemptedWorkloads"
        entry.requeue_reason = RequeueReason.PENDING_PREEMPTION
        entry.item.last_tried = {}
        assumed.add(entry.queue, entry.assignment.usage)

    def _fits_projected(self, entry: Entry, assumed: _Assumed) -> bool:
        gone = [target.holding for target in (*assumed.victims.values(), *entry.targets)]
        older = self._replaced(entry)
        if older is not None and older not in gone:
            gone.append(older)
        with self._snapshot.usage_without(gone):
            return entry.queue.fits(entry.assignment.usage)

    def _reserve(self, entry: Entry, assumed: _Assumed) -> None:
        """Keep capacity from later entries, unless it could be reclaimed from them anyway."""
        entry.requeue_reason = RequeueReason.PREEMPTION_NO_CANDIDATES
        if entry.queue.spec.preemption.reclaim_within_cohort is PreemptionPolicy.ANY:
            return
        usage = {
            key: _reserved(entry.queue, key, amount, level=entry.assignment.level)
            for key, amount in entry.assignment.usage.items()
        }
        assumed.add(entry.queue, usage)


def _reserved(queue: ClusterQueueState, key: FlavorResource, amount: int, *, level: int) -> int:
    quota = queue.spec.quotas[key]
    used = queue.node.usage.get(key, 0)
    if level > 0:
        if quota.borrowing_limit is None:
            return amount
        return max(0, min(amount, subtract(add(quota.nominal, quota.borrowing_limit), used)))
    return max(0, min(amount, subtract(quota.nominal, used)))


def _smallest_reduction(
    workload: Workload, *, attempt: Callable[[Sequence[int]], _Tried | None]
) -> _Tried | None:
    """What the attempt with the most pods found; ``None`` when even the fewest cannot go on.

    The search is binary, as Kueue's: it takes for granted that fewer pods never fit worse.

    Args:
        workload: with at least one pod set that accepts fewer pods.
        attempt: tries counts per pod set; returns what it found, ``None`` when that cannot go on.

    Source: Kueue pkg/scheduler/flavorassigner/podset_reducer.go, v0.19.2.
    """
    counts = [workload.remaining_count(item) for item in workload.pod_sets]
    spare = [
        max(0, count - item.min_count) if item.min_count is not None else 0
        for count, item in zip(counts, workload.pod_sets, strict=True)
    ]
    total = sum(spare)
    best: _Tried | None = None
    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        reduced = [
            count - extra * middle // total for count, extra in zip(counts, spare, strict=True)
        ]
        found = attempt(reduced)
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return best
