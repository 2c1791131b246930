"""Why a workload waits: the sentence, and the evidence behind it.

Reads only. Names other workloads and queues; whoever shows it decides what a reader may see.
Facts only: who holds what is lacking and since when, not who will finish first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Final, TypeAlias

from budgets.plan import StopPolicy
from clusters.kueue.amounts import ZERO, Amount, FlavorResource, subtract, whole, wholes
from clusters.kueue.assignment.flavor_assigner import AssignmentRequest, FlavorAssigner
from clusters.kueue.assignment.outcome import (
    Assignment,
    AssignmentMode,
    FlavorAttempt,
    FlavorMode,
    Obstacle,
)
from clusters.kueue.cycle.engine import BYPASSED_MESSAGE, Engine, cut
from clusters.kueue.cycle.nomination import replaced_slice
from clusters.kueue.preemption.classic import satisfies
from clusters.kueue.queueing.buckets import QueueItem
from clusters.kueue.queueing.queues import PendingQueue
from clusters.kueue.quota.resource_node import ResourceNode
from clusters.kueue.quota.specifications import PreemptionPolicy
from clusters.kueue.quota.tree import ClusterQueueState, Holding
from clusters.kueue.workload.workloads import Workload

MOST_HOLDERS: Final = 30
MOST_BORROWERS: Final = 20
CHECKS_PENDING: Final = "CheckPending"
"""Ours: it has its quota, and waits for AdmissionChecks."""
SET_ASIDE: Final = "SetAside"
"""Ours: it could not be read, decided on or written; the message says what was in the way."""

Pairs: TypeAlias = frozenset[FlavorResource]
_OF_FLAVORS: Final = frozenset(obstacle.text for obstacle in Obstacle)


class Protection(Enum):
    """Why a workload that holds what is lacking is not preempted."""

    UNKNOWN = ""
    NONE = "NONE"
    STOPPING = "STOPPING"
    WITHIN_QUEUE_NEVER = "WITHIN_QUEUE_NEVER"
    RECLAIM_NEVER = "RECLAIM_NEVER"
    PRIORITY = "PRIORITY"
    WITHIN_NOMINAL = "WITHIN_NOMINAL"


@dataclass(frozen=True, slots=True)
class Holder:
    """A workload that holds what another one lacks.

    Attributes:
        amounts: what it holds of the lacking pairs.
        protection: why it is not preempted.
        since: when its quota was reserved; ``None`` where a stored one does not say.
    """

    key: str
    cluster_queue: str
    amounts: Mapping[FlavorResource, int]
    protection: Protection
    since: datetime | None

    @property
    def namespace(self) -> str:
        """Namespace of its key."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """Name of its key."""
        return self.key.partition("/")[2]


@dataclass(frozen=True, slots=True)
class Borrower:
    """A ClusterQueue that uses more of lacking pairs than its own nominal quota; by how much."""

    cluster_queue: str
    amounts: Mapping[FlavorResource, int]


@dataclass(frozen=True, slots=True)
class OwnQuota:
    """One pair in the workload's own ClusterQueue.

    Attributes:
        nominal, used: of the ClusterQueue alone.
        available: free now, borrowing included; negative when over-admitted.
        potential: the most that it could ever have.
        lent: of its unused nominal quota, what others hold now.
    """

    nominal: int = 0
    used: int = 0
    available: int = 0
    potential: int = 0
    lent: int = 0


@dataclass(frozen=True, slots=True)
class CheckState:
    """One AdmissionCheck of a workload and what it said."""

    name: str
    state: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a workload waits, with the evidence; raw names.

    Attributes:
        reason, message: of its QuotaReserved=False condition, empty before its first cycle; of one
            that the scheduler cannot tell apart where it was parked together with that.
            ``CheckPending`` for one that has its quota and waits for AdmissionChecks.
        reason_now, message_now: what a cycle would say now that preempts nobody; both empty where
            flavors are not what is in its way, or were not looked at yet. A message that is empty
            beside a reason: it would start.
        cluster_queue: where it waits, empty when nowhere.
        position: 1 for the next of its ClusterQueue, 0 when it waits in none.
        waiting: number of workloads that wait in that ClusterQueue.
        is_parked: it is not tried again before something in its tree changes.
        hold: stop policy of what is stopped, ``NONE`` otherwise; ``hold_kind`` says what.
        requests: of the whole workload, by resource.
        within: label of the level of a topology of which one domain has to hold a pod set.
        attempts: flavors that a cycle would look at, with what they miss: counted now, as all the
            other amounts are. Who may be preempted is as its last cycle found it.
        lacking: the largest amount that is not free, by pair.
        holders: workloads that hold what it lacks, those that run longest first; at most
            ``MOST_HOLDERS`` of ``holder_count``.
        borrowers: queues around it that borrow what it lacks, largest first; bounded alike.
        quota: its own queue's figures for the pairs that were tried.
        requeue_at: it is not tried before.
        checks: of its document, as whoever explains it says.
        is_turned_back: likewise: a budget check deactivated it, and will activate it again.
    """

    reason: str
    message: str = ""
    reason_now: str = ""
    message_now: str = ""
    cluster_queue: str = ""
    position: int = 0
    waiting: int = 0
    is_parked: bool = False
    hold: StopPolicy = StopPolicy.NONE
    hold_kind: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)
    within: str = ""
    attempts: tuple[FlavorAttempt, ...] = ()
    lacking: Mapping[FlavorResource, int] = field(default_factory=dict)
    holders: tuple[Holder, ...] = ()
    holder_count: int = 0
    borrowers: tuple[Borrower, ...] = ()
    quota: Mapping[FlavorResource, OwnQuota] = field(default_factory=dict)
    requeue_at: datetime | None = None
    checks: tuple[CheckState, ...] = ()
    is_turned_back: bool = False


