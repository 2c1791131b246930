"""The facade: feed API documents, run cycles, take decisions back.

Level-triggered: a document fed twice changes nothing, and a restart is feeding everything again.
The engine assumes its own decisions at once; ``forget`` takes one back whose write failed. It has
no clock: ``now`` is passed in. ``reports``, ``explanation`` and ``what_if``
answer questions.

Source: Kueue pkg/scheduler/scheduler.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from clusters.kueue.amounts import ZERO
from clusters.kueue.assignment.topology import unfollowed
from clusters.kueue.configuration import Configuration
from clusters.kueue.cycle.cluster_state import ClusterState
from clusters.kueue.cycle.decisions import Admit, CycleResult, Evict, Pending, Preempt
from clusters.kueue.cycle.entries import Entry, EntryStatus
from clusters.kueue.cycle.intake import Intake
from clusters.kueue.cycle.scheduler import Scheduler
from clusters.kueue.preemption.classic import Victim
from clusters.kueue.queueing.buckets import QueueItem
from clusters.kueue.queueing.queues import RequeueReason
from clusters.kueue.workload.workloads import PodSetHold, Reservation

_UNKNOWN: Final = "UNKNOWN"
_NOT_REPLACED: Final = "Workload was evicted as there was no replacement for unhealthy node(s)"
_DONE: Final = frozenset({EntryStatus.ADMITTED, EntryStatus.EVICTED})
_LONGEST_MESSAGE: Final = 32 * 1024
_CUT_MARK: Final = " ..."
BYPASSED_MESSAGE: Final = (
    "Bypassed scheduling evaluation because an equivalent workload recently failed"
)


class CycleFailed(Exception):
    """A cycle raised: what its engine believes is not sound any more.

    Args:
        heads: Keys of the workloads that it was about.
    """

    def __init__(self, heads: Sequence[str]) -> None:
        super().__init__(f"no decision about {', '.join(heads)}")
        self.heads = heads


class Engine:
    """Decides as Kueue does, for one cluster."""

    def __init__(self, configuration: Configuration | Mapping[str, Any] | None = None) -> None:
        """Start empty; by default with the defaults of a Kueue ``Configuration``."""
        if not isinstance(configuration, Configuration):
            configuration = Configuration.from_document(configuration)
        self.configuration = configuration
        self.state = ClusterState(configuration)
        self._scheduler = Scheduler(self.state.snapshot, configuration=configuration)
        self._intake = Intake(self.state)
        self._cycles = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of documents that are understood, in the best order for a first feed."""
        return self._intake.kinds

    def upsert(
        self, document: Mapping[str, Any], *, now: datetime, kind: str | None = None
    ) -> None:
        """Take in the current version of an object.

        A v1beta2 API document (core/v1, node.k8s.io/v1 for Namespace, LimitRange, RuntimeClass),
        with its kind where it does not say it, as lists often do not.

        Raises:
            KeyError: the kind is unknown.
            UnreadableDocument: it is malformed; nothing was changed. After any other exception what
                the engine believes is not sound any more.
        """
        self._intake.upsert(document, kind=kind or document["kind"], now=now)

    def delete(self, kind: str, *, key: str, now: datetime) -> None:
        """Forget an object by its name, or ``namespace/name``; an unknown one is no error."""
        self._intake.delete(kind, key=key, now=now)

    def cycle(self, now: datetime) -> CycleResult:
        """Run one cycle and assume what it decided.

        Returns:
            Its decisions; none when no queue has a head. Cost: heads x flavors x depth, without
            preemption; the number of pending workloads does not matter.

        Raises:
            ValueError: ``now`` is naive.
            CycleFailed: no decision was found; the engine is of no use any more.
        """
        if now.tzinfo is None:
            raise ValueError("now must be aware")
        state = self.state
        state.settle(now)
        waiting = state.queues.active_count
        heads = [*self._second_passes(now), *state.queues.heads(is_open=self._is_open)]
        if not heads:
            return CycleResult(number=self._cycles, heads=0)
        self._cycles += 1
        try:
            return self._decide(heads, waiting, now)
        except Exception as error:
            raise CycleFailed([item.key for _, item in heads]) from error

    def _decide(
        self, heads: Sequence[tuple[str, QueueItem]], waiting: int, now: datetime
    ) -> CycleResult:
        entries = [self._entry(name, item) for name, item in heads]
        decided = self._scheduler.run(entries, cycle=self._cycles)
        refused = [entry for entry in entries if entry.is_refused]
        preempted = [item for entry in decided for item in self._preempt(entry)]
        evicted = [self._evict(entry) for entry in decided if entry.status is EntryStatus.EVICTED]
        admitted = [
            self._admit(entry, now) for entry in decided if entry.status is EntryStatus.ADMITTED
        ]
        pending = [
            self._keep(entry)
            for entry in (*decided, *refused)
            if entry.status not in _DONE and not self._put_off(entry, now)
        ]
        return CycleResult(
            number=self._cycles,
            heads=len(heads),
            admitted=tuple(admitted),
            preempted=tuple(preempted),
            evicted=tuple(evicted),
            pending=tuple(pending),
            replaced=tuple(
                entry.replaced.workload.key
                for entry in decided
                if entry.replaced is not None and entry.status is EntryStatus.ADMITTED
            ),
            is_settled=not (admitted or preempted or evicted)
            and self.state.queues.active_count >= waiting,
        )

    def forget(self, key: str, *, now: datetime) -> None:
        """Take back an assumed decision about a workload whose write failed.

        An assumed reservation is given back and the workload queued again at once; an assumed
        eviction no longer counts as done. Without an assumed decision nothing happens.
        """
        state = self.state
        if key in state.assumed_evicted:
            state.assume_evicted(key, is_evicted=False)
        if key in state.assumed:
            state.ledger.drop(state.workloads[key].local_queue, key)
            state.take_back(key, now=now)

    def assume_again(self, before: Engine, keys: Iterable[str]) -> None:
        """Assume what an engine that this one replaces had, of decisions still to be written.

        Nothing but reservations, evictions and LocalQueues' usage is read of the other one.
        """
        state = self.state
        state.ledger.take_over(before.state.ledger)
        for key in keys:
            known, old = state.workloads.get(key), before.state.workloads.get(key)
            if known is None or old is None or known.uid != old.uid:
                continue
            if key in before.state.assumed and known.reservation is None and known.is_active:
                state.reserve(replace(known, reservation=old.reservation, is_evicted=False))
            if key in before.state.assumed_evicted:
                state.assume_evicted(key, is_evicted=True)

    def release_evicted(self, key: str, *, now: datetime) -> None:
        """Act as if an evicted workload had stopped: its quota is free and it waits again.

        On a cluster the workload's next document does this; forecasts and replays have none.
        """
        if self.state.snapshot.holding(key) is not None:
            self.state.unreserve(key, is_evicted=True, now=now)

    def confirm_admitted(self, key: str, *, now: datetime) -> None:
        """Act as if a workload that holds quota was seen to be admitted, all its checks passed.

        On a cluster the workload's next document does this; forecasts and replays have none.
        """
        self.state.settle_admission(key, now=now)

    def sample_usage(self, *, now: datetime) -> list[str]:
        """Bring the ledger of admission fair sharing up to date.

        Returns:
            Keys of the LocalQueues whose line changed, in the order in which they were fed.
        """
        self.state.settle(now)
        sampled = self.state.accounts.sample(now=now)
        # Who goes first may have changed.
        self.state.revision += bool(sampled)
        return sampled

    def wake(self, cluster_queue: str) -> None:
        """Queue the parked workloads of the tree around a ClusterQueue again."""
        self.state.wake(cluster_queue)

    def fork(self, *, now: datetime, names: Collection[str] | None = None) -> Engine:
        """An independent copy that shares what never changes. O(objects copied).

        Of the trees of some ClusterQueues, or of all: the copy knows nothing of what waits in, and
        holds, the others.
        """
        self.state.settle(now)
        copy = Engine(self.configuration)
        queues = self.state.snapshot.queues
        copy.state.adopt(self.state, names=queues.keys() if names is None else names)
        copy._cycles = self._cycles
        return copy

    def _second_passes(self, now: datetime) -> list[tuple[str, QueueItem]]:
        """What holds quota and looks for domains, by ClusterQueue."""
        holdings = map(self.state.snapshot.holding, self.state.second_passes.due(now))
        return [
            (item.cluster_queue, QueueItem(item.workload))
            for item in holdings
            if item is not None and self._is_open(item.cluster_queue)
        ]

    def _put_off(self, entry: Entry, now: datetime) -> bool:
        """Let a second pass that found nothing wait; false for every other entry."""
        if entry.is_second_pass:
            self.state.second_passes.put_off(entry.workload.key, now=now)
        return entry.is_second_pass

    def _is_open(self, name: str) -> bool:
        queue = self.state.snapshot.queues.get(name)
        return queue is not None and queue.is_active

    def _entry(self, name: str, item: QueueItem) -> Entry:
        queue = self.state.snapshot.queues[name]
        entry = Entry(item, queue, is_refused=True)
        workload = item.workload
        labels = self.state.namespace_labels(workload.namespace)
        if workload.is_retrying_checks:
            entry.reason = "PendingEvaluation"
            entry.message = "The workload has failed admission checks"
        elif not queue.takes_part:
            entry.reason = "Suspended"
            entry.message = f"ClusterQueue {name} is inactive"
        elif not queue.spec.namespace_selector.matches(labels):
            entry.reason = "Misconfigured"
            entry.message = "workload namespace doesn't match ClusterQueue selector"
            entry.requeue_reason = RequeueReason.NAMESPACE_MISMATCH
        elif problem := workload.resource_problem() or unfollowed(
            workload, queue=queue, configuration=self.configuration
        ):
            entry.reason = "Misconfigured"
            entry.message = problem
        else:
            entry.is_refused = False
        return entry

    def _admit(self, entry: Entry, now: datetime) -> Admit:
        queue, assignment, workload = entry.queue, entry.assignment, entry.workload
        checks = queue.spec.checks_for(assignment.flavors) if queue.spec.checks else ()
        queue.node.remove_all(entry.usage)
        self.state.snapshot.places.release(entry.places)
        is_admitted = all(
            workload.check_states.get(name) == "Ready" for name in checks
        ) and not any(
            item.placement is None and item.delayed == "Pending" for item in assignment.pod_sets
        )
        reservation = Reservation(
            cluster_queue=entry.queue.spec.name,
            pod_sets=tuple(
                PodSetHold(
                    name=item.name,
                    flavors={name: choice.flavor for name, choice in item.choices.items()},
                    amounts={name: item.requests.get(name, ZERO) for name in item.choices},
                    count=item.count,
                    placement=item.placement,
                    delayed=item.delayed,
                )
                for item in assignment.pod_sets
            ),
            reserved_at=now if workload.reservation is None else workload.reservation.reserved_at,
            is_admitted=is_admitted,
        )
        reserved = replace(workload, reservation=reservation, is_evicted=False, unhealthy_nodes=())
        self.state.reserve(reserved)
        if not entry.is_second_pass:
            self.state.accounts.charge(reserved, now=now)
        return Admit(
            key=workload.key,
            admission=assignment.admission(
                queue.spec.name,
                splits_by_prefix=self.configuration.gates.tas_assignments_encoding_by_hostname_prefix,
            ),
            is_admitted=is_admitted,
            checks=checks,
            message=f"Quota reserved in ClusterQueue {queue.spec.name}",
        )

    def _evict(self, entry: Entry) -> Evict:
        workload = entry.workload
        self.state.assume_evicted(workload.key, is_evicted=True)
        self.state.second_passes.drop(workload.key)
        nodes = ",".join(workload.unhealthy_nodes)
        return Evict(
            key=workload.key,
            reason="NodeFailures",
            message=f"{_NOT_REPLACED}: {nodes}",
            cluster_queue=entry.queue.spec.name,
        )

    def _preempt(self, entry: Entry) -> list[Preempt]:
        if entry.status is not EntryStatus.PREEMPTING:
            return []
        decisions = []
        for target in entry.targets:
            if target.holding.is_evicted:
                continue
            self.state.assume_evicted(target.holding.workload.key, is_evicted=True)
            decisions.append(
                Preempt(
                    key=target.holding.workload.key,
                    reason=target.reason.text,
                    message=self._preemption_message(entry, target),
                    preemptor=entry.workload.key,
                    cluster_queue=target.holding.cluster_queue,
                )
            )
        return decisions

    def _preemption_message(self, entry: Entry, target: Victim) -> str:
        victim_queue = self.state.snapshot.queues[target.holding.cluster_queue]
        return (
            f"Preempted to accommodate a workload (UID: {entry.workload.uid or _UNKNOWN}, "
            f"JobUID: {entry.workload.job_uid or _UNKNOWN}) due to {target.reason.words}; "
            f"preemptor path: {entry.queue.node.path_text()}; "
            f"preemptee path: {victim_queue.node.path_text()}"
        )

    def _keep(self, entry: Entry) -> Pending:
        item = entry.item
        self.state.bypassed.discard(item.key)
        message = cut(entry.message)
        has_changed = (item.reason, item.message) != (entry.reason, message)
        item.reason, item.message = entry.reason, message
        self.state.queues.requeue(entry.queue.spec.name, item, reason=entry.requeue_reason)
        return Pending(
            key=item.key,
            reason=entry.reason,
            message=message,
            cluster_queue=entry.queue.spec.name,
            has_changed=has_changed,
        )


