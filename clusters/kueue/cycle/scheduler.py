"""One scheduling cycle, in six numbered steps; returns decisions and writes nothing.

Under fair sharing a tournament orders the entries of a cycle.

Source: Kueue pkg/scheduler/scheduler.go, pkg/scheduler/fair_sharing_iterator.go, KEP-1714, v0.19.2.
Deviations: full ties go to the smaller UID;
instead of a copied snapshot the live tree is used, and what only this cycle assumes is undone at
its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Final

from clusters.kueue.amounts import ZERO, Amount, FlavorResource, Usage, add, subtract
from clusters.kueue.assignment.outcome import AssignmentMode
from clusters.kueue.configuration import Configuration
from clusters.kueue.cycle.entries import Entry, EntryStatus
from clusters.kueue.cycle.nomination import Nominator
from clusters.kueue.queueing.queues import RequeueReason
from clusters.kueue.quota.fair_sharing import share_of
from clusters.kueue.quota.resource_node import ResourceNode
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import PreemptionPolicy
from clusters.kueue.quota.tree import ClusterQueueState, CohortState, Holding
from clusters.kueue.topology.tree import PlacedUse

_WAITING_FOR_PODS: Final = "waiting for all admitted workloads to be in PodsReady condition"
_OVERLAPPING: Final = "Workload has overlapping preemption targets with another workload"
_NO_LONGER_FITS: Final = "Workload no longer fits after processing another workload"
PASSING_MESSAGES: Final = frozenset({_OVERLAPPING, _NO_LONGER_FITS, _WAITING_FOR_PODS})
"""Said of heads that are tried again at once, because of what else happened in their cycle."""


@dataclass(slots=True)
class _Assumed:
    """What only this cycle believes.

    Attributes:
        cycle: number of the cycle.
        usage: quota and domains of entries that wait for preemptions or reserve capacity.
        leaving: what was chosen so far to go, by workload key.
        has_admitted: some entry was admitted.
    """

    cycle: int
    usage: list[tuple[ClusterQueueState, Usage, tuple[PlacedUse, ...]]] = field(
        default_factory=list
    )
    leaving: dict[str, Holding] = field(default_factory=dict)
    has_admitted: bool = False


class _Fit(Enum):
    """Whether an entry still fits beside what this cycle decided before."""

    NO_QUOTA = auto()
    NO_DOMAINS = auto()
    OK = auto()


class Scheduler:
    """Decides one cycle against a snapshot."""

    def __init__(self, snapshot: Snapshot, *, configuration: Configuration) -> None:
        self._snapshot = snapshot
        self._configuration = configuration
        self._gates = configuration.gates
        self._nominator = Nominator(snapshot, configuration=configuration)

    def run(self, entries: Sequence[Entry], *, cycle: int) -> list[Entry]:
        """Decide about the heads of a cycle; those that were refused before are left as they are.

        Returns:
            The entries in the order in which they were decided. Usage of admitted ones stays added
            to the snapshot; the caller replaces it by a holding.
        """
        # 1. Nominate: every head against the state at the beginning of the cycle.
        self._snapshot.places.begin_cycle()
        nominated = [entry for entry in entries if not entry.is_refused]
        for entry in nominated:
            self._nominator.nominate(entry, cycle=cycle)
        # 2. Order: who goes first.
        assumed = _Assumed(cycle)
        decided: list[Entry] = []
        for entry in self._in_order(nominated):
            # 3. to 5. for each entry, see there.
            self._process(entry, assumed)
            decided.append(entry)
        # 6. Undo what only this cycle assumed; requeueing is the caller's.
        for queue, usage, places in reversed(assumed.usage):
            queue.node.remove_all(usage)
            self._snapshot.places.release(places)
        return decided

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
                not entry.is_second_pass,
                entry.assignment.level,
                -entry.workload.priority if by_priority else 0,
                entry.workload.queued_at,
                entry.workload.uid,
            ),
        )

    def _process(self, entry: Entry, assumed: _Assumed) -> None:
        # 3. What others of this cycle took may call for other domains, or other targets.
        fits = self._fits_still(entry, assumed)
        if entry.outcome is not AssignmentMode.FIT and self._gives_up(entry):
            return
        # 4. What cannot go on: no flavor, or nothing to preempt.
        if entry.outcome is AssignmentMode.NO_FIT:
            entry.requeue_reason = RequeueReason.NO_FIT
            entry.reason = entry.assignment.obstacle.text
            return
        if entry.outcome is AssignmentMode.PREEMPT and not entry.targets:
            self._reserve(entry, assumed)
            return
        if entry.outcome is AssignmentMode.DEFERRED_FIT:
            self._defer(entry, assumed)
            return
        if not assumed.leaving.keys().isdisjoint(entry.leaving):
            self._skip(entry, _OVERLAPPING)
            return
        if not fits:
            self._skip(entry, _NO_LONGER_FITS)
            return
        if entry.outcome is AssignmentMode.FIT and self._waits_for_pods(entry, assumed):
            self._skip(entry, _WAITING_FOR_PODS)
            entry.reason = "WaitingForPodsReady"
            return
        # 5. Preempt or admit.
        assumed.leaving.update(entry.leaving)
        if entry.outcome is AssignmentMode.FIT:
            entry.queue.node.add_all(entry.usage)
            self._snapshot.places.assume(entry.places)
            entry.status = EntryStatus.ADMITTED
            assumed.has_admitted = True
            return
        self._assume(entry, entry.usage, assumed)
        entry.item.last_tried = {}
        entry.status = EntryStatus.PREEMPTING
        entry.requeue_reason = RequeueReason.PENDING_PREEMPTION
        entry.reason = "WaitingForPreemptedWorkloads"
        entry.message += f". Pending the preemption of {len(entry.targets)} workload(s)"

    def _assume(self, entry: Entry, usage: Usage, assumed: _Assumed) -> None:
        """Keep quota and domains for an entry to the end of the cycle."""
        entry.queue.node.add_all(usage)
        self._snapshot.places.assume(entry.places)
        assumed.usage.append((entry.queue, usage, entry.places))

    def _gives_up(self, entry: Entry) -> bool:
        """Whether a workload that lost a node is evicted, as nothing replaces it."""
        if not (self._gates.tas_failed_node_replacement_fail_fast and entry.workload.has_lost_node):
            return False
        entry.status = EntryStatus.EVICTED
        return True

    def _skip(self, entry: Entry, message: str) -> None:
        entry.status = EntryStatus.SKIPPED
        entry.message = message
        entry.requeue_reason = RequeueReason.FAILED_AFTER_NOMINATION
        if not self._gates.flavor_fungibility_preserve_scan_progress:
            entry.item.last_tried = {}

    def _waits_for_pods(self, entry: Entry, assumed: _Assumed) -> bool:
        """Whether nothing may start before the pods of everything admitted are ready."""
        if not self._configuration.blocks_admission or entry.is_second_pass:
            return False
        return assumed.has_admitted or not self._snapshot.are_pods_ready()

    def _defer(self, entry: Entry, assumed: _Assumed) -> None:
        """Keep the room that other entries' preemptions make for the next cycle."""
        entry.status = EntryStatus.SKIPPED
        entry.message = f"{_OVERLAPPING}, but will fit after these preemptions complete"
        entry.reason = "WaitingForPreemptedWorkloads"
        entry.requeue_reason = RequeueReason.PENDING_PREEMPTION
        entry.item.last_tried = {}
        self._assume(entry, entry.usage, assumed)

    def _fits_still(self, entry: Entry, assumed: _Assumed) -> bool:
        """Whether its room is still there; where the gates say so, looked for anew.

        An entry whose victims another one of this cycle takes is nominated again as if all victims
        of others had stopped, one whose domains are taken as things are: both with the flavors of
        its nomination.
        """
        if entry.outcome is AssignmentMode.NO_FIT:
            return False  # It takes nothing and replaces nobody, so nothing of others matters.
        gates, fit = self._gates, self._fit(entry, assumed)
        is_overlapping = gates.recompute_assignment_upon_preemption_targets_overlap and (
            not assumed.leaving.keys().isdisjoint(entry.leaving)
        )
        moves = gates.tas_recompute_assignment_within_scheduling_cycle
        if not is_overlapping and not (moves and fit is _Fit.NO_DOMAINS):
            return fit is _Fit.OK
        nominated = entry.assignment.nominated
        entry.item.last_tried = {}
        with self._snapshot.without(list(assumed.leaving.values()) if is_overlapping else []):
            self._nominator.nominate(entry, cycle=assumed.cycle, allowed=nominated)
        if is_overlapping and entry.outcome is AssignmentMode.FIT:
            entry.outcome = AssignmentMode.DEFERRED_FIT
        return self._fit(entry, assumed) is _Fit.OK

    def _fit(self, entry: Entry, assumed: _Assumed) -> _Fit:
        gone = assumed.leaving | entry.leaving
        with self._snapshot.usage_without(gone.values()):
            if not entry.queue.fits(entry.usage):
                return _Fit.NO_QUOTA
            return _Fit.OK if self._snapshot.places.fit(entry.places) else _Fit.NO_DOMAINS

    def _reserve(self, entry: Entry, assumed: _Assumed) -> None:
        """Keep capacity from later entries, unless it could be reclaimed from them anyway."""
        entry.requeue_reason = RequeueReason.PREEMPTION_NO_CANDIDATES
        if entry.queue.spec.preemption.reclaim_within_cohort is PreemptionPolicy.ANY:
            return
        usage = {
            key: _reserved(entry.queue, key, amount, level=entry.assignment.level)
            for key, amount in entry.usage.items()
        }
        self._assume(entry, usage, assumed)


