"""LeaderWorkerSets: one object, one Workload for each replica, all on one worker. Pure.

The object cannot be suspended and nobody else can manage it: its pods wait behind the admission
gate that their templates carry, on the manager for ever. Nothing of a copy's status comes back,
since the manager's own controller would write over it. The number of replicas follows to the copy.

Source: Kueue pkg/controller/jobs/leaderworkerset, v0.19.2; spec dispatch 2.1, 2.5, 4.
Deviation: templates without the gate are refused, for no webhook puts it in.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, labels_of
from clusters.documents.resources import Resource
from clusters.jobs import counting, remote
from clusters.jobs.kind import JobKind, Priority
from clusters.jobs.workloads import (
    POD_SET_NAME,
    clean_template,
    is_gated,
    owner_reference,
    replica_workload_name,
)

REPLICA: Final = "replica"
"""Field of a view: which replica of the object is meant. No API server knows it."""
REPLICAS_MOST: Final = 1_000
"""Each replica has a Workload; an object that asks for more than these gets none."""


def replicas_of(job: Document) -> int:
    """How many it has, as far as they are followed."""
    return min(counting.count(job["spec"].get("replicas")), REPLICAS_MOST)


def replica_by_name(job: Document) -> Mapping[str, int]:
    """Its replicas by the name of their Workload; of a copy as the manager's object has them."""
    metadata = job["metadata"]
    uid = metadata["uid"]
    if labels_of(job).get(labels.ORIGIN):
        uid = annotations_of(job).get(labels.ORIGIN_UID, uid)
    return _replica_by_name(metadata["name"], uid, replicas_of(job))


@lru_cache(maxsize=32)  # each of a thousand Workloads asks for all
def _replica_by_name(name: str, uid: str, replicas: int) -> Mapping[str, int]:
    return {replica_workload_name(name, uid=uid, replica=index): index for index in range(replicas)}


def ungated(job: Document) -> list[str]:
    """Templates whose pods would run at once."""
    return [
        f"leaderWorkerTemplate.{'leader' if role == 'leader' else 'worker'}Template"
        for role, template in _roles(job["spec"])
        if not is_gated(template)
    ]


