"""What an engine that follows a cluster reads of it, and which events tell it anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from clusters.documents.conditions import condition
from clusters.documents.keys import Document, key_of, without_writers
from clusters.kube import resources as r
from clusters.kube.client import EVERYTHING, Selection
from clusters.kube.resources import Resource
from clusters.kueue.configuration import Configuration
from clusters.kueue.workload.devices import template_facts

LIMIT_RANGE: Final = Resource("", "v1", "limitranges", "LimitRange", True)
RUNTIME_CLASS: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)

# In an order that saves work on the first feed: quota before queues before workloads.
ENGINE_KINDS: Final[tuple[Resource, ...]] = (
    r.RESOURCE_FLAVOR, r.ADMISSION_CHECK, r.COHORT, r.CLUSTER_QUEUE, r.NAMESPACE, LIMIT_RANGE,
    RUNTIME_CLASS, r.WORKLOAD_PRIORITY_CLASS, r.LOCAL_QUEUE, r.WORKLOAD,
)  # fmt: skip
# A cluster that does not serve or show one of these is worked on without it.
OPTIONAL_KINDS: Final = frozenset(
    {
        LIMIT_RANGE, RUNTIME_CLASS, r.PRIORITY_CLASS, r.WORKLOAD_PRIORITY_CLASS,
        r.DEVICE_CLASS, r.RESOURCE_CLAIM_TEMPLATE,
    }
)  # fmt: skip

# What placement reads besides, where a flavor has a topology.
PLACEMENT_KINDS: Final[tuple[tuple[Resource, Selection], ...]] = (
    (r.TOPOLOGY, EVERYTHING),
    (r.NODE, EVERYTHING),
    (r.POD, Selection(fields="status.phase!=Succeeded,status.phase!=Failed")),
)


_KEPT: Final[Mapping[Resource, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    r.RESOURCE_CLAIM_TEMPLATE: template_facts
}


def engine_kinds(configuration: Configuration) -> tuple[Resource, ...]:
    """What an engine reads under a Configuration, in the order of ``ENGINE_KINDS``.

    What claims of devices ask for is read where they count, and nowhere else.
    """
    if not configuration.counts_claims:
        return ENGINE_KINDS
    named = (r.DEVICE_CLASS,) if configuration.counts_named_devices else ()
    return (*named, r.RESOURCE_CLAIM_TEMPLATE, *ENGINE_KINDS)


def kept_of(resource: Resource) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What of an object of some kind is kept."""
    return _KEPT.get(resource, without_writers)


def by_quota_alone(document: Mapping[str, Any] | None) -> Configuration:
    """A Kueue Configuration as one reads it who does not know the nodes: topology is left out."""
    found = Configuration.from_document(document)
    return replace(found, gates=replace(found.gates, topology_aware_scheduling=False))


class Looks:
    """What objects last looked like, but for statuses that no engine reads."""

    def __init__(self) -> None:
        self._looks: dict[tuple[Resource, str], tuple[object, ...]] = {}

    def is_new(self, resource: Resource, document: Document, *, is_gone: bool) -> bool:
        """Whether more of an object changed than a status that no engine reads."""
        metadata = document["metadata"]
        look = (
            metadata["uid"],
            is_gone or metadata.get("generation", metadata["resourceVersion"]),
            metadata.get("deletionTimestamp"),
            condition(document, "Active").get("status") if resource == r.ADMISSION_CHECK else None,
        )
        place = resource, key_of(document)
        before = self._looks.get(place)
        self._looks[place] = look
        return before != look

    def forget(self, resource: Resource, document: Document) -> None:
        """What was shown last could not be taken in: shown again, it is news."""
        self._looks.pop((resource, key_of(document)), None)
