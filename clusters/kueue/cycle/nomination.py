"""What a head could get: flavors, victims, fewer pods, the place of an older slice.

Reads the snapshot; what it tries is undone. Decides nothing about the order of entries.

Source: Kueue pkg/scheduler/scheduler.go (getAssignments), pkg/scheduler/flavorassigner/
podset_reducer.go, pkg/workloadslicing, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from clusters.kueue.amounts import Amount, FlavorResource
from clusters.kueue.assignment.flavor_assigner import AssignmentRequest, FlavorAssigner
from clusters.kueue.assignment.outcome import Assignment, AssignmentMode, FlavorMode
from clusters.kueue.assignment.topology import accept
from clusters.kueue.configuration import Configuration, Gates
from clusters.kueue.cycle.entries import Entry
from clusters.kueue.preemption.classic import ClassicalPreemption, Preemptor, Victim
from clusters.kueue.preemption.fair import FairPreemption
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.tree import ClusterQueueState, Holding
from clusters.kueue.topology.need import PodSetNeed
from clusters.kueue.workload.workloads import Workload

_Flavors: TypeAlias = Mapping[tuple[str, str], str]


class _Tried(NamedTuple):
    """What an attempt came to."""

    assignment: Assignment
    targets: list[Victim]
    outcome: AssignmentMode

    @property
    def is_useful(self) -> bool:
        """Whether the workload can go on with it."""
        return self.outcome is AssignmentMode.FIT or bool(self.targets)


class Nominator:
    """Finds assignments and victims against a snapshot."""

    def __init__(self, snapshot: Snapshot, *, configuration: Configuration) -> None:
        self._snapshot = snapshot
        self._gates = configuration.gates
        self._preemption: ClassicalPreemption | FairPreemption = (
            FairPreemption(snapshot, configuration=configuration)
            if configuration.has_fair_sharing
            else ClassicalPreemption(snapshot)
        )
        self._assigner = FlavorAssigner(snapshot, configuration=configuration, oracle=self)

    def nominate(self, entry: Entry, *, cycle: int, allowed: _Flavors | None = None) -> None:
        """Note on an entry what it could get, with any flavors or those that are allowed."""
        item, queue = entry.item, entry.queue
        if self._is_outdated(entry, cycle):
            item.last_tried = {}
        older = replaced_slice(entry.workload, queue=queue, gates=self._gates)
        tried = self._tried(entry, older, allowed, counts=None)
        if not tried.is_useful:
            reduced = self._reduced(entry, older, allowed)
            older = older if reduced is not None else None
            tried = reduced or tried
        assignment, entry.targets, entry.outcome = tried
        entry.assignment, entry.replaced = assignment, older
        self._hold_domains(entry)
        entry.places = self._assigner.topology.uses(assignment, workload=entry.workload)
        entry.message = assignment.message()
        item.last_tried = assignment.last_tried
        item.tried_generation = queue.generation
        item.tried_cycle = cycle
        item.attempts = tuple(assignment.attempts)

    def _hold_domains(self, entry: Entry) -> None:
        """Find the domains that what waits for preemption keeps from later entries.

        Without anything to preempt they are those of an empty cluster.
        """
        needs = entry.assignment.needs
        if not needs or entry.outcome is not AssignmentMode.PREEMPT or entry.workload.has_lost_node:
            return
        leaving = entry.leaving
        with self._snapshot.usage_without(leaving.values()):
            placed = self._assigner.topology.search(needs, entry.workload, is_empty=not leaving)
        accept(entry.assignment, placed)

    def try_preemption(
        self, workload: Workload, *, queue: ClusterQueueState, key: FlavorResource, amount: Amount
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

    def _is_outdated(self, entry: Entry, cycle: int) -> bool:
        """Whether the scan of flavors has to begin again at the first one."""
        item = entry.item
        if self._gates.flavor_fungibility_preserve_scan_progress and item.tried_cycle >= cycle - 1:
            return False
        return item.tried_generation < entry.queue.generation

    def _reduced(
        self, entry: Entry, older: Holding | None, allowed: _Flavors | None
    ) -> _Tried | None:
        """The same with fewer pods, where the workload takes fewer."""
        if not self._gates.partial_admission or not entry.workload.may_be_partial():
            return None

        def attempt(counts: Sequence[int]) -> _Tried | None:
            tried = self._tried(entry, older, allowed, counts=counts)
            return tried if tried.is_useful else None

        return smallest_reduction(entry.workload, attempt=attempt)

    def _tried(
        self,
        entry: Entry,
        older: Holding | None,
        allowed: _Flavors | None,
        *,
        counts: Sequence[int] | None,
    ) -> _Tried:
        assignment = self._assigner.assign(
            AssignmentRequest(
                workload=entry.workload,
                queue=entry.queue,
                counts=counts,
                last_tried=entry.item.last_tried,
                allowed=allowed,
                replaced=older.workload.held() if older is not None else (),
            )
        )
        outcome = assignment.outcome
        if outcome is not AssignmentMode.PREEMPT:
            return _Tried(assignment, [], outcome)
        preemptor = Preemptor(
            workload=entry.workload,
            queue=entry.queue,
            keys=assignment.needing_preemption(),
            requests=assignment.to_free(),
            finds_places=lambda: self._finds_places(entry.workload, assignment.needs),
        )
        return _Tried(assignment, self._preemption.targets(preemptor), outcome)

    def _finds_places(self, workload: Workload, needs: Sequence[PodSetNeed]) -> bool:
        return not needs or not self._assigner.topology.search(needs, workload).failed


def replaced_slice(workload: Workload, *, queue: ClusterQueueState, gates: Gates) -> Holding | None:
    """What the older slice of an elastic workload holds in the same queue and namespace."""
    if not gates.elastic_jobs_via_workload_slices or not workload.replaces:
        return None
    older = queue.holdings.get(workload.replaces)
    return older if older is not None and older.workload.namespace == workload.namespace else None


def smallest_reduction(
    workload: Workload, *, attempt: Callable[[Sequence[int]], _Tried | None]
) -> _Tried | None:
    """What the attempt with the most pods found; ``None`` when even the fewest cannot go on.

    The search is binary, as Kueue's: it takes for granted that fewer pods never fit worse.

    Args:
        workload: with at least one pod set that accepts fewer pods.
        attempt: tries counts per pod set; returns what it found, ``None`` when that cannot go on.
    """
    counts = [item.count for item in workload.pod_sets]
    spare = [
        item.count - item.min_count if item.min_count is not None else 0
        for item in workload.pod_sets
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
