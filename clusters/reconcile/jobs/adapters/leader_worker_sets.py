"""LeaderWorkerSets: one object, one Workload for each replica, all on one worker. Pure.

The object cannot be suspended and nobody else can manage it: its pods wait behind the admission
gate that their templates carry, on the manager for ever. Nothing of a copy's status comes back,
since the manager's own controller would write over it. The number of replicas follows to the copy.

Source: Kueue pkg/controller/jobs/leaderworkerset, v0.19.2; spec dispatch 2.1, 2.5, 4.
Deviation: templates without the gate are refused, for no webhook puts it in.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, labels_of
from clusters.kube.client import EVERYTHING
from clusters.kube.resources import Resource
from clusters.reconcile.jobs import batch, remote
from clusters.reconcile.jobs.batch import Outcome, Priority
from clusters.reconcile.jobs.workload_names import replica_workload_name

KIND: Final = labels.SET_KIND
GROUP: Final = labels.SET_GROUP
REPLICA: Final = "replica"
"""Field of a view: which replica of the object is meant. No API server knows it."""


def is_set(job: Document) -> bool:
    return job.get("kind") == KIND and str(job.get("apiVersion", "")).startswith(f"{GROUP}/")


def replicas_of(job: Document) -> int:
    found = job["spec"].get("replicas")
    return 1 if found is None else int(found)


def workload_names(job: Document) -> tuple[str, ...]:
    """Names of its Workloads, by replica; of a copy as the manager's object has them."""
    metadata = job["metadata"]
    uid = metadata["uid"]
    if labels_of(job).get(labels.ORIGIN):
        uid = annotations_of(job).get(labels.ORIGIN_UID, uid)
    return tuple(
        replica_workload_name(metadata["name"], uid=uid, replica=index)
        for index in range(replicas_of(job))
    )


def view_of(job: Document, name: str) -> dict[str, Any]:
    """The object as the Workload of this name means it."""
    names = workload_names(job)
    return {**job, **({REPLICA: names.index(name)} if name in names else {})}


def ungated(job: Document) -> list[str]:
    """Templates whose pods would run at once."""
    return [
        f"leaderWorkerTemplate.{'leader' if role == 'leader' else 'worker'}Template"
        for role, template in _roles(job["spec"])
        if not _is_gated(template)
    ]


class SetQueue:
    """How LeaderWorkerSets queue; every argument ``job`` is a view."""

    def is_clear(self, job: Document) -> bool:
        """Only replicas that exist get a Workload, and none where pods would run without one."""
        return REPLICA in job and not ungated(job) and labels.ORIGIN not in labels_of(job)

    def pod_sets(self, job: Document) -> list[dict[str, Any]]:
        """Leader and workers, or all alike."""
        size = int(job["spec"]["leaderWorkerTemplate"].get("size") or 1)
        roles = _roles(job["spec"])
        counts = {"leader": 1, "worker": size - 1, batch.POD_SET_NAME: size}
        return [_pod_set(role, counts[role], template) for role, template in roles]

    def is_suspended(self, job: Document) -> bool:
        return True

    def is_stopped(self, job: Document) -> bool:
        return True

    def outcome_of(self, job: Document) -> Outcome | None:
        """It serves until it is deleted."""
        return None

    def are_pods_ready(self, job: Document) -> bool:
        return False

    def is_in_sync(self, job: Document, workload: Document) -> bool:
        """Whether it still has this replica; its size and queue cannot change while it runs."""
        return not self.is_surplus(job, workload)

    def is_surplus(self, job: Document, workload: Document) -> bool:
        """Whether a Workload is one of a replica that is gone."""
        return workload["metadata"]["name"] not in workload_names(job)

    def workload_for(self, job: Document, *, priority: Priority) -> dict[str, Any]:
        """The Workload of one replica."""
        made = batch.workload_around(job, self.pod_sets(job), priority=priority)
        metadata = job["metadata"]
        made["metadata"] |= {
            "name": workload_names(job)[job[REPLICA]],
            "annotations": {
                labels.IS_GROUP_WORKLOAD: "true",
                labels.OWNER_GVK: f"{job['apiVersion']}, Kind={KIND}",
                labels.OWNER_NAME: metadata["name"],
                labels.COMPONENT_INDEX: str(job[REPLICA]),
            },
            "ownerReferences": [
                {
                    "apiVersion": job["apiVersion"], "kind": KIND, "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        }  # fmt: skip
        return made

    def missing_owners(self, job: Document, workload: Document) -> list[dict[str, Any]]:
        return []

    def start_patch(
        self, job: Document, workload: Document, *, flavors: Mapping[str, Document]
    ) -> dict[str, Any]:
        """Never asked for: its pods start on workers, one by one."""
        raise NotImplementedError

    def suspend_patch(self, job: Document) -> None:
        return None

    def restore_patch(self, job: Document, workload: Document) -> None:
        return None


class SetCopies:
    """LeaderWorkerSets in dispatch."""

    resource = Resource(GROUP, "v1", "leaderworkersets", KIND, True)
    is_required = False
    is_adopted = False
    is_shared = True
    is_silent = True
    selection = EVERYTHING

    def refusal(self, job: Document) -> str:
        free = ungated(job)
        if not free:
            return ""
        return (
            f"The owner is not managed by Kueue: {free[0]} has no scheduling gate "
            f'"{labels.ADMISSION_GATE}" and its pods would run on the manager'
        )

    def is_active(self, job: Document) -> bool:
        """Its status tells of the manager's pods, not of the copy's."""
        return True

    def members(self, job: Document) -> Sequence[Document]:
        return (job,)

    def body(self, job: Document, workload: Document, *, marks: remote.CopyMarks) -> dict[str, Any]:
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

    def pod_sets(self, workload: Document, answer: Document) -> Sequence[dict[str, Any]]:
        return [dict(item) for item in workload["spec"]["podSets"]]

    def status_patch(self, local: Document, copied: Document, *, now: datetime) -> None:
        return None

    def follow_patch(self, local: Document, copied: Document) -> dict[str, Any] | None:
        if replicas_of(local) == replicas_of(copied):
            return None
        return remote.guarded(copied, {"replicas": replicas_of(local)})

    def inactive_patch(self, local: Document, *, now: datetime) -> None:
        return None


def _roles(spec: Document) -> list[tuple[str, dict[str, Any]]]:
    """Pod set names and templates of a replica: leader and workers, or all alike."""
    template = spec["leaderWorkerTemplate"]
    leader, worker = template.get("leaderTemplate"), template["workerTemplate"]
    if leader is None:
        return [(batch.POD_SET_NAME, worker)]
    return [("leader", leader), ("worker", worker)]


def _is_gated(template: Document) -> bool:
    gates = (template.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == labels.ADMISSION_GATE for gate in gates)


def _pod_set(name: str, count: int, template: Document) -> dict[str, Any]:
    """Without what the kind's own controller puts on pods of one replica."""
    cleaned = batch.clean_template(template)
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
