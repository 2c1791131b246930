"""Everything known about one cluster: quota objects, who holds what, who waits where.

Keeps snapshot and queues consistent with what ``intake`` reads; decides nothing. What is set twice
changes nothing. Decisions that are assumed survive documents older than their write.

Source: Kueue pkg/cache, pkg/controller/core, v0.19.2. Deviation: wake-ups of parked workloads are
collected and happen when the next cycle, or a question, needs them, not once a second.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from clusters.documents import labels
from clusters.kueue.configuration import Configuration
from clusters.kueue.cycle.second_pass import SecondPasses, needs_second_pass
from clusters.kueue.cycle.usage_accounts import UsageAccounts, becomes_admitted
from clusters.kueue.cycle.waking import WakeUps
from clusters.kueue.queueing.queue_set import QueueSet
from clusters.kueue.queueing.readiness import ActiveCondition, queue_condition, relate_to_topology
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import (
    CheckSpec,
    ClusterQueueSpec,
    CohortSpec,
)
from clusters.kueue.quota.tree import Holding
from clusters.kueue.quota.usage_ledger import UsageLedger
from clusters.kueue.topology.places import held_uses
from clusters.kueue.workload.devices import ClaimTemplate, Devices, NamedClass
from clusters.kueue.workload.parser import WorkloadParser
from clusters.kueue.workload.requests import SurroundingsByNamespace
from clusters.kueue.workload.workloads import Workload

Document = Mapping[str, Any]
# What an update of a waiting workload must not touch to leave its place and its parking alone.
_place_of = attrgetter(
    "pod_sets",
    "queue_name",
    "order",
    "reclaimable",
    "is_evicted",
    "is_requeue_blocked",
    "requeue_at",
    "gated_by",
    "refused",
    "owner",
)


class ClusterState:
    """The engine's memory."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.ledger = UsageLedger(configuration.admission_fair_sharing)
        self.snapshot = Snapshot(configuration.gates, ledger=self.ledger)
        self.queues = QueueSet(
            hashes_equals=configuration.gates.scheduling_equivalence_hashing,
            usage_of=self.ledger.usage_of if self.ledger.rules is not None else None,
        )
        self.accounts = UsageAccounts(self.snapshot, self.queues)
        self.checks: dict[str, CheckSpec] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.priority_classes: dict[str, int] = {}
        self.workloads: dict[str, Workload] = {}
        self.assumed: set[str] = set()
        self.assumed_evicted: set[str] = set()
        self.bypassed: set[str] = set()
        self.second_passes = SecondPasses()
        # What held quota before domains were found for it that are not written yet.
        self.replaced_placements: dict[str, Workload] = {}
        # Grows whenever a workload's document changed what the next cycle may decide.
        self.revision = 0
        self.devices = Devices(configuration)
        self.surroundings = SurroundingsByNamespace(configuration, self.devices)
        self.parser = WorkloadParser(configuration, self.devices)
        self._is_unsettled = False
        self._waking = WakeUps(self.snapshot, self.queues)
        self.wake, self.wake_cohort = self._waking.wake, self._waking.wake_cohort
        self.wake_all, self.wake_active = self._waking.wake_all, self._waking.wake_active

    # Taking over parsed objects

    def adopt(self, other: ClusterState, *, names: Collection[str]) -> None:
        """Become a copy of a settled state's trees of some ClusterQueues. O(objects in them)."""
        self.snapshot.flavors.update(other.snapshot.flavors)
        self.checks.update(other.checks)
        self.namespaces.update(other.namespaces)
        self.priority_classes.update(other.priority_classes)
        self.devices.adopt(other.devices)
        self.surroundings.adopt(other.surroundings)
        self.ledger.adopt(other.ledger)
        self.snapshot.adopt(other.snapshot, names=names)
        self.queues.adopt(other.queues, names=names)
        self.workloads.update(other.workloads)
        self.assumed |= other.assumed
        self.assumed_evicted |= other.assumed_evicted
        self.bypassed |= other.bypassed
        held = {key for name in names for key in other.snapshot.queues[name].holdings}
        self.second_passes.adopt(other.second_passes, keys=held)

    def set_cohort(self, spec: CohortSpec) -> None:
        """Create or change a Cohort."""
        before = self.snapshot.cohorts.get(spec.name)
        if before is not None and before.is_declared and before.spec == spec:
            return
        if before is not None and before.spec.parent:
            self.wake_cohort(before.spec.parent)
        self.snapshot.set_cohort(spec)
        self.wake_cohort(spec.name)

    def set_queue(self, spec: ClusterQueueSpec, *, now: datetime) -> None:
        """Create or change a ClusterQueue."""
        before = self.snapshot.queues.get(spec.name)
        if before is not None:
            if before.spec == spec:
                return
            self._wake_tree_of(spec.name)
        self.snapshot.set_queue(spec)
        self.queues.set_queue(
            spec.name, strategy=spec.strategy, is_usage_based=spec.is_usage_based, now=now
        )
        self._is_unsettled = True
        self.wake(spec.name)

    def delete_cohort(self, name: str) -> None:
        """Forget a Cohort; its tree may fall apart."""
        before = self.snapshot.cohorts.get(name)
        if before is not None and before.spec.parent:
            self.wake_cohort(before.spec.parent)
        self.wake_cohort(name)
        self.snapshot.delete_cohort(name)

    def delete_queue(self, name: str, *, now: datetime) -> None:
        """Forget a ClusterQueue."""
        self._wake_tree_of(name)
        self.snapshot.delete_queue(name)
        self.queues.delete_queue(name, now=now)

    # State transitions that decisions cause

    def reserve(self, workload: Workload) -> None:
        """Assume that a pending workload holds quota now.

        Its precedence as a preemptor ends only when the reservation is seen in a document: if it is
        preempted before, it is first again. One that holds quota already got its domains.
        """
        self.bypassed.discard(workload.key)
        self.second_passes.drop(workload.key)
        holding = self.snapshot.release(workload.key)
        if holding is not None:
            self.replaced_placements[workload.key] = holding.workload
        else:
            self.queues.remove(self.workloads[workload.key], keeps_sticky=True)
        self.workloads[workload.key] = workload
        self.snapshot.hold(workload, is_evicted=False)
        self.assumed.add(workload.key)

    def settle_admission(self, key: str, *, now: datetime) -> None:
        """Take note that a workload that holds quota is admitted: its charge becomes usage.

        What was noted of its ClusterQueue's flavors counts as of an earlier time from here on.
        """
        holding = self.snapshot.holding(key)
        if holding is None or holding.workload.reservation is None:
            return
        if not holding.workload.reservation.is_admitted:
            reservation = replace(holding.workload.reservation, is_admitted=True)
            workload = replace(holding.workload, reservation=reservation)
            self.workloads[key] = workload
            self.snapshot.renew(holding, workload)
        queue = self.snapshot.queues.get(holding.cluster_queue)
        if queue is not None:
            queue.generation += 1
        self.accounts.settle(holding.workload, now=now)

    def assume_evicted(self, key: str, *, is_evicted: bool) -> None:
        """Assume that a workload was told to stop, or take that back."""
        holding = self.snapshot.holding(key)
        if holding is not None:
            holding.is_evicted = is_evicted
        if is_evicted:
            self.assumed_evicted.add(key)
        else:
            self.assumed_evicted.discard(key)

    def unreserve(self, key: str, *, is_evicted: bool, now: datetime) -> None:
        """Let a workload give its quota back and wait again."""
        workload = self.workloads[key]
        self.assumed.discard(key)
        self.assumed_evicted.discard(key)
        self.replaced_placements.pop(key, None)
        self.place(replace(workload, reservation=None, is_evicted=is_evicted), now=now)

    def take_back(self, key: str, *, now: datetime) -> None:
        """Undo an assumed reservation: it waits again, or looks for domains again."""
        before = self.replaced_placements.pop(key, None)
        if before is None:
            self.unreserve(key, is_evicted=False, now=now)
            return
        self.assumed.discard(key)
        self.place(before, now=now)
        self.second_passes.put_off(key, now=now)

    # Settling

    def settle(self, now: datetime) -> None:
        """Bring everything up to date: derived numbers, activity and woken workloads."""
        self.refresh()
        self._waking.happen(labels_of=self.namespace_labels, now=now)

    def refresh(self) -> None:
        """Bring derived numbers and activity up to date.

        Woken workloads stay parked until a cycle or a question: that goes through whole trees.
        """
        if self._is_unsettled:
            self.snapshot.reshape_places()
            for name, state in self.snapshot.queues.items():
                self.snapshot.set_active(name, is_active=self.condition(state.spec).is_active)
                relate_to_topology(state, flavors=self.snapshot.flavors, checks=self.checks)
            self._is_unsettled = False
        self.snapshot.refresh()

    def condition(self, spec: ClusterQueueSpec) -> ActiveCondition:
        """Active condition of a ClusterQueue."""
        places_any = self.configuration.placed_kinds != frozenset()
        has_topology = places_any and self.configuration.gates.topology_aware_scheduling
        return queue_condition(
            spec,
            flavors=self.snapshot.flavors,
            checks=self.checks,
            topologies=self.snapshot.places.topologies if has_topology else None,
        )

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Labels of a namespace; one that was not fed has its name only."""
        return self.namespaces.get(name) or {labels.NAMESPACE_NAME: name}

    def namespaces_of(self, cluster_queue: str) -> set[str]:
        """Namespaces of what waits in a ClusterQueue, or may, and of what holds its quota."""
        found = {key.partition("/")[0] for key in self.queues.feeding(cluster_queue)}
        queue = self.snapshot.queues.get(cluster_queue)
        if queue is not None:
            found.update(each.workload.namespace for each in queue.holdings.values())
        return found

    def _wake_tree_of(self, queue_name: str) -> None:
        """Wake the tree that a queue is in now, named by its Cohort as the queue may leave it."""
        state = self.snapshot.queues.get(queue_name)
        if state is not None and state.spec.cohort:
            self.wake_cohort(state.spec.cohort)
        self.wake(queue_name)

    def activity_changed(self) -> None:
        """React to a ResourceFlavor or an AdmissionCheck that came, went or changed."""
        self._is_unsettled = True
        self.wake_all()

    def surroundings_changed(self, now: datetime) -> None:
        """Work out the requests of everything that waits again."""
        self.parser.forget_shapes()
        for workload in list(self.workloads.values()):
            if workload.reservation is None:
                around = self.surroundings.of(workload.namespace)
                self.place(self.parser.reshape(workload, surroundings=around), now=now)

    def set_template(self, key: str, template: ClaimTemplate | None, *, now: datetime) -> None:
        """Note a ResourceClaimTemplate, ``None`` for one that is gone.

        Only what waits and claims devices by it is worked out again.
        """
        if not self.devices.set_template(key, template):
            return
        for workload in self.queues.waiting_for(key):
            around = self.surroundings.of(workload.namespace)
            self.place(self.parser.reshape(workload, surroundings=around), now=now)

    def set_device_class(self, name: str, found: NamedClass | None, *, now: datetime) -> None:
        """Note a DeviceClass with a resource name, ``None`` for one that is gone or has none."""
        if self.devices.set_class(name, found):
            self.surroundings.forget()
            self.surroundings_changed(now)

    # Workloads

    def read_workload(self, document: Document) -> Workload:
        """What a Workload document says; changes nothing."""
        namespace = document["metadata"].get("namespace", "")
        return self.parser.parse(document, surroundings=self.surroundings.of(namespace))

    def set_workload(self, workload: Workload, *, now: datetime) -> None:
        """Take in what a Workload document says."""
        before = self.workloads.get(workload.key)
        is_news = becomes_admitted(before, workload, is_assumed=workload.key in self.assumed)
        self.place(self._with_assumptions(workload), now=now)
        if is_news:
            self.settle_admission(workload.key, now=now)
        self.accounts.follow(before, workload)

    def delete_workload(self, key: str) -> None:
        """Forget a workload; its tree is woken, also where it held nothing, as Kueue does."""
        workload, queue = self.workloads.pop(key, None), self.queues.queue_of(key)
        if workload is not None and not workload.is_active:
            queue = self.queues.leads_to(workload.local_queue)
        self.assumed.discard(key)
        self.assumed_evicted.discard(key)
        self.replaced_placements.pop(key, None)
        if workload is not None:
            self.revision += 1
            self.ledger.drop(workload.local_queue, key)
            self._lift(workload)
            if queue:
                self.wake(queue)

    def place(self, workload: Workload, *, now: datetime) -> None:
        """Put a workload where it belongs: holding quota, waiting, or neither."""
        before = self.workloads.get(workload.key)
        if before == workload and not workload.is_finished:
            return
        if workload.is_finished:
            self.delete_workload(workload.key)
            return
        holds = workload.reservation is not None
        waits = not holds and workload.is_active
        if before is not None and before.reservation is None and waits and before.is_active:
            self._place_again(before, workload, now)
            return
        if before is not None and holds and self._holds_on(before, workload):
            self.second_passes.note(workload, now=now)
            return
        self.revision += 1
        if before is not None:
            if before.is_active and not workload.is_active:
                self.wake(self.queues.leads_to(before.local_queue))
            self._lift(before)
        self.workloads[workload.key] = workload
        if holds:
            self.snapshot.hold(workload, is_evicted=workload.is_evicted)
            self.second_passes.note(workload, now=now)
        elif waits and self.queues.add(workload, now=now):
            self.bypassed.add(workload.key)

    def _with_assumptions(self, workload: Workload) -> Workload:
        """A document from before an assumed write still counts as written."""
        before = self.workloads.get(workload.key)
        if before is None or before.uid != workload.uid:
            self.assumed.discard(workload.key)
            self.assumed_evicted.discard(workload.key)
            return workload
        if workload.key in self.assumed:
            if self._is_placed_anew(workload):
                return replace(before, is_evicted=workload.is_evicted)
            if workload.reservation is not None or workload.is_finished or not workload.is_active:
                self.assumed.discard(workload.key)
                self.replaced_placements.pop(workload.key, None)
                self.end_precedence(before)
            else:
                workload = replace(workload, reservation=before.reservation, is_evicted=False)
        if workload.key in self.assumed_evicted:
            if workload.is_evicted or workload.reservation is None:
                self.assumed_evicted.discard(workload.key)
            else:
                workload = replace(workload, is_evicted=True)
        return workload

    def _is_placed_anew(self, workload: Workload) -> bool:
        """Whether a document is from before domains were found that it does not show."""
        return workload.key in self.replaced_placements and needs_second_pass(workload)

    def end_precedence(self, before: Workload) -> None:
        """End the precedence as a preemptor, once the reservation is seen."""
        name = before.reservation.cluster_queue if before.reservation is not None else ""
        queue = self.queues.queue(name)
        if queue is not None:
            queue.forget_preemptor(before.key)

    def _holds_on(self, before: Workload, workload: Workload) -> bool:
        """Update a workload that goes on holding the same quota; false when it does not."""
        holding = self.snapshot.holding(before.key)
        if holding is None or workload.reservation is None:
            return False
        is_same_queue = workload.reservation.cluster_queue == holding.cluster_queue
        if not is_same_queue or workload.usage() != holding.usage:
            return False
        if held_uses(workload) != holding.places:
            return False
        if before.priority != workload.priority:
            self.wake(holding.cluster_queue)
        if not _holds_alike(holding, workload):
            self.revision += 1
        self.workloads[workload.key] = workload
        self.snapshot.renew(holding, workload)
        holding.is_evicted = workload.is_evicted
        return True

    def _place_again(self, before: Workload, workload: Workload, now: datetime) -> None:
        """Update a waiting workload, and only move it when something of weight changed."""
        self.workloads[workload.key] = workload
        if _place_of(before) == _place_of(workload):
            self.queues.refresh(workload)
            return
        self.revision += 1
        if before.queue_name != workload.queue_name:
            self.queues.remove(before)
        if before.priority != workload.priority or before.reclaimable != workload.reclaimable:
            name = self.queues.queue_of(workload.key)
            if name:
                self.wake(name)
        if self.queues.add(workload, now=now):
            self.bypassed.add(workload.key)

    def _lift(self, workload: Workload) -> None:
        """Take a workload out of wherever it is; quota that becomes free wakes its tree."""
        self.bypassed.discard(workload.key)
        self.second_passes.drop(workload.key)
        if workload.reservation is None:
            self.queues.remove(workload)
            return
        holding = self.snapshot.release(workload.key)
        if holding is not None:
            self.wake(holding.cluster_queue)


def _holds_alike(holding: Holding, after: Workload) -> bool:
    """Whether an update of a workload that holds the same quota is news to no decision."""
    before = holding.workload
    assert before.reservation is not None and after.reservation is not None
    return (
        holding.is_evicted == after.is_evicted
        and before.priority == after.priority
        and before.is_pods_ready == after.is_pods_ready
        and before.unhealthy_nodes == after.unhealthy_nodes
        and before.reservation.is_admitted == after.reservation.is_admitted
    )
