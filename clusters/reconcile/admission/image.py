"""What the admission shift knows of its cluster, and which Job belongs to which Workload.

One thread owns it. Answers to own writes and watch events meet here in any order; the newer
resourceVersion stands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from clusters.documents.conditions import condition
from clusters.documents.keys import Document, annotations_of
from clusters.documents.labels import SLICE_OF
from clusters.jobs.table import seen_from, workload_keys
from clusters.kube import resources as r
from clusters.kube.resources import Resource

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


def object_key(document: Document) -> str:
    """``namespace/name``, or the name of a cluster-scoped object."""
    metadata = document["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def look_of(resource: Resource, document: Document, *, is_gone: bool) -> tuple[object, ...]:
    """What of an object is more than a status that no shift reads; equal when only that changed."""
    metadata = document["metadata"]
    return (
        metadata["uid"],
        is_gone or metadata.get("generation", metadata["resourceVersion"]),
        metadata.get("deletionTimestamp"),
        condition(document, "Active").get("status") if resource == r.ADMISSION_CHECK else None,
    )


class Image:
    """Documents by kind and key.

    Args:
        job_kinds: Kinds whose objects a Workload can stand for.

    Attributes:
        successors: Key of the Workload that replaces another, by that one's key.
    """

    def __init__(self, job_kinds: Collection[Resource] = (r.JOB,)) -> None:
        self._job_kinds = frozenset(job_kinds)
        self._documents: dict[Resource, dict[str, dict[str, Any]]] = defaultdict(dict)
        self._jobs_of: dict[str, set[tuple[Resource, str]]] = defaultdict(set)
        self._workload_of: dict[str, str] = {}
        self._key_of: dict[str, str] = {}
        self._gone: dict[str, int] = {}
        self.successors: dict[str, str] = {}

    def of(self, resource: Resource) -> dict[str, dict[str, Any]]:
        """All documents of a kind by key; not to be changed."""
        return self._documents[resource]

    def get(self, resource: Resource, key: str) -> dict[str, Any] | None:
        return self._documents[resource].get(key)

    def put(self, resource: Resource, document: dict[str, Any]) -> bool:
        """Takes in a document; False when a newer state of the object is known."""
        key = object_key(document)
        known = self.get(resource, key)
        version = _version(document)
        if known is not None and _uid(known) == _uid(document) and version <= _version(known):
            return False
        if version <= self._gone.get(_uid(document), -1):
            return False
        if resource in self._job_kinds:
            self._forget_job(resource, key)
            for owned in workload_keys(document):
                self._jobs_of[owned].add((resource, key))
        elif resource == r.WORKLOAD:
            self._workload_of.update(dict.fromkeys(_owner_uids(document), key))
            if known is not None and _uid(known) != _uid(document):
                self._key_of.pop(_uid(known), None)
            self._key_of[_uid(document)] = key
            before = annotations_of(document).get(SLICE_OF)
            if before:
                self.successors[before] = key
        self._documents[resource][key] = document
        return True

    def drop(self, resource: Resource, document: Document) -> bool:
        """Forgets an object; False when another one has taken the name."""
        key = object_key(document)
        known = self.get(resource, key)
        if known is None or _uid(known) != _uid(document):
            return False
        if resource in self._job_kinds:
            self._forget_job(resource, key)
        for uid in _owner_uids(known) if resource == r.WORKLOAD else ():
            self._workload_of.pop(uid, None)
        if resource == r.WORKLOAD:
            self._key_of.pop(_uid(known), None)
            before = annotations_of(known).get(SLICE_OF, "")
            if self.successors.get(before) == key:
                del self.successors[before]
        del self._documents[resource][key]
        # An answer to a write that was sent before may still come in.
        self._gone[_uid(document)] = max(_version(document), _version(known))
        if len(self._gone) > 10_000:
            for uid in list(self._gone)[:5_000]:
                del self._gone[uid]
        return True

    def workload_by_uid(self, uid: str) -> dict[str, Any] | None:
        """The Workload of a UID. O(1)."""
        return self.get(r.WORKLOAD, self._key_of.get(uid, ""))

    def jobs_for(self, workload: str) -> list[dict[str, Any]]:
        """Jobs that name a Workload, oldest first, as it means them."""
        known = self._jobs_of.get(workload, ())
        found = [seen_from(self.of(kind)[key], workload) for kind, key in known]
        return sorted(found, key=lambda job: (job["metadata"]["creationTimestamp"], _uid(job)))

    def workloads_of(self, job: Document) -> tuple[str, ...]:
        """Keys of the Workloads that a job has, or will have, and of the one that it owns."""
        owned = self._workload_of.get(_uid(job))
        keys = workload_keys(job)
        # One that it owns under another name than its own is the only one.
        return keys if owned is None or owned in keys else (owned,)

    def siblings_of(self, job: Document) -> tuple[str, ...]:
        """Keys of the Workloads that name a job as an owner, whether it still wants them or not."""
        uid = _uid(job)
        return tuple(key for key, w in self.of(r.WORKLOAD).items() if uid in _owner_uids(w))

    def owner_of(self, workload: Document) -> dict[str, Any] | None:
        """The job that is an owner of a Workload."""
        namespace = workload["metadata"].get("namespace")
        for owner in workload["metadata"].get("ownerReferences") or ():
            for kind in self._job_kinds:
                if (kind.api_version, kind.kind) == (owner.get("apiVersion"), owner.get("kind")):
                    found = self.get(kind, f"{namespace}/{owner.get('name')}")
                    if found is not None and _uid(found) == owner.get("uid"):
                        return found
        return None

    def keys_to_plan(self) -> Iterable[str]:
        """Every Workload that exists or is asked for."""
        return {*self.of(r.WORKLOAD), *(key for key, jobs in self._jobs_of.items() if jobs)}

    def _forget_job(self, kind: Resource, key: str) -> None:
        known = self.of(kind).get(key)
        if known is None:
            return
        for owned in workload_keys(known):
            self._jobs_of[owned].discard((kind, key))
            if not self._jobs_of[owned]:
                del self._jobs_of[owned]


def _owner_uids(workload: Document) -> list[str]:
    owners = workload["metadata"].get("ownerReferences") or ()
    return [str(owner["uid"]) for owner in owners if owner.get("uid")]


def _version(document: Document) -> int:
    # Whole numbers that grow, on every API server that the portal supports.
    text = str(document["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def _uid(document: Document) -> str:
    return str(document["metadata"].get("uid", ""))