def explain(engine: Engine, key: str, *, now: datetime) -> Explanation | None:
    """Why a workload waits; ``None`` for one that is unknown or does not wait."""
    return Explainer(engine, now=now).explain(key)


class Explainer:
    """Explains many workloads of one moment; what they share is worked out once."""

    def __init__(self, engine: Engine, *, now: datetime) -> None:
        engine.state.settle(now)
        self._state, self._now = engine.state, now
        self._state.snapshot.places.begin_cycle()
        self._assigner = FlavorAssigner(
            self._state.snapshot, configuration=engine.configuration, oracle=self
        )
        self._modes: dict[str, FlavorMode] = {}
        self._assigned: dict[tuple[str, ...], Assignment] = {}
        self._positions: dict[str, dict[str, int]] = {}
        self._tried: dict[str, dict[str, QueueItem]] = {}
        self._holdings: dict[tuple[int, Pairs], list[tuple[ClusterQueueState, Holding]]] = {}
        self._borrowers: dict[tuple[int, Pairs], tuple[Borrower, ...]] = {}

    def explain(self, key: str) -> Explanation | None:
        """As ``explain``; the engine must not have changed since the explainer was made."""
        workload = self._state.workloads.get(key)
        if workload is None:
            return None
        if workload.reservation is not None:
            return self._of_reserved(workload)
        refusal = self._state.queues.refusal(key)
        if refusal is not None:
            return self._of_refused(workload, refusal.reason, refusal.message)
        item = self._state.queues.item(key)
        if item is None:
            return Explanation("Deactivated", "The workload is deactivated")
        return self._of_waiting(item)

    def told(self, key: str, *, reason: str, message: str) -> Explanation | None:
        """As somebody else told it who decides; flavors beside it where quota is in no way.

        Args:
            key: of one that waits in a queue.
            reason: of its condition.
            message: of its condition.
        """
        item = self._state.queues.item(key)
        found = self.explain(key) if item is not None else None
        if item is None or found is None:
            return None
        found = replace(found, reason=reason, message=message)
        queue = self._state.snapshot.queues[found.cluster_queue]
        assignment = self._assignment(item, item.workload, queue)
        if assignment.outcome is not AssignmentMode.FIT:
            return found
        attempts = tuple(assignment.attempts)
        return replace(
            found,
            reason_now=reason,
            message_now=message,
            attempts=attempts,
            quota=_own_quota(queue, item.workload, attempts),
        )

    def _of_reserved(self, workload: Workload) -> Explanation | None:
        reservation = workload.reservation
        assert reservation is not None
        if reservation.is_admitted or workload.is_evicted:
            return None
        name = reservation.cluster_queue
        return Explanation(CHECKS_PENDING, f"Quota reserved in ClusterQueue {name}", name)

    def _of_refused(self, workload: Workload, reason: str, message: str) -> Explanation:
        spec = self._state.queues.local_queues.get(workload.local_queue)
        hold = spec.stop_policy if spec is not None else StopPolicy.NONE
        kind = "" if hold is StopPolicy.NONE else "LocalQueue"
        return Explanation(
            reason, message, hold=hold, hold_kind=kind, requests=wholes(workload.total_requests())
        )

    def _of_waiting(self, item: QueueItem) -> Explanation:
        key, workload = item.key, item.workload
        name = self._state.queues.queue_of(key)
        queue = self._state.snapshot.queues[name]
        pending = self._state.queues.queue(name)
        assert pending is not None
        positions = self._positions_in(pending)
        tried = item if item.reason else self._equal_of(pending, item)
        reason, message = tried.reason, tried.message
        if not queue.is_active:
            reason, message = "Suspended", f"ClusterQueue {name} is inactive"
        elif key in self._state.bypassed and not item.message:
            reason, message = "WaitingForQuota", BYPASSED_MESSAGE
        found = self._assignment(tried, workload, queue) if tried.attempts else Assignment()
        attempts = tuple(found.attempts)
        is_of_flavors = bool(attempts) and reason in _OF_FLAVORS
        lacking = _lacking(attempts)
        holders, holder_count = self._holders(workload, queue, frozenset(lacking))
        hold = queue.spec.stop_policy
        requeue_at = workload.requeue_at
        return Explanation(
            reason=reason,
            message=message,
            reason_now=found.obstacle.text if is_of_flavors else "",
            message_now=cut(found.message()) if is_of_flavors else "",
            cluster_queue=name,
            position=positions[key],
            waiting=len(positions),
            is_parked=not pending.is_active(key),
            hold=hold,
            hold_kind="" if hold is StopPolicy.NONE else "ClusterQueue",
            requests=wholes(workload.total_requests()),
            within=_within(workload),
            attempts=attempts,
            lacking=lacking,
            holders=holders,
            holder_count=holder_count,
            borrowers=self._borrowers_of(queue, frozenset(lacking)),
            quota=_own_quota(queue, workload, attempts),
            requeue_at=requeue_at if requeue_at is not None and requeue_at > self._now else None,
        )

    def _assignment(
        self, tried: QueueItem, workload: Workload, queue: ClusterQueueState
    ) -> Assignment:
        """What a cycle would find now; worked out once for those that nothing tells apart."""
        older = replaced_slice(workload, queue=queue, gates=self._state.configuration.gates)
        self._modes = {
            each.flavor: each.mode for each in tried.attempts if each.mode < FlavorMode.FIT
        }
        modes = (f"{flavor} {mode}" for flavor, mode in sorted(self._modes.items()))
        place = (queue.spec.name, workload.shape_hash, older.workload.key if older else "", *modes)
        if place not in self._assigned:
            held = older.workload.held() if older is not None else ()
            request = AssignmentRequest(workload, queue, replaced=held)
            self._assigned[place] = self._assigner.assign(request)
        return self._assigned[place]

    def try_preemption(
        self, workload: Workload, *, queue: ClusterQueueState, key: FlavorResource, amount: Amount
    ) -> tuple[FlavorMode, int]:
        """Whom it could preempt is not looked for again: the mode of its last cycle."""
        level, _ = queue.node.borrowing_level(key, amount)
        return self._modes.get(key.flavor, FlavorMode.NO_FIT), level

    def _positions_in(self, queue: PendingQueue) -> dict[str, int]:
        """Place of everything that waits in a ClusterQueue. O(n log n), once."""
        if queue.name not in self._positions:
            order = queue.active_keys() + queue.parked_keys()
            self._positions[queue.name] = {key: index for index, key in enumerate(order, start=1)}
        return self._positions[queue.name]

    def _equal_of(self, queue: PendingQueue, item: QueueItem) -> QueueItem:
        """One that was looked at and that the scheduler cannot tell apart; else itself."""
        if queue.name not in self._tried:
            tried = (each for each in queue.items() if each.reason)
            self._tried[queue.name] = {each.workload.shape_hash: each for each in tried}
        return self._tried[queue.name].get(item.workload.shape_hash, item)

    def _holders(
        self, workload: Workload, own: ClusterQueueState, lacking: Pairs
    ) -> tuple[tuple[Holder, ...], int]:
        if not lacking:
            return (), 0
        tree = _tree(own, lacking)
        found = self._holdings.get(tree)
        if found is None:
            found = [
                (queue, holding)
                for queue in self._state.snapshot.tree_queues(own)
                for holding in queue.holdings.values()
                if not lacking.isdisjoint(holding.usage)
            ]
            found.sort(key=lambda pair: (_since(pair[1]), pair[1].workload.key))
            self._holdings[tree] = found
        shown = tuple(
            Holder(
                key=holding.workload.key,
                cluster_queue=queue.spec.name,
                amounts={
                    pair: whole(holding.usage[pair]) for pair in lacking if pair in holding.usage
                },
                protection=_protection(workload, own, queue, holding, lacking),
                since=_since(holding),
            )
            for queue, holding in found[:MOST_HOLDERS]
        )
        return shown, len(found)

    def _borrowers_of(self, own: ClusterQueueState, lacking: Pairs) -> tuple[Borrower, ...]:
        if not lacking or own.node.parent is None:
            return ()
        tree = _tree(own, lacking)
        found = self._borrowers.get(tree)
        if found is None:
            borrowing = [
                Borrower(queue.spec.name, amounts)
                for queue in self._state.snapshot.tree_queues(own)
                if (amounts := _borrowed(queue.node, lacking))
            ]
            borrowing.sort(key=lambda item: (-sum(item.amounts.values()), item.cluster_queue))
            found = self._borrowers[tree] = tuple(borrowing[:MOST_BORROWERS])
        return tuple(item for item in found if item.cluster_queue != own.spec.name)


