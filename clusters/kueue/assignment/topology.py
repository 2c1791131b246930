"""Topology in an assignment: which pod sets take part, which flavors do for them, which domains.

Quota comes first. What fits by quota is placed; what does not, or finds no domains, is placed as if
nothing ran: where even that fails, preemption cannot help.

Source: Kueue pkg/scheduler/flavorassigner/{flavorassigner,tas_flavorassigner}.go,
pkg/cache/scheduler/clusterqueue_snapshot.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from clusters.kueue.amounts import wholes
from clusters.kueue.assignment.outcome import (
    Assignment,
    AssignmentMode,
    FlavorChoice,
    FlavorMode,
    Obstacle,
    PodSetAssignment,
)
from clusters.kueue.configuration import Configuration
from clusters.kueue.quota.specifications import FlavorSpec
from clusters.kueue.quota.tree import ClusterQueueState
from clusters.kueue.topology.need import Assumed, Conditions, NoPlacement, PodSetNeed
from clusters.kueue.topology.placer import Placer
from clusters.kueue.topology.places import Places
from clusters.kueue.topology.replacement import replaced_placement
from clusters.kueue.topology.tree import PlacedUse, add_amounts, placed_uses, total_of
from clusters.kueue.workload.placement import Placement
from clusters.kueue.workload.workloads import PodSet, PodSetHold, Workload

PENDING: Final = "Pending"
READY: Final = "Ready"
_NOT_FOLLOWED: Final = (
    "the feature gate {} is on, which is not followed here for what is placed by topology, as pod "
    "set {} is"
)


def unfollowed(
    workload: Workload, *, queue: ClusterQueueState, configuration: Configuration
) -> str:
    """Why a workload cannot be looked at as it asks for a topology, empty when it can be."""
    gates = configuration.gates
    if not gates.topology_aware_scheduling or queue.is_remote:
        return ""
    asking = next((item for item in workload.pod_sets if takes_part(item, queue)), None)
    if asking is None:
        return ""
    kinds = configuration.placed_kinds
    if kinds is not None and (not kinds or workload.owner not in ("", *kinds)):
        is_explicit = asking.shape.topology.is_explicit
        why = "asks for it" if is_explicit else "is in a queue where it has to"
        of_kind = f" of a {_short(workload.owner)}" if kinds else ""
        return (
            f"pods{of_kind} are not placed by topology here, and pod set {asking.name} {why}: "
            "use a queue whose flavors have no topology, without a topology request"
            + (f", or a {' or a '.join(sorted(map(_short, kinds)))}" if kinds else "")
        )
    if gates.scheduler_library_integration:
        return _NOT_FOLLOWED.format("SchedulerLibraryIntegration", asking.name)
    if gates.elastic_jobs_via_workload_slices_with_tas and workload.is_elastic:
        return _NOT_FOLLOWED.format("ElasticJobsViaWorkloadSlicesWithTAS", asking.name)
    return ""


def _short(kind: str) -> str:
    """The last word of ``batch/v1, Kind=Job``."""
    return kind.rpartition("=")[2]


def takes_part(pod_set: PodSet, queue: ClusterQueueState) -> bool:
    """Whether the pods of a pod set are placed: asked for, or implied by the queue."""
    return queue.is_placed_only or pod_set.shape.topology.is_explicit


@dataclass(slots=True)
class Placed:
    """Domains that were found, and the first pod set that found none, with the reason."""

    found: dict[str, Placement | None] = field(default_factory=dict)
    failed: str = ""
    reason: str = ""

    def fail(self, members: Sequence[PodSetNeed], reason: str) -> None:
        """Note pod sets that found no domains, the one first that is to be named."""
        self.found.update(dict.fromkeys(need.name for need in members))
        if not self.failed:
            self.failed, self.reason = members[0].name, reason


class TopologyAssigner:
    """Looks for domains against a snapshot.

    Args:
        places: What is known of the nodes.
        leaves_to_workers: What workers place is not looked at: they are asked as it was written.
    """

    def __init__(self, places: Places, *, leaves_to_workers: bool) -> None:
        self._places = places
        self._gates = places.gates
        self._leaves_to_workers = leaves_to_workers

    def _is_off(self, queue: ClusterQueueState) -> bool:
        is_left_to_workers = queue.is_remote and self._leaves_to_workers
        return is_left_to_workers or not self._gates.topology_aware_scheduling

    def refusal(
        self,
        pod_set: PodSet,
        *,
        queue: ClusterQueueState,
        flavor: FlavorSpec,
        resources: Collection[str],
    ) -> str:
        """Why a flavor will not do for a pod set because of topology, empty when it does.

        ``resources`` are those that the flavor's resource group covers.
        """
        if self._is_off(queue):
            return ""
        request = pod_set.shape.topology
        if not request.is_explicit:
            if flavor.topology and not queue.is_placed_only:
                return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling'
            return ""
        if not flavor.topology:
            # Quota that pods do not take from nodes, made by a transformation, needs no topology.
            if pod_set.shape.requests.of_pod.keys().isdisjoint(resources):
                return ""
            return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling'
        placer = self._places.placer(flavor.name)
        if placer is None:
            return f'Flavor "{flavor.name}" information missing in TAS cache'
        if not request.is_within(placer.tree.levels):
            return f'Flavor "{flavor.name}" does not contain the requested level'
        return ""

    def is_placed(self, flavor: str) -> bool:
        """Whether a flavor has a topology that is known."""
        return self._places.placer(flavor) is not None

    def place(
        self, assignment: Assignment, *, workload: Workload, queue: ClusterQueueState
    ) -> None:
        """Look for domains after quota was found for every pod set."""
        if self._is_off(queue) or not any(takes_part(item, queue) for item in workload.pod_sets):
            return
        if assignment.outcome is AssignmentMode.NO_FIT:
            return
        assignment.needs = self._needs(assignment, workload, queue)
        if assignment.outcome is AssignmentMode.FIT:
            placed = self.search(assignment.needs, workload)
            if placed.failed:
                assignment.item(placed.failed).reasons.append(placed.reason)
                assignment.force(placed.failed, FlavorMode.PREEMPT)
            else:
                accept(assignment, placed)
        if assignment.outcome is AssignmentMode.PREEMPT and not workload.unhealthy_nodes:
            placed = self.search(assignment.needs, workload, is_empty=True)
            if placed.failed:
                assignment.force(placed.failed, FlavorMode.NO_FIT)
                assignment.obstacle = Obstacle.TOPOLOGY_PLACEMENT_FAILED
            else:
                for need in assignment.needs:
                    assignment.force(need.name, FlavorMode.PREEMPT)

    def search(
        self, needs: Iterable[PodSetNeed], workload: Workload, *, is_empty: bool = False
    ) -> Placed:
        """Domains for all pod sets, flavor after flavor; on request as if no placed pods ran."""
        by_flavor: dict[str, list[PodSetNeed]] = {}
        for need in needs:
            by_flavor.setdefault(need.flavor, []).append(need)
        placed, shared = Placed(), Assumed()
        for flavor, members in sorted(by_flavor.items()):
            placer = self._places.placer(flavor)
            assert placer is not None
            is_shared = self._gates.tas_handle_overlapping_flavors and placer.tree.is_by_host
            conditions = Conditions(
                assumed=shared if is_shared else Assumed(), is_empty=is_empty, owner=workload.uid
            )
            if workload.unhealthy_nodes:
                self._replace_node(placer, members, conditions, workload, placed)
            else:
                _search_flavor(placer, members, conditions, placed)
        return placed

    def _replace_node(
        self,
        placer: Placer,
        members: Iterable[PodSetNeed],
        conditions: Conditions,
        workload: Workload,
        placed: Placed,
    ) -> None:
        """Find another domain for the pods of a node that failed, pod set after pod set."""
        reservation = workload.reservation
        before = {item.name: item.placement for item in reservation.pod_sets} if reservation else {}
        stays = self._gates.skip_reassignment_for_pod_owned_workloads and workload.is_single_pod
        for need in members:
            placement = before.get(need.name)
            if placement is None:
                continue
            if stays:
                # A Pod that stands alone moves nowhere; its placement tells where it is.
                placed.found[need.name] = placement
                continue
            try:
                placed.found[need.name], new = replaced_placement(
                    placer,
                    need,
                    before=placement,
                    failed=workload.unhealthy_nodes[0],
                    conditions=conditions,
                )
            except NoPlacement as failure:
                placed.fail([need], str(failure))
                return
            _assume(conditions, need, new)

    def uses(self, assignment: Assignment, *, workload: Workload) -> tuple[PlacedUse, ...]:
        """What the domains of an assignment take beyond those that the workload has already."""
        placed = [(item, item.placement) for item in assignment.pod_sets if item.placement]
        if not placed:
            return ()
        shapes = {item.name: item.shape for item in workload.pod_sets}
        before = _counts_before(workload)
        found: list[PlacedUse] = []
        for item, placement in placed:
            flavors = {choice.flavor for choice in item.choices.values()}
            flavor = [name for name in sorted(flavors) if self.is_placed(name)]
            if len(flavor) != 1:
                continue
            requests = wholes(shapes[item.name].requests.of_pod)
            for use in placed_uses(placement, flavor=flavor[0], requests=requests):
                count = use.count - before.get((item.name, use.domain), 0)
                if count > 0:
                    total = total_of(requests, count)
                    found.append(replace(use, count=count, total=total))
        return tuple(found)

    def _needs(
        self, assignment: Assignment, workload: Workload, queue: ClusterQueueState
    ) -> list[PodSetNeed]:
        needs = []
        # Flavors are found group by group, so the pod sets may stand there in another order.
        items = {item.name: item for item in assignment.pod_sets}
        for pod_set in workload.pod_sets:
            item = items[pod_set.name]
            if not takes_part(pod_set, queue) or item.count == 0:
                continue
            if item.placement is not None and not _is_broken(item.placement, workload):
                continue
            need = self._need(item, pod_set, workload, queue)
            if need is not None:
                needs.append(need)
        return needs

    def _need(
        self,
        item: PodSetAssignment,
        pod_set: PodSet,
        workload: Workload,
        queue: ClusterQueueState,
    ) -> PodSetNeed | None:
        flavors = {choice.flavor for choice in item.choices.values()}
        placed = sorted(name for name in flavors if self.is_placed(name))
        if len(placed) != 1:
            item.error = _no_flavor(placed, has_any=self._has_any(queue))
            return None
        is_new = workload.reservation is None
        if queue.is_remote or (is_new and placed[0] in queue.provisioned):
            item.delayed = PENDING
            return None
        added = workload.additions.get(pod_set.name)
        return PodSetNeed(
            name=pod_set.name,
            shape=pod_set.shape,
            count=item.count,
            requests=wholes(pod_set.shape.requests.of_pod),
            request=pod_set.shape.topology,
            flavor=placed[0],
            is_implied=not pod_set.shape.topology.is_explicit,
            selector=added.selector if added is not None else {},
            tolerations=added.tolerations if added is not None else (),
        )

    def _has_any(self, queue: ClusterQueueState) -> bool:
        return any(self.is_placed(name) for group in queue.spec.groups for name in group.flavors)


def accept(assignment: Assignment, placed: Placed) -> None:
    """Note the domains that were found; pod sets that found none have none."""
    for name, placement in placed.found.items():
        item = assignment.item(name)
        item.placement = placement
        if placement is not None and item.delayed:
            item.delayed = READY


def _search_flavor(
    placer: Placer, members: Sequence[PodSetNeed], conditions: Conditions, placed: Placed
) -> None:
    """Groups of pod sets one after the other, each beside what the earlier ones took."""
    groups: dict[str, list[PodSetNeed]] = {}
    for index, need in enumerate(members):
        groups.setdefault(need.request.group or f"/{index}", []).append(need)
    for group in groups.values():
        leader, workers = _leader_and_workers(group)
        try:
            found = placer.place(workers, leader, conditions)
        except NoPlacement as failure:
            placed.fail([workers, *group], str(failure))
            return
        placed.found.update(found)
        for need in group:
            if need.name in found:
                _assume(conditions, need, found[need.name])


def _assume(conditions: Conditions, need: PodSetNeed, placement: Placement) -> None:
    """Let a placement count for the pod sets that follow."""
    for use in placed_uses(placement, flavor=need.flavor, requests=need.requests):
        add_amounts(conditions.assumed.setdefault(use.domain, {}), use.total)


def _leader_and_workers(group: Sequence[PodSetNeed]) -> tuple[PodSetNeed | None, PodSetNeed]:
    if len(group) == 1:
        return None, group[0]
    first, second = group[0], group[1]
    return (first, second) if second.count > first.count else (second, first)


def _no_flavor(placed: Sequence[str], *, has_any: bool) -> str:
    if not has_any:
        return "workload requires Topology, but there is no TAS cache information"
    if not placed:
        return "no TAS flavor assigned"
    return f"more than one TAS flavor assigned: {', '.join(placed)}"


def held_assignment(hold: PodSetHold, workload: Workload) -> PodSetAssignment:
    """What a second pass begins with: flavors and domains of the first one."""
    left = hold.count - min(workload.reclaimable.get(hold.name, 0), hold.count)
    return PodSetAssignment(
        name=hold.name,
        count=left,
        requests=hold.of_pods(left),
        choices={
            name: FlavorChoice(flavor, FlavorMode.FIT, 0) for name, flavor in hold.flavors.items()
        },
        placement=hold.placement,
        delayed=hold.delayed,
    )


def _is_broken(placement: Placement, workload: Workload) -> bool:
    """Whether a placement has a node that failed."""
    return any(item.values[-1] in workload.unhealthy_nodes for item in placement.domains)


def _counts_before(workload: Workload) -> dict[tuple[str, str], int]:
    """Pods by pod set and domain that the workload holds already."""
    if workload.reservation is None:
        return {}
    return {
        (hold.name, item.domain): item.count
        for hold in workload.reservation.pod_sets
        if hold.placement is not None
        for item in hold.placement.domains
    }
