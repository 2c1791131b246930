"""Nodes of a placement that failed: noted on their Workload, taken back, or too many at once. Pure.

A node has failed for a Workload when it is gone, or when it is not ready or has a taint that the
pods do not tolerate and none of them runs there any more. The engine looks for another domain for
one that failed; where a second one fails meanwhile, the Workload is evicted.

Placements name a node by its hostname label, which need not be its name. Where several nodes bear
one hostname, nobody knows which of them is meant, so none has failed.

Source: Kueue pkg/controller/tas/node_controller.go, v0.19.2.
Deviation: Kueue looks for nodes by name alone; under another hostname none ever fails there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from clusters.documents import labels
from clusters.documents.conditions import condition
from clusters.documents.keys import Document, bound, status_of
from clusters.documents.times import stamp
from clusters.jobs.marking import StartRefused, flavored
from clusters.jobs.workloads import assignments_of
from clusters.kube import resources as r
from clusters.kueue.configuration import Gates
from clusters.kueue.lifecycle.steps import Evict
from clusters.kueue.workload.matching import (
    Taint,
    Toleration,
    parse_taints,
    parse_tolerations,
    untolerated_taint,
)
from clusters.kueue.workload.parser import parse_time
from clusters.kueue.workload.placement import parse_placement
from clusters.reconcile import workload_status as status
from clusters.reconcile.admission.placed_pods import has_ended, is_held, told_node
from clusters.reconcile.admission.steps import status_write
from clusters.reconcile.runtime.writer import Write

NOT_READY_S: Final = 30.0
_MULTIPLE: Final = (
    "Workload eviction triggered due to multiple TAS assigned node failures, including: {}"
)
_ENDED: Final = "Pod terminated by Kueue NodeController due to node taint"


@dataclass(frozen=True, slots=True)
class Ground:
    """What is known of the nodes that a Workload runs on.

    Attributes:
        nodes: those that a hostname means: the one of that name, else all with that label.
        pods: of the Workload.
        flavors: ResourceFlavor documents by name.
        gates: in force.
        now: Current time.
    """

    nodes: Callable[[str], Sequence[Document]]
    pods: Sequence[Document]
    flavors: Mapping[str, Document]
    gates: Gates
    now: datetime


@dataclass(frozen=True, slots=True)
class Health:
    """What to do about nodes.

    Attributes:
        write: About the Workload; None for nothing.
        ending: Pods that wait for a node where they can never start.
        look_again: When time alone makes a node count as failed.
    """

    write: Write | None = None
    ending: tuple[Document, ...] = ()
    look_again: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Borne:
    """What a pod set tolerates for ever, and all that it tolerates."""

    always: Sequence[Toleration]
    some: Sequence[Toleration]


class _Found:
    """What is asked of node after node; each is worked out once, if at all."""

    def __init__(self, workload: Document, ground: Ground) -> None:
        self._workload, self._ground = workload, ground

    @cached_property
    def busy(self) -> frozenset[str]:
        """Nodes where a pod runs that is not told to end."""
        return frozenset(
            pod["spec"].get("nodeName", "")
            for pod in self._ground.pods
            if not pod["metadata"].get("deletionTimestamp") and not has_ended(pod)
        )

    @cached_property
    def tolerations(self) -> Mapping[str, list[_Borne]]:
        """By node, of each pod set on it."""
        found: dict[str, list[_Borne]] = {}
        templates = {item["name"]: item["template"] for item in self._workload["spec"]["podSets"]}
        for assignment in assignments_of(self._workload):
            original = templates.get(assignment["name"])
            if original is None:
                continue
            try:
                marks = flavored(
                    self._workload, assignment, original=original, flavors=self._ground.flavors
                )
            except StartRefused:
                continue  # its job could not be started either
            always = [each for each in marks.tolerations if each.get("tolerationSeconds") is None]
            borne = _Borne(parse_tolerations(always), parse_tolerations(marks.tolerations))
            for name in _nodes(assignment):
                found.setdefault(name, []).append(borne)
        return found


def nodes_of(workload: Document) -> list[str]:
    """Hostnames of the nodes that a Workload is placed on, in order; none of other levels."""
    found: dict[str, None] = {}
    for assignment in assignments_of(workload):
        found.update(dict.fromkeys(_nodes(assignment)))
    return list(found)


def look_at_nodes(workload: Document, ground: Ground) -> Health:
    """Compare what a placed Workload says of its nodes with how they are.

    Args:
        workload: Admitted, and not evicted.
        ground: As it is now.
    """
    if not ground.gates.tas_failed_node_replacement:
        return Health()
    nodes, found = nodes_of(workload), _Found(workload, ground)
    told = [item["name"] for item in status_of(workload).get("unhealthyNodes") or ()]
    ending = list(_astray(set(nodes), ground))
    again: datetime | None = None
    for name in nodes:
        failed_at = _failed_at(name, ground, found)
        if failed_at is not None and failed_at > ground.now:
            again = failed_at if again is None else min(again, failed_at)
            continue
        is_failed = failed_at is not None
        if is_failed:
            ending += _waiting_for(name, ground.pods) if ground.nodes(name) else ()
        if is_failed == (name in told):
            continue
        if not is_failed:
            left = [{"name": other} for other in told if other != name]
            patch = status.guarded(workload, unhealthyNodes=left or None)
            return Health(status_write("node-back", workload, patch), tuple(ending))
        if told:
            text = _MULTIPLE.format(", ".join([*told, name]))
            patch = status.evict_patch(workload, Evict("NodeFailures", text), now=ground.now)
            return Health(status_write("evict", workload, patch))
        patch = status.guarded(workload, unhealthyNodes=[{"name": name}])
        return Health(status_write("node-failed", workload, patch), tuple(ending))
    return Health(None, tuple(ending), again)


def ending_write(pod: Document, *, now: datetime) -> Write:
    """Ends a pod that can never start, so that its job makes another one."""
    mark = {
        "type": "TerminatedByKueue",
        "status": "True",
        "reason": "UnschedulableOnAssignedNode",
        "message": _ENDED,
        "lastTransitionTime": stamp(now),
    }
    conditions = [*(status_of(pod).get("conditions") or ()), mark]
    body = {**bound(pod), "status": {"phase": "Failed", "conditions": conditions}}
    return Write.patch("end-pod", r.POD, pod, body, subresource="status")


def _nodes(assignment: Document) -> Iterator[str]:
    placement = parse_placement(assignment.get("topologyAssignment"))
    if placement is not None and placement.levels[-1] == labels.HOSTNAME:
        yield from (item.values[-1] for item in placement.domains if item.count > 0)


def _failed_at(name: str, ground: Ground, found: _Found) -> datetime | None:
    """Since or from when a node counts as failed; None while it does not."""
    nodes, gates, now = ground.nodes(name), ground.gates, ground.now
    if len(nodes) > 1:
        return None
    node = nodes[0] if nodes else {}
    ready = condition(node, "Ready")
    if not ready:
        return now
    is_busy = node["metadata"]["name"] in found.busy
    waits_for_pods = gates.tas_replace_node_on_pod_termination
    if ready.get("status") != "True":
        since = parse_time(ready.get("lastTransitionTime")) or now
        due = since + timedelta(seconds=NOT_READY_S)
        by_time = gates.tas_replace_node_due_to_not_ready_over_fixed_time
        if not waits_for_pods or (by_time and due <= now):
            return due
        return (due if by_time else None) if is_busy else now
    if not gates.tas_replace_node_on_node_taints:
        return None
    taints = parse_taints((node.get("spec") or {}).get("taints"))
    is_harsh = _bears(taints, found.tolerations.get(name, ())) if taints else None
    if is_harsh is None or (is_busy and (waits_for_pods or not is_harsh)):
        return None
    return now


def _bears(taints: Iterable[Taint], tolerations: Collection[_Borne]) -> bool | None:
    """Whether a taint is not tolerated, True, or only for a time, False; else None."""
    found: bool | None = None
    for taint in taints:
        for borne in tolerations:
            if untolerated_taint([taint], tolerations=borne.some) is not None:
                return True
            if untolerated_taint([taint], tolerations=borne.always) is not None:
                found = False
    return found


def _waiting_for(name: str, pods: Iterable[Document]) -> Iterator[Document]:
    """Pods that were let go to a node and did not get there."""
    return (pod for pod in pods if _is_waiting(pod) and told_node(pod) == name)


def _astray(nodes: Collection[str], ground: Ground) -> Iterator[Document]:
    """Pods that wait for a node that their Workload has left."""
    for pod in ground.pods:
        told = ground.nodes(told_node(pod))
        is_known = len(told) == 1 and bool(condition(told[0], "Ready"))
        if is_known and told_node(pod) not in nodes and _is_waiting(pod):
            yield pod


def _is_waiting(pod: Document) -> bool:
    is_bound = bool(pod["spec"].get("nodeName"))
    return not is_bound and not is_held(pod) and status_of(pod).get("phase") == "Pending"
