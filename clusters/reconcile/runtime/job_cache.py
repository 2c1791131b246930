"""A cache that knows which job belongs to which Workload."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from clusters.documents.keys import Document, annotations_of, owner_uids, uid_of
from clusters.documents.labels import SLICE_OF
from clusters.documents.resources import Resource
from clusters.jobs.table import seen_from, workload_keys
from clusters.kube import resources as r
from clusters.reconcile.runtime.cache import Cache, Index

_JOBS, _OWNERS, _UID, _SLICE = "jobs", "owners", "uid", "slice"
_WORKLOADS: Final = frozenset({r.WORKLOAD})


class JobCache(Cache):
    """Workloads and jobs, and all else, of one cluster.

    Args:
        job_kinds: Kinds whose objects a Workload can stand for.
    """

    def __init__(self, job_kinds: Collection[Resource] = (r.JOB,)) -> None:
        self._job_kinds = frozenset(job_kinds)
        super().__init__(
            (
                Index(_JOBS, self._job_kinds, workload_keys),
                Index(_OWNERS, _WORKLOADS, owner_uids),
                Index(_UID, _WORKLOADS, lambda workload: (uid_of(workload),)),
                Index(_SLICE, _WORKLOADS, _replaced_by),
            )
        )

    def workload_by_uid(self, uid: str) -> dict[str, Any] | None:
        """The Workload of a UID. O(1)."""
        return next(iter(self.found(_UID, uid)), None)

    def successor_of(self, workload: str) -> dict[str, Any] | None:
        """The Workload that came last to replace another, by that one's key. O(1)."""
        return self.get(r.WORKLOAD, self.newest(_SLICE, workload))

    def jobs_for(self, workload: str) -> list[dict[str, Any]]:
        """Jobs that name a Workload, oldest first, as it means them."""
        found = [seen_from(job, workload) for job in self.found(_JOBS, workload)]
        return sorted(found, key=lambda job: (job["metadata"]["creationTimestamp"], uid_of(job)))

    def named_by(self, resource: Resource, key: str) -> tuple[str, ...]:
        """Keys of the Workloads that a job of the cache has, or will have. O(1)."""
        return self._values[resource, key][0]

    def workloads_of(self, job: Document) -> tuple[str, ...]:
        """Keys of the Workloads that a job has, or will have, and of the one that it owns."""
        owned = self.newest(_OWNERS, uid_of(job))
        keys = workload_keys(job)
        # One that it owns under another name than its own is the only one.
        return keys if not owned or owned in keys else (owned,)

    def siblings_of(self, job: Document) -> tuple[str, ...]:
        """Keys of the Workloads that name a job as an owner, whether it still wants them or not."""
        return tuple(key for _, key in self.places(_OWNERS, uid_of(job)))

    def owner_of(self, workload: Document) -> dict[str, Any] | None:
        """The job that is an owner of a Workload."""
        namespace = workload["metadata"].get("namespace")
        for owner in workload["metadata"].get("ownerReferences") or ():
            for kind in self._job_kinds:
                if (kind.api_version, kind.kind) == (owner.get("apiVersion"), owner.get("kind")):
                    found = self.get(kind, f"{namespace}/{owner.get('name')}")
                    if found is not None and uid_of(found) == owner.get("uid"):
                        return found
        return None

    def keys_to_plan(self) -> Iterable[str]:
        """Every Workload that exists or is asked for."""
        return {*self.of(r.WORKLOAD), *self.values(_JOBS)}


def _replaced_by(workload: Document) -> Iterable[str]:
    replaced = annotations_of(workload).get(SLICE_OF)
    return (replaced,) if replaced else ()
