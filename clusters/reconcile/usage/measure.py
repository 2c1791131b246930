"""What GPUs a worker's nodes show: ready, broken, in use. Pure; no request, no database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from budgets.units import MOST_COUNTED_GPUS
from clusters.documents.conditions import is_true
from clusters.documents.keys import identity_of
from clusters.documents.labels import HOSTNAME
from clusters.kube.resources import Document
from clusters.kueue.amounts import count_of

MOST_LABELS: Final = 60
_ENDED = ("Succeeded", "Failed")
_AMOUNTS: Final = ("capacity", "allocatable")
# Features of a node are hundreds of switches, and none of them says where it stands.
_SWITCHES: Final = ("", "true", "false")


@dataclass(frozen=True, slots=True)
class FlavorNodes:
    """Which nodes are of a flavor, and the device resource that counts there."""

    slug: str
    resource_name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Sums:
    ready: int = 0
    broken: int = 0
    used: int = 0
    nodes: int = 0

    def as_row(self) -> tuple[int, int, int, int]:
        # A node can tell any number of devices, and a pod name its node past every scheduler.
        ready, broken, used = (
            min(number, MOST_COUNTED_GPUS) for number in (self.ready, self.broken, self.used)
        )
        return ready, broken, used, self.nodes


def measure(
    nodes: Iterable[Document], pods: Iterable[Document], *, flavors: Sequence[FlavorNodes]
) -> dict[str, tuple[int, int, int, int]]:
    """Count the GPUs of each flavor.

    Args:
        nodes: Node documents.
        pods: Pod documents of all namespaces; those that ended or have no node do not count.
        flavors: In the order of preference. A node that fits several counts for the one with the
            most labels, so that no GPU is counted twice; of equals for the first.

    Returns:
        Flavor slug → (ready, broken, used GPUs, nodes), for flavors with a node. Broken are all
        GPUs of nodes that are not ready or not schedulable, and those that a ready node has but
        does not offer.
    """
    sums: dict[str, _Sums] = {}
    flavor_of: dict[str, FlavorNodes] = {}
    for node in nodes:
        flavor = _flavor_of(node, flavors)
        if flavor is None:
            continue
        flavor_of[node["metadata"]["name"]] = flavor
        found = sums.setdefault(flavor.slug, _Sums())
        status = node.get("status") or {}
        capacity = _gpus(status.get("capacity"), flavor.resource_name)
        offered = _gpus(status.get("allocatable"), flavor.resource_name)
        ready = min(capacity, offered) if _is_usable(node) else 0
        found.ready += ready
        found.broken += capacity - ready
        found.nodes += 1
    for pod in pods:
        spec = pod.get("spec") or {}
        flavor = flavor_of.get(spec.get("nodeName") or "")
        if flavor is not None and (pod.get("status") or {}).get("phase") not in _ENDED:
            sums[flavor.slug].used += pod_gpus(spec, flavor.resource_name)
    return {slug: found.as_row() for slug, found in sums.items()}


@dataclass(frozen=True, slots=True)
class Sight:
    """One node of a flavor: bounded labels, GPUs that it offers, and those that pods ask for."""

    flavor: str
    labels: Mapping[str, str]
    gpus: int
    used: int


def sights(
    nodes: Iterable[Document], pods: Iterable[Document], *, flavors: Sequence[FlavorNodes]
) -> dict[str, Sight]:
    """Node name → what it shows, of nodes of a flavor; as :func:`measure` counts. O(nodes + pods).

    Labels of nodes are strangers' words: of each node the first of them by name are kept.
    """
    flavor_of: dict[str, FlavorNodes] = {}
    offered: dict[str, int] = {}
    labels: dict[str, dict[str, str]] = {}
    used: dict[str, int] = {}
    for node in nodes:
        flavor, name = _flavor_of(node, flavors), node["metadata"]["name"]
        if flavor is None:
            continue
        status = node.get("status") or {}
        flavor_of[name] = flavor
        amounts = (_gpus(status.get(key), flavor.resource_name) for key in _AMOUNTS)
        offered[name] = min(MOST_COUNTED_GPUS, *amounts) if _is_usable(node) else 0
        shown = node["metadata"].get("labels") or {}
        told = (key for key, value in shown.items() if value not in _SWITCHES)
        kept = sorted(told, key=lambda key: (key != HOSTNAME, key))[:MOST_LABELS]
        labels[name] = {key: str(shown[key]) for key in kept}
    for pod in pods:
        spec = pod.get("spec") or {}
        name = spec.get("nodeName") or ""
        if name in flavor_of and (pod.get("status") or {}).get("phase") not in _ENDED:
            gpus = pod_gpus(spec, flavor_of[name].resource_name)
            used[name] = min(MOST_COUNTED_GPUS, used.get(name, 0) + gpus)
    return {
        name: Sight(flavor.slug, labels[name], offered[name], used.get(name, 0))
        for name, flavor in flavor_of.items()
    }


def with_used(
    rows: Mapping[str, tuple[int, int, int, int]], used: Mapping[str, int]
) -> dict[str, tuple[int, int, int, int]]:
    """The same rows with what is known to be in use from elsewhere."""
    return {
        slug: (ready, broken, used.get(slug, 0), nodes)
        for slug, (ready, broken, _, nodes) in rows.items()
    }


def pod_gpus(spec: Mapping[str, Any], resource: str) -> int:
    """Devices that a pod takes: its containers together, or its largest init container."""
    main = sum(_requested(row, resource) for row in spec.get("containers") or [])
    largest = beside = 0
    for row in spec.get("initContainers") or []:
        gpus = _requested(row, resource)
        if row.get("restartPolicy") == "Always":
            beside += gpus
            largest = max(largest, beside)
        else:
            largest = max(largest, beside + gpus)
    return max(main + beside, largest)


def node_facts(node: Document) -> Document:
    """What of a node is measured, under its identity; a node lists all its images besides."""
    status = node.get("status") or {}
    return {
        "metadata": {**identity_of(node), "labels": node["metadata"].get("labels") or {}},
        "spec": {"unschedulable": (node.get("spec") or {}).get("unschedulable", False)},
        "status": {name: status.get(name) for name in ("capacity", "allocatable", "conditions")},
    }


def pod_facts(pod: Document) -> Document:
    """What of a pod is measured, under its identity."""
    spec = pod.get("spec") or {}
    return {
        "metadata": identity_of(pod),
        "spec": {
            "nodeName": spec.get("nodeName"),
            **{
                kind: [
                    {name: row.get(name) for name in ("resources", "restartPolicy")}
                    for row in spec.get(kind) or ()
                ]
                for kind in ("containers", "initContainers")
            },
        },
        "status": {"phase": (pod.get("status") or {}).get("phase")},
    }


def _flavor_of(node: Document, flavors: Sequence[FlavorNodes]) -> FlavorNodes | None:
    labels = node["metadata"].get("labels") or {}
    capacity = (node.get("status") or {}).get("capacity") or {}
    fitting = [
        flavor
        for flavor in flavors
        if flavor.resource_name in capacity
        and all(labels.get(key) == value for key, value in flavor.node_labels.items())
    ]
    return max(fitting, key=lambda flavor: len(flavor.node_labels), default=None)


def _is_usable(node: Document) -> bool:
    if (node.get("spec") or {}).get("unschedulable"):
        return False
    return is_true(node, "Ready")


def _requested(container: Mapping[str, Any], resource: str) -> int:
    resources = container.get("resources") or {}
    # Devices cannot be overcommitted: where only a limit stands, it is the request.
    return _gpus({**(resources.get("limits") or {}), **(resources.get("requests") or {})}, resource)


def _gpus(amounts: Mapping[str, Any] | None, resource: str) -> int:
    """Devices of a resource; none where what stands there is no quantity."""
    try:
        return count_of(str((amounts or {}).get(resource, "0")), resource)
    except ValueError:
        return 0