def culprits(engine: Engine, heads: Sequence[str], *, now: datetime) -> Sequence[str]:
    """Which heads of a cycle that failed it fails about, tried on copies in ever smaller groups.

    The engine, a sound one that knows the heads, stays as it is.

    Returns:
        Keys; of a group that fails only together all but the first, which can go on alone. Empty
        when it does not fail again. Cost: a copy of the engine for each group.
    """
    if not _fails(engine, heads, now):
        return ()
    half = len(heads) // 2
    if not half:
        return heads
    halves = (heads[:half], heads[half:])
    return [key for part in halves for key in culprits(engine, part, now=now)] or heads[1:]


def _fails(engine: Engine, heads: Sequence[str], now: datetime) -> bool:
    """Whether a cycle fails that has nothing to decide about but some heads."""
    copy = engine.fork(now=now)
    for key, workload in list(copy.state.workloads.items()):
        if workload.reservation is None and key not in heads:
            copy.delete("Workload", key=key, now=now)
    try:
        copy.cycle(now)
    except CycleFailed:
        return True
    return False


def cut(message: str) -> str:
    """A condition's message as the API accepts it."""
    if len(message) <= _LONGEST_MESSAGE:
        return message
    return f"{message[: _LONGEST_MESSAGE - len(_CUT_MARK)]}{_CUT_MARK}"