def _reserved(
    queue: ClusterQueueState, key: FlavorResource, amount: Amount, *, level: int
) -> Amount:
    quota = queue.spec.quotas[key]
    used = queue.node.usage.get(key, ZERO)
    if level > 0:
        if quota.borrowing_limit is None:
            return amount
        return max(ZERO, min(amount, subtract(add(quota.nominal, quota.borrowing_limit), used)))
    return max(ZERO, min(amount, subtract(quota.nominal, used)))


_Rank = tuple[bool, tuple[bool, float], int, datetime, str]


@dataclass(slots=True)
class _Tree:
    root: CohortState
    entries: dict[str, Entry]
    ranks: dict[tuple[str, str], _Rank] = field(default_factory=dict)


def tournament(
    entries: Iterable[Entry], *, snapshot: Snapshot, prioritizes_non_borrowing: bool
) -> Iterator[Entry]:
    """Yield entries so that whoever would have the lowest share comes first, again each time.

    The caller changes the snapshot between two entries; only the entries below the same child of
    the root as the last one are weighed again, as no other's share can have changed.
    There is one entry per ClusterQueue, and every queue takes part in the snapshot.
    """
    trees: dict[str, _Tree] = {}
    for item in entries:
        cohort = snapshot.cohort_of(item.queue)
        if cohort is None:
            yield item
            continue
        while cohort.spec.parent:
            cohort = snapshot.cohorts[cohort.spec.parent]
        tree = trees.setdefault(cohort.spec.name, _Tree(cohort, {}))
        tree.entries[item.queue.spec.name] = item
    for _, tree in sorted(trees.items()):
        stale = list(tree.entries.values())
        while tree.entries:
            for item in stale:
                _weigh(tree, item, prioritizes_non_borrowing=prioritizes_non_borrowing)
            winner = _winner(tree, tree.root)
            assert winner is not None
            del tree.entries[winner.queue.spec.name]
            yield winner
            branch = _branch(winner)
            stale = [item for item in tree.entries.values() if _branch(item) is branch]


def _branch(item: Entry) -> ResourceNode:
    return item.queue.node.path()[-2]


def _weigh(tree: _Tree, item: Entry, *, prioritizes_non_borrowing: bool) -> None:
    """Note the rank of an entry at every Cohort above it, its usage added."""
    node, usage, workload = item.queue.node, item.usage, item.workload
    node.add_all(usage)
    name = item.queue.spec.name
    below = node
    while below.parent is not None:
        is_borrowing = prioritizes_non_borrowing and not below.is_within_nominal(usage.keys())
        tree.ranks[below.parent.name, name] = (
            is_borrowing,
            share_of(below).sort_key,
            -workload.priority,
            workload.queued_at,
            workload.uid,
        )
        below = below.parent
    node.remove_all(usage)


def _winner(tree: _Tree, cohort: CohortState) -> Entry | None:
    rivals = [tree.entries[name] for name in cohort.queues if name in tree.entries]
    for child in cohort.cohorts.values():
        rival = _winner(tree, child)
        if rival is not None:
            rivals.append(rival)
    if not rivals:
        return None
    return min(rivals, key=lambda item: tree.ranks[cohort.spec.name, item.queue.spec.name])
