"""Which pods of a placed Workload run in which domain of its topology, and what tells them. Pure.

Pods that are numbered go where their number says; where numbers are missing, doubled, too large or
contradict what runs already, each pod goes to the next domain with room.

Source: Kueue pkg/controller/tas/topology_ungater.go, v0.19.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.conditions import is_true
from clusters.documents.keys import Document, annotations_of, bound, labels_of, status_of
from clusters.jobs import counting
from clusters.jobs.workloads import assignments_of
from clusters.kube import resources as r
from clusters.kueue.workload.placement import Placement, parse_placement
from clusters.reconcile.runtime.writer import Write

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_DIGITS: Final = 10
Values = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """A pod that may go, and the node labels of its domain."""

    pod: Document
    selector: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Numbers:
    """How the pods of a pod set are numbered.

    Attributes:
        first: Number of the first one.
        end: Number after the last one.
        count: Pods of the set.
    """

    index_label: str
    part_label: str
    parts: int
    first: int
    end: int
    count: int


def is_placed(workload: Document) -> bool:
    """Whether it is admitted with a placement."""
    return is_true(workload, "Admitted") and any(
        item.get("topologyAssignment") for item in assignments_of(workload)
    )


def is_held(pod: Document) -> bool:
    """Whether it waits to be told where it runs."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == labels.TOPOLOGY_GATE for gate in gates)


def has_ended(pod: Document) -> bool:
    """Whether it succeeded or failed: it takes no domain any more."""
    return status_of(pod).get("phase") in _ENDED


def told_node(pod: Document) -> str:
    """Name of the node that it was told to run on; empty before, and where nodes are no level."""
    selector: Mapping[str, Any] = (pod.get("spec") or {}).get("nodeSelector") or {}
    return str(selector.get(labels.HOSTNAME, ""))


def released(workload: Document, pods: Sequence[Document]) -> Iterator[Released]:
    """Pods to let go now, each with where it runs.

    Args:
        workload: Admitted with a placement.
        pods: All of its pods, in a stable order.

    Raises:
        KeyError, ValueError: the admission cannot be read.
    """
    failed = {item["name"] for item in status_of(workload).get("unhealthyNodes") or ()}
    living = [pod for pod in pods if not has_ended(pod)]
    for assignment in assignments_of(workload):
        placement = parse_placement(assignment.get("topologyAssignment"))
        if placement is None:
            continue
        own = [pod for pod in living if labels_of(pod).get(labels.POD_SET) == assignment["name"]]
        if not any(map(is_held, own)):
            continue
        numbers = _numbers(workload, assignment, own)
        found = _by_number(placement, own, numbers)
        for pod, values in _by_room(placement, own) if found is None else found:
            # It could not start on a node that failed; a replacement is being looked for.
            if placement.levels[-1] != labels.HOSTNAME or values[-1] not in failed:
                yield Released(pod, dict(zip(placement.levels, values, strict=True)))


def release_write(released: Released) -> Write:
    """Lets a pod go to its domain."""
    pod = released.pod
    gates = [
        item for item in pod["spec"]["schedulingGates"] if item["name"] != labels.TOPOLOGY_GATE
    ]
    spec = {"schedulingGates": gates or None, "nodeSelector": dict(released.selector)}
    return Write.patch("place", r.POD, pod, {**bound(pod), "spec": spec})


def _numbers(workload: Document, assignment: Document, pods: Sequence[Document]) -> _Numbers:
    """How a pod set is numbered; of a group that is placed together the leader comes first."""
    requests = {
        item["name"]: item.get("topologyRequest") or {} for item in workload["spec"]["podSets"]
    }
    request = requests.get(assignment["name"], {})
    count, first = int(assignment.get("count") or 0), 0
    group = request.get("podSetGroupName")
    if group:
        members = [
            item
            for item in assignments_of(workload)
            if requests.get(item["name"], {}).get("podSetGroupName") == group
        ]
        leader = min(members, key=lambda item: int(item.get("count") or 0))
        if leader["name"] != assignment["name"]:
            first = int(leader.get("count") or 0)
    told = annotations_of(pods[0]).get(labels.INDEX_OFFSET, "")
    first += counting.count(told, 0)
    return _Numbers(
        index_label=str(request.get("podIndexLabel") or ""),
        part_label=str(request.get("subGroupIndexLabel") or ""),
        parts=counting.count(request.get("subGroupCount"), 0),
        first=first,
        end=first + count,
        count=count,
    )


def _by_number(
    placement: Placement, pods: Sequence[Document], numbers: _Numbers
) -> list[tuple[Document, Values]] | None:
    """Held pods with the domains of their numbers; None where numbers do not tell."""
    by_number = _numbered(pods, numbers)
    if by_number is None:
        return None
    domains = [item.values for item in placement.domains for _ in range(item.count)]
    found = []
    for number, pod in by_number.items():
        if number >= len(domains):
            return None
        if is_held(pod):
            found.append((pod, domains[number]))
        elif _values_of(pod, placement) != domains[number]:
            return None
    return found


def _numbered(pods: Sequence[Document], numbers: _Numbers) -> dict[int, Document] | None:
    """Pods by number, from 0 on; None where they have none, or the same one twice."""
    if not numbers.index_label or (numbers.part_label and not numbers.parts):
        return None
    size = numbers.count // numbers.parts if numbers.part_label else numbers.count
    found: dict[int, Document] = {}
    for pod in pods:
        index = _below(labels_of(pod).get(numbers.index_label), numbers.end)
        if index is None:
            return None
        number = index - numbers.first
        if numbers.part_label:
            part = _below(labels_of(pod).get(numbers.part_label), numbers.parts)
            if part is None or index >= size:
                return None
            number += part * size
        if not 0 <= number < numbers.count or number in found:
            return None
        found[number] = pod
    return found


def _below(text: str | None, end: int) -> int | None:
    """A whole number below ``end``; None for whatever else was written."""
    if text is None or len(text) > _DIGITS or not (text.isascii() and text.isdecimal()):
        return None
    number = int(text)
    return number if number < end else None


def _by_room(placement: Placement, pods: Sequence[Document]) -> list[tuple[Document, Values]]:
    """Held pods in their order, each with the next domain that has room left."""
    taken = Counter(_values_of(pod, placement) for pod in pods if not is_held(pod))
    room = (
        item.values
        for item in placement.domains
        for _ in range(max(0, item.count - taken[item.values]))
    )
    return list(zip(filter(is_held, pods), room, strict=False))


def _values_of(pod: Document, placement: Placement) -> Values:
    """The domain that a pod was told, as a placement names it."""
    told = (pod.get("spec") or {}).get("nodeSelector") or {}
    return tuple(told.get(level, "") for level in placement.levels)