def _tree(queue: ClusterQueueState, lacking: Pairs) -> tuple[int, Pairs]:
    return id(queue.node.path()[-1]), lacking


def _within(workload: Workload) -> str:
    required = (each.shape.topology.required for each in workload.pod_sets)
    return next(filter(None, required), "")


def _lacking(attempts: Iterable[FlavorAttempt]) -> dict[FlavorResource, int]:
    found: dict[FlavorResource, int] = {}
    for attempt in attempts:
        for resource, amount in attempt.missing.items():
            pair = FlavorResource(attempt.flavor, resource)
            found[pair] = max(found.get(pair, 0), amount)
    return found


def _since(holding: Holding) -> datetime:
    assert holding.workload.reservation is not None
    return holding.workload.reservation.reserved_at


def _borrowed(node: ResourceNode, lacking: Pairs) -> dict[FlavorResource, int]:
    used = {
        pair: whole(subtract(node.usage.get(pair, ZERO), node.nominal(pair))) for pair in lacking
    }
    return {pair: amount for pair, amount in sorted(used.items()) if amount > 0}


def _own_quota(
    queue: ClusterQueueState, workload: Workload, attempts: Iterable[FlavorAttempt]
) -> dict[FlavorResource, OwnQuota]:
    node, wanted = queue.node, workload.total_requests()
    flavors, found = {item.flavor for item in attempts}, {}
    for pair in queue.spec.quotas:
        if pair.flavor not in flavors or pair.resource not in wanted:
            continue
        nominal, used = node.nominal(pair), node.usage.get(pair, ZERO)
        available = node.available(pair)
        unused = max(ZERO, subtract(nominal, used))
        lent = max(ZERO, subtract(unused, max(ZERO, available)))
        figures = (nominal, used, available, node.potential(pair), lent)
        found[pair] = OwnQuota(*map(whole, figures))
    return found


def _protection(
    workload: Workload,
    own: ClusterQueueState,
    queue: ClusterQueueState,
    holding: Holding,
    lacking: Pairs,
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