class LeaderWorkerSets(JobKind):
    """Sets of leaders and workers; where it says ``job`` and queues there is a view."""

    resource = Resource(labels.SET_GROUP, "v1", "leaderworkersets", labels.SET_KIND, True)
    integration = "leaderworkerset.x-k8s.io/leaderworkerset"
    words = "the portal, one for each replica"
    is_adopted = False
    is_shared = True
    is_silent = True
    is_followed = True
    tells_end = False
    tells_readiness = False
    takes_status = False
    answers_for_jobs = False

    def workload_names(self, job: Document) -> Sequence[str]:
        return tuple(replica_by_name(job))

    def workload_name_of(self, job: Document) -> str:
        return tuple(replica_by_name(job))[job[REPLICA]]

    def view_of(self, job: dict[str, Any], workload: str) -> dict[str, Any]:
        replica = replica_by_name(job).get(workload)
        return job if replica is None else {**job, REPLICA: replica}

    def speaks(self, job: Document) -> bool:
        return bool(job.get(REPLICA, 0) == 0)

    def counts(self, job: Document) -> Iterator[tuple[str, Any]]:
        yield from super().counts(job)
        yield "spec.leaderWorkerTemplate.size", _template_of(job["spec"]).get("size")

    def fault(self, job: Document) -> str:
        replicas = [("spec.replicas", job["spec"].get("replicas"))]
        return super().fault(job) or counting.fault_of(replicas, most=REPLICAS_MOST)

    def is_clear(self, job: Document) -> bool:
        """Only replicas that exist get a Workload, and none where pods would run without one."""
        return REPLICA in job and not ungated(job) and labels.ORIGIN not in labels_of(job)

    def pod_sets(self, job: Document) -> list[dict[str, Any]]:
        """Leader and workers, or all alike."""
        size = counting.count(_template_of(job["spec"]).get("size")) or 1
        roles = _roles(job["spec"])
        counts = {"leader": 1, "worker": size - 1, POD_SET_NAME: size}
        return [_pod_set(role, counts[role], template) for role, template in roles]

    def is_in_sync(self, job: Document, workload: Document) -> bool:
        """Whether it still has this replica; its size and queue cannot change while it runs."""
        return not self.is_surplus(job, workload)

    def is_surplus(self, job: Document, workload: Document) -> bool:
        """Whether a Workload is one of a replica that is gone."""
        return workload["metadata"]["name"] not in replica_by_name(job)

    def workload_for(
        self, job: Document, *, priority: Priority, is_placed: bool = False
    ) -> dict[str, Any]:
        """The Workload of one replica."""
        made = super().workload_for(job, priority=priority, is_placed=is_placed)
        made["metadata"] |= {
            "annotations": {
                labels.IS_GROUP_WORKLOAD: "true",
                labels.OWNER_GVK: f"{job['apiVersion']}, Kind={self.resource.kind}",
                labels.OWNER_NAME: job["metadata"]["name"],
                labels.COMPONENT_INDEX: str(job[REPLICA]),
            },
            "ownerReferences": [owner_reference(job, controls=False)],
        }
        return made

    def is_started_here(self, *, is_dispatched: bool) -> bool:
        """The object itself is never changed: its pods start on workers, one by one."""
        return False

    def refusal(self, job: Document) -> str:
        free = ungated(job)
        if not free:
            return ""
        return (
            f"The owner is not managed by Kueue: {free[0]} has no scheduling gate "
            f'"{labels.ADMISSION_GATE}" and its pods would run on the manager'
        )

    def copy_of(
        self, job: Document, workload: Document, *, marks: remote.CopyMarks
    ) -> dict[str, Any]:
        metadata = remote.copy_metadata(job, workload, marks=marks)
        del metadata["annotations"][labels.PREBUILT]
        metadata["annotations"][labels.ORIGIN_UID] = job["metadata"]["uid"]
        spec = copy.deepcopy(dict(job["spec"]))
        for role, template in _roles(spec):
            # By these a worker where the portal decides finds the pods of each replica.
            marked = template.setdefault("metadata", {})
            marked.setdefault("labels", {})[labels.QUEUE] = metadata["labels"][labels.QUEUE]
            uid = job["metadata"]["uid"]
            marked.setdefault("annotations", {}).update(
                {labels.ORIGIN_UID: uid, labels.POD_ROLE: role}
            )
        return {"metadata": metadata, "spec": spec}

    def follow_patch(self, local: Document, copied: Document) -> dict[str, Any] | None:
        if replicas_of(local) == replicas_of(copied) or self.fault(local):
            return None
        return remote.guarded(copied, {"replicas": replicas_of(local)})


def _roles(spec: Document) -> list[tuple[str, dict[str, Any]]]:
    """Pod set names and templates of a replica: leader and workers, or all alike."""
    template = _template_of(spec)
    leader, worker = template.get("leaderTemplate"), template.get("workerTemplate") or {}
    if leader is None:
        return [(POD_SET_NAME, worker)]
    return [("leader", leader), ("worker", worker)]


def _template_of(spec: Document) -> dict[str, Any]:
    return spec.get("leaderWorkerTemplate") or {}


def _pod_set(name: str, count: int, template: Document) -> dict[str, Any]:
    """Without what the kind's own controller puts on pods of one replica."""
    cleaned = clean_template(template)
    metadata = cleaned.get("metadata") or {}
    for field in ("labels", "annotations"):
        kept = {
            key: value
            for key, value in (metadata.get(field) or {}).items()
            if not key.startswith(labels.SET_PREFIX) or key == labels.SET_NAME
        }
        if field in metadata:
            metadata[field] = kept
    return {"name": name, "count": count, "template": cleaned}
