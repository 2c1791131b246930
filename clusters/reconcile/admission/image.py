"""The kinds that the admission shift watches, and what of an object is more than a status."""

from __future__ import annotations

from clusters.documents.conditions import condition
from clusters.documents.keys import Document
from clusters.documents.keys import key_of as object_key
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.reconcile.runtime.job_cache import JobCache as Image

__all__ = ["ENGINE_KINDS", "OPTIONAL_KINDS", "OTHER_KINDS", "Image", "look_of", "object_key"]

LIMIT_RANGE = Resource("", "v1", "limitranges", "LimitRange", True)
RUNTIME_CLASS = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)

# Read by the engine, in an order that saves work on the first feed.
ENGINE_KINDS: tuple[Resource, ...] = (
    r.RESOURCE_FLAVOR, r.ADMISSION_CHECK, r.COHORT, r.CLUSTER_QUEUE, r.NAMESPACE, LIMIT_RANGE,
    RUNTIME_CLASS, r.WORKLOAD_PRIORITY_CLASS, r.LOCAL_QUEUE, r.WORKLOAD,
)  # fmt: skip
OTHER_KINDS: tuple[Resource, ...] = (r.PRIORITY_CLASS, r.JOB)
# A cluster that does not serve or show one of these is worked on without it.
OPTIONAL_KINDS = frozenset(
    {LIMIT_RANGE, RUNTIME_CLASS, r.PRIORITY_CLASS, r.WORKLOAD_PRIORITY_CLASS}
)


def look_of(resource: Resource, document: Document, *, is_gone: bool) -> tuple[object, ...]:
    """What of an object is more than a status that no shift reads; equal when only that changed."""
    metadata = document["metadata"]
    return (
        metadata["uid"],
        is_gone or metadata.get("generation", metadata["resourceVersion"]),
        metadata.get("deletionTimestamp"),
        condition(document, "Active").get("status") if resource == r.ADMISSION_CHECK else None,
    )
