"""Find flavors for a workload in its ClusterQueue: fit, preempt or no fit, and why.

Reads the snapshot and changes nothing but for tries that the oracle undoes itself. Every resource
of a flavor is weighed, also after one did not fit: the recorded messages name them all.

Source: Kueue pkg/scheduler/flavorassigner/flavorassigner.go, v0.19.2. Deviation: a pod set whose
requests are all ignored is Fit and later pod sets are still looked at (Kueue stops there and its
status write is refused).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from clusters.kueue.amounts import (
    ZERO,
    Amount,
    FlavorResource,
    Requests,
    add,
    add_usage,
    amount_of,
    format_amount,
    subtract,
    visiting_rank,
    wholes,
)
from clusters.kueue.assignment.outcome import (
    Assignment,
    FlavorAttempt,
    FlavorChoice,
    FlavorMode,
    LastTried,
    Obstacle,
    PodSetAssignment,
)
from clusters.kueue.assignment.topology import TopologyAssigner, held_assignment
from clusters.kueue.configuration import Configuration
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import (
    FlavorSpec,
    Fungibility,
    PreemptionPolicy,
    ResourceGroup,
)
from clusters.kueue.quota.tree import ClusterQueueState
from clusters.kueue.topology.nodes import PODS
from clusters.kueue.workload.matching import matches_nodes, untolerated_taint
from clusters.kueue.workload.workloads import PodSet, PodSetHold, PodShape, Workload, scaled

_Rank = tuple[int, int, int]
_BEST: Final = (FlavorMode.FIT, FlavorMode.FIT, FlavorMode.FIT)
_WORST: Final = (-1, 0, 0)


class PreemptionOracle(Protocol):
    """Tells whether preemption could make room, without doing it."""

    def try_preemption(
        self, workload: Workload, *, queue: ClusterQueueState, key: FlavorResource, amount: Amount
    ) -> tuple[FlavorMode, int]:
        """Mode (no candidates, preempt or reclaim) and borrowing level after it."""


@dataclass(frozen=True, slots=True)
class AssignmentRequest:
    """What to assign.

    Attributes:
        counts: pods per pod set; ``None`` for all that remain.
        last_tried: where earlier attempts stopped.
        allowed: flavors by pod set and resource that may be used; ``None`` for any.
        replaced: what the pod sets of the slice that it replaces hold: it keeps their flavors.
    """

    workload: Workload
    queue: ClusterQueueState
    counts: Sequence[int] | None = None
    last_tried: LastTried = field(default_factory=dict)
    allowed: Mapping[tuple[str, str], str] | None = None
    replaced: Sequence[PodSetHold] = ()


@dataclass(frozen=True, slots=True)
class _Task:
    """Pod sets that share flavors, and what was assigned before them."""

    request: AssignmentRequest
    members: list[tuple[PodSet, PodSetAssignment]]
    assignment: Assignment


@dataclass(slots=True)
class _Trial:
    """One flavor tried for the resources of one group."""

    choices: dict[str, FlavorChoice] = field(default_factory=dict)
    rank: _Rank = _BEST
    mode: FlavorMode = FlavorMode.FIT
    level: int = 0
    reasons: list[str] = field(default_factory=list)
    missing: dict[str, Amount] = field(default_factory=dict)
    obstacle: Obstacle = Obstacle.NONE


@dataclass(slots=True)
class _Search:
    """Outcome of trying the flavors of one resource group."""

    best: _Trial | None = None
    last_index: int = -1
    reasons: list[str] = field(default_factory=list)
    obstacle: Obstacle = Obstacle.NONE


class FlavorAssigner:
    """Assigns flavors against a snapshot."""

    def __init__(
        self, snapshot: Snapshot, *, configuration: Configuration, oracle: PreemptionOracle
    ) -> None:
        self._snapshot = snapshot
        self._configuration = configuration
        self._oracle = oracle
        self.topology = TopologyAssigner(
            snapshot.places, leaves_to_workers=configuration.placed_kinds is not None
        )
        # By flavor's name, with the specification that it was concluded from.
        self._verdicts: WeakKeyDictionary[PodShape, dict[str, tuple[FlavorSpec, str]]] = (
            WeakKeyDictionary()
        )

    def assign(self, request: AssignmentRequest) -> Assignment:
        """Find flavors for every pod set, in order, until one finds none.

        Cost: flavors of the group x resources x depth of the tree, unless preemption is tried.
        """
        assignment = Assignment()
        items = _pod_set_assignments(request)
        for group in _groups(request.workload.pod_sets):
            members = [(request.workload.pod_sets[index], items[index]) for index in group]
            has_failed = not self._assign_group(_Task(request, members, assignment))
            for _, item in members:
                item.has_failed = has_failed
                if has_failed:
                    item.choices = {}
                assignment.add(item)
            if has_failed:
                return assignment
        self.topology.place(assignment, workload=request.workload, queue=request.queue)
        return assignment

    def _assign_group(self, task: _Task) -> bool:
        total = _total(task.members)
        # A second pass keeps the flavors of the first.
        found: dict[str, FlavorChoice] = {}
        done = {name for _, item in task.members for name in item.choices}
        for resource in sorted(total, key=visiting_rank):
            if resource in done:
                continue
            group = task.request.queue.group_of.get(resource)
            if group is None:
                if not total[resource] or self._configuration.ignores_undeclared:
                    continue
                for _, item in task.members:
                    item.reasons = [f"resource {resource} unavailable in ClusterQueue"]
                task.assignment.obstacle = Obstacle.NO_MATCHING_FLAVOR
                return False
            wanted = {name: total[name] for name in total if name in group.resources}
            done.update(wanted)
            search = self._search(task, group, wanted)
            for _, item in task.members:
                item.reasons.extend(search.reasons)
                for name, choice in search.best.choices.items() if search.best else ():
                    if name in item.requests:
                        item.choices[name] = choice
                        task.assignment.last_tried[item.name, name] = search.last_index
            if search.best is None:
                task.assignment.obstacle = max(task.assignment.obstacle, search.obstacle)
                return False
            found.update(search.best.choices)
        for pod_set, item in task.members:
            if not item.requests and pod_set.shape.topology.group:
                # It asks for nothing and yet is placed beside the others.
                item.choices = {
                    name: choice
                    for name, choice in found.items()
                    if self.topology.is_placed(choice.flavor)
                }
        return True

    def _search(self, task: _Task, group: ResourceGroup, wanted: Requests) -> _Search:
        """Try flavors in order until one is good enough, and keep the best."""
        search = _Search()
        order = sorted(wanted, key=visiting_rank)
        wanted = {name: wanted[name] for name in order}
        first = (task.members[0][0].name, order[0])
        obstacles: list[Obstacle] = []
        attempted = -1
        for index in range(task.request.last_tried.get(first, -1) + 1, len(group.flavors)):
            attempted = index
            flavor = group.flavors[index]
            trial = self._trial(task, flavor, wanted)
            search.reasons.extend(trial.reasons)
            obstacles.append(trial.obstacle)
            task.assignment.attempts.append(
                FlavorAttempt(
                    first[0], flavor, trial.mode, wholes(trial.missing), tuple(trial.reasons)
                )
            )
            if trial.mode is FlavorMode.NO_FIT:
                continue
            if self._stops(trial, task.request.queue.spec.fungibility):
                search.best = trial
                break
            if search.best is None or trial.rank > search.best.rank:
                search.best = trial
        search.last_index = -1 if attempted == len(group.flavors) - 1 else attempted
        search.obstacle = min(obstacles, default=Obstacle.NO_MATCHING_FLAVOR)
        if search.best is not None and search.best.mode is FlavorMode.FIT:
            search.reasons = []
        return search

    def _stops(self, trial: _Trial, fungibility: Fungibility) -> bool:
        if not self._configuration.gates.flavor_fungibility:
            return trial.mode is FlavorMode.FIT
        if trial.mode <= FlavorMode.NO_CANDIDATES:
            return False
        if trial.mode is not FlavorMode.FIT and fungibility.tries_next_before_preempting:
            return False
        return not (trial.level > 0 and fungibility.tries_next_before_borrowing)

    def _trial(self, task: _Task, flavor: str, wanted: Requests) -> _Trial:
        trial = _Trial()
        refusal = self._refusal(task, flavor, wanted)
        if refusal:
            trial.mode = FlavorMode.NO_FIT
            trial.reasons.append(refusal)
            trial.obstacle = Obstacle.NO_MATCHING_FLAVOR
            return trial
        fungibility = task.request.queue.spec.fungibility
        for resource, amount in wanted.items():
            key = FlavorResource(flavor, resource)
            before = task.assignment.usage.get(key, ZERO)
            more = _more_than_held(task, key, amount, trial) if task.request.replaced else amount
            choice = self._weigh(task.request, key, before, more, trial)
            rank = _rank(choice, fungibility)
            if rank < trial.rank:
                trial.rank, trial.mode, trial.level = rank, choice.mode, choice.level
            trial.choices[resource] = choice
        if trial.rank == _WORST:
            trial.missing = {}  # the older slice has another flavor: more quota would not help
        return trial

    def _refusal(self, task: _Task, flavor: str, wanted: Requests) -> str:
        """Why the flavor cannot be used at all, empty when it can."""
        allowed = task.request.allowed
        if allowed is not None:
            first = next(iter(wanted))
            if all(allowed.get((pod_set.name, first)) != flavor for pod_set, _ in task.members):
                return (
                    f"skipping flavor {flavor} as it is not found in the nomination mapping for "
                    f"resource {first}"
                )
        spec = self._snapshot.flavors.get(flavor)
        if spec is None:
            return f"flavor {flavor} not found"
        for pod_set, _ in task.members:
            verdict = ""
            if spec.topology or pod_set.shape.topology.is_explicit:
                verdict = self._topology_verdict(task, pod_set, spec)
            verdict = verdict or self._verdict(pod_set, spec)
            if verdict:
                return verdict
        return ""

    def _topology_verdict(self, task: _Task, pod_set: PodSet, spec: FlavorSpec) -> str:
        queue = task.request.queue
        group = next(item for item in queue.spec.groups if spec.name in item.flavors)
        return self.topology.refusal(pod_set, queue=queue, flavor=spec, resources=group.resources)

    def _verdict(self, pod_set: PodSet, spec: FlavorSpec) -> str:
        known = self._verdicts.setdefault(pod_set.shape, {})
        found = known.get(spec.name)
        if found is None or found[0] is not spec:
            found = known[spec.name] = spec, refusal_of(pod_set, flavor=spec)
        return found[1]

    def _weigh(
        self,
        request: AssignmentRequest,
        key: FlavorResource,
        before: Amount,
        amount: Amount,
        trial: _Trial,
    ) -> FlavorChoice:
        """Compare one amount with quota; notes what is missing on the trial."""
        queue, node = request.queue, request.queue.node
        value = add(before, amount)
        resource = key.resource
        most = node.potential(key)
        if value > most:
            trial.reasons.append(
                f"insufficient quota for {resource} in flavor {key.flavor}, previously considered "
                f"podsets requests ({format_amount(before, resource)}) + current podset request "
                f"({format_amount(amount, resource)}) > maximum capacity "
                f"({format_amount(most, resource)})"
            )
            trial.obstacle = max(trial.obstacle, Obstacle.EXCEEDS_MAX_QUOTA)
            trial.missing[resource] = subtract(value, most)
            return FlavorChoice(key.flavor, FlavorMode.NO_FIT, 0)
        free = max(ZERO, node.available(key))
        level, may_reclaim = node.borrowing_level(key, value)
        if value <= free:
            return FlavorChoice(key.flavor, FlavorMode.FIT, level)
        lacking = subtract(value, free)
        trial.missing[resource] = lacking
        trial.obstacle = max(trial.obstacle, Obstacle.WAITING_FOR_QUOTA)
        trial.reasons.append(
            f"insufficient unused quota for {resource} in flavor {key.flavor}, "
            f"{format_amount(lacking, resource)} more needed"
        )
        mode = FlavorMode.NO_FIT
        if node.nominal(key) >= value or may_reclaim or self._may_preempt_borrowing(queue):
            mode, level = self._oracle.try_preemption(
                request.workload, queue=queue, key=key, amount=value
            )
        return FlavorChoice(key.flavor, mode, level)

    def _may_preempt_borrowing(self, queue: ClusterQueueState) -> bool:
        rules = queue.spec.preemption
        may_reclaim = rules.reclaim_within_cohort is not PreemptionPolicy.NEVER
        is_fair = self._configuration.has_fair_sharing
        return rules.may_borrow_while_preempting or (is_fair and may_reclaim)


def _more_than_held(task: _Task, key: FlavorResource, amount: Amount, trial: _Trial) -> Amount:
    """What is asked for beyond what the replaced slice holds; notes where it has another flavor."""
    for _, item in task.members:
        held = item.held
        flavor = held.flavors.get(key.resource, "") if held is not None else ""
        if held is None or flavor != key.flavor:
            trial.rank, trial.mode, trial.level = _WORST, FlavorMode.NO_FIT, 0
            trial.obstacle = Obstacle.NO_MATCHING_FLAVOR
            trial.reasons.append(
                f"could not assign {key.flavor} flavor since the original workload is assigned: "
                f"{flavor}"
            )
            break
        amount = subtract(amount, held.amounts.get(key.resource, ZERO))
    return amount


def _pod_set_assignments(request: AssignmentRequest) -> list[PodSetAssignment]:
    workload = request.workload
    if workload.reservation is not None:
        return [held_assignment(hold, workload) for hold in workload.reservation.pod_sets]
    counts = request.counts or [workload.remaining_count(item) for item in workload.pod_sets]
    result = []
    held = (*request.replaced, *[None] * len(workload.pod_sets))
    for pod_set, count, before in zip(workload.pod_sets, counts, held, strict=False):
        requests = scaled(pod_set.shape.requests.amounts, count)
        if PODS in request.queue.group_of:
            requests[PODS] = amount_of(count)
        result.append(PodSetAssignment(pod_set.name, count, requests, held=before))
    return result


def _total(members: Sequence[tuple[PodSet, PodSetAssignment]]) -> Requests:
    if len(members) == 1:
        return members[0][1].requests
    total: dict[str, Amount] = {}
    for _, item in members:
        add_usage(total, item.requests)
    return total


def _groups(pod_sets: Sequence[PodSet]) -> list[list[int]]:
    """Indexes of pod sets that share flavors, in order of the first of each group."""
    if len(pod_sets) == 1:
        return [[0]]
    groups: dict[str, list[int]] = {}
    for index, item in enumerate(pod_sets):
        groups.setdefault(item.shape.topology.group or f"/{index}", []).append(index)
    return list(groups.values())


def _rank(choice: FlavorChoice, fungibility: Fungibility) -> _Rank:
    """Sorts choices from worst to best."""
    tier = min(choice.mode, FlavorMode.PREEMPT)
    if fungibility.prefers_preemption:
        return (tier, -choice.level, choice.mode)
    return (tier, choice.mode, -choice.level)


def refusal_of(pod_set: PodSet, *, flavor: FlavorSpec) -> str:
    """Why no pod of the pod set may run on the flavor, empty when they may."""
    shape = pod_set.shape
    taint = untolerated_taint(
        flavor.taints, tolerations=(*shape.rules.tolerations, *flavor.tolerations)
    )
    if taint is not None:
        return f"untolerated taint {taint} in flavor {flavor.name}"
    if not matches_nodes(shape.rules, node_labels=flavor.node_labels):
        return f"flavor {flavor.name} doesn't match node affinity"
    return ""
