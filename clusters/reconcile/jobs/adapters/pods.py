"""Pods that queue, alone or as a group: what all members of a Workload say together. Pure.

A pod takes part when it carries the queue label and either still has the admission gate or was let
go through it by a start. A pod with the label alone runs already and is left alone.

Source: Kueue pkg/controller/jobs/pod, v0.19.2; spec admission 5.3, dispatch 4.
Deviations: no webhook puts the gate on, so its owner does; no finalizer is put on pods; pods beyond
a group's number are left gated instead of being deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, labels_of
from clusters.reconcile.jobs import batch, running
from clusters.reconcile.jobs.batch import Outcome, Priority

MEMBERS: Final = "members"
"""Field of a view: the pods that it stands for. No API server knows it."""
GROUPS_MOST: Final = 18
_ENDED: Final = ("Succeeded", "Failed")
# What of a pod decides which pods are alike; images are not part of it.
_SHAPE: Final = (
    "nodeSelector", "affinity", "tolerations", "runtimeClassName", "priority",
    "topologySpreadConstraints", "overhead", "resourceClaims", "resources",
)  # fmt: skip


def is_pod(job: Document) -> bool:
    return job.get("kind") == "Pod" and job.get("apiVersion") == "v1"


def view_of(pods: Iterable[Document]) -> dict[str, Any] | None:
    """One document for the pods of a Workload: the oldest, with all of them as members.

    Args:
        pods: That name the Workload; those that do not take part are left out, and so are active
            ones beyond a group's number, youngest first.

    Returns:
        The view; None when no pod takes part.
    """
    found = sorted((pod for pod in pods if takes_part(pod)), key=_age)
    if not found:
        return None
    total = total_of(found[0]) if group_of(found[0]) else 1
    active = [pod for pod in found if not is_over(pod)][: total or None]
    kept = [pod for pod in found if is_over(pod) or pod in active]
    return {**found[0], MEMBERS: tuple(kept)}


def members_of(job: Document) -> tuple[Document, ...]:
    """The pods of a view; a pod by itself is its own only member."""
    return tuple(job.get(MEMBERS) or (job,))


def takes_part(pod: Document) -> bool:
    if labels.SET_NAME in labels_of(pod) and labels.ORIGIN_UID not in annotations_of(pod):
        return False  # of a LeaderWorkerSet on the manager: a copy of the whole runs elsewhere
    return is_gated(pod) or labels_of(pod).get(labels.MANAGED) == "true"


def is_gated(pod: Document) -> bool:
    """Whether the admission gate still holds it back."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == labels.ADMISSION_GATE for gate in gates)


def phase_of(pod: Document) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def is_ended(pod: Document) -> bool:
    """Whether it succeeded or failed."""
    return phase_of(pod) in _ENDED


def is_over(pod: Document) -> bool:
    """Whether it has ended or is being deleted."""
    return is_ended(pod) or bool(pod["metadata"].get("deletionTimestamp"))


def is_scheduled(pod: Document) -> bool:
    listed = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "PodScheduled" and c.get("status") == "True" for c in listed)


def is_busy(pod: Document) -> bool:
    """Whether it runs or may begin to, here or, as its status tells, on a worker."""
    if is_ended(pod):
        return False
    return phase_of(pod) == "Running" or is_scheduled(pod) or not is_gated(pod)


def group_of(pod: Document) -> str:
    """Name of its group, which is that of the group's Workload; empty for a pod by itself."""
    return batch.pod_group_of(pod)


def total_of(pod: Document) -> int:
    """How many pods its group has; 0 when it does not say."""
    text = annotations_of(pod).get(labels.POD_GROUP_TOTAL, "")
    return int(text) if text.isdecimal() else 0


def role_of(pod: Document) -> str:
    """Name of the pod set of pods like this one; kept as an annotation once it was started."""
    told = annotations_of(pod).get(labels.POD_ROLE)
    if told:
        return told
    spec = pod["spec"]
    shape: dict[str, Any] = {name: spec.get(name) for name in _SHAPE}
    for field in ("initContainers", "containers"):
        shape[field] = [
            [(item.get("resources") or {}).get("requests"), item.get("ports")]
            for item in spec.get(field) or ()
        ]
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:8]


class PodQueue:
    """How pods queue; every argument ``job`` is a view or a pod."""

    def is_clear(self, job: Document) -> bool:
        """Whether all pods of a group are there, or one speaks for all."""
        if not group_of(job):
            return True
        total, here = total_of(job), [pod for pod in members_of(job) if _counts(pod)]
        if not total or not here:
            return False
        is_whole = annotations_of(job).get(labels.POD_GROUP_FAST) == "true" or len(here) >= total
        return is_whole and len({role_of(pod) for pod in here}) <= GROUPS_MOST

    def pod_sets(self, job: Document) -> list[dict[str, Any]]:
        """One set for a pod by itself; of a group one for each kind of pod, by its role."""
        if not group_of(job):
            return [_pod_set(batch.POD_SET_NAME, 1, members_of(job)[0])]
        counted = [pod for pod in members_of(job) if _counts(pod)]
        if annotations_of(job).get(labels.POD_GROUP_FAST) == "true":
            return [_pod_set(role_of(pod), total_of(job), pod) for pod in counted[:1]]
        firsts = {role_of(pod): pod for pod in reversed(counted)}
        counts = Counter(map(role_of, counted))
        return [_pod_set(role, counts[role], firsts[role]) for role in sorted(firsts)]

    def is_suspended(self, job: Document) -> bool:
        """Whether some pod waits to be let go."""
        return any(is_gated(pod) and not is_over(pod) for pod in members_of(job))

    def is_stopped(self, job: Document) -> bool:
        """Whether nothing of it is left to be stopped."""
        return all(is_gated(pod) or is_over(pod) for pod in members_of(job))

    def is_active(self, job: Document) -> bool:
        return any(map(is_busy, members_of(job)))

    def outcome_of(self, job: Document) -> Outcome | None:
        """How it ended: a group once all have succeeded, or none runs and none may be replaced."""
        pods = members_of(job)
        if not group_of(job):
            phase = phase_of(pods[0])
            message = str((pods[0].get("status") or {}).get("message") or f"Pod {phase}")
            return Outcome(phase, message) if phase in _ENDED else None
        total = total_of(job)
        if not total:
            return None  # it serves until it is deleted
        good = sum(phase_of(pod) == "Succeeded" for pod in pods)
        is_final = any(annotations_of(pod).get(labels.POD_RETRIABLE) == "false" for pod in pods)
        if good < total and not (is_final and all(map(is_ended, pods))):
            return None
        return Outcome("Succeeded", f"Pods succeeded: {good}/{total}.")

    def are_pods_ready(self, job: Document) -> bool:
        return all(
            any(c.get("type") == "Ready" and c.get("status") == "True" for c in _conditions(pod))
            or phase_of(pod) == "Succeeded"
            for pod in members_of(job)
            if not pod["metadata"].get("deletionTimestamp")
        )

    def is_in_sync(self, job: Document, workload: Document) -> bool:
        """Whether a Workload has room for every pod; images may change, missing pods may come."""
        listed = workload["spec"].get("podSets") or []
        if not group_of(job):
            wanted = [_compared(members_of(job)[0]["spec"])]
            return wanted == [_compared(item["template"].get("spec") or {}) for item in listed]
        room = {str(item["name"]): int(item.get("count", 1)) for item in listed}
        roles = Counter(role_of(pod) for pod in members_of(job) if _counts(pod))
        return all(count <= room.get(role, 0) for role, count in roles.items())

    def workload_for(self, job: Document, *, priority: Priority) -> dict[str, Any]:
        """The Workload to create for it; every pod of a group owns it."""
        made = batch.workload_around(job, self.pod_sets(job), priority=priority)
        if group_of(job):
            made["metadata"]["ownerReferences"] = [_owner(pod) for pod in members_of(job)]
            made["metadata"]["annotations"] = {labels.IS_GROUP_WORKLOAD: "true"}
            del made["metadata"]["labels"]
        return made

    def missing_owners(self, job: Document, workload: Document) -> list[dict[str, Any]]:
        """Owners that a group's Workload does not have yet."""
        if not group_of(job) or not total_of(job):
            return []
        known = {item.get("uid") for item in workload["metadata"].get("ownerReferences") or ()}
        return [_owner(pod) for pod in members_of(job) if pod["metadata"]["uid"] not in known]

    def to_start(self, job: Document) -> Document:
        """The pod that goes through its gate next."""
        return next(pod for pod in members_of(job) if is_gated(pod) and not is_over(pod))

    def to_stop(self, job: Document) -> Document:
        """The pod that is deleted next."""
        return next(pod for pod in members_of(job) if not is_gated(pod) and not is_over(pod))

    def start_patch(
        self, job: Document, workload: Document, *, flavors: Mapping[str, Document]
    ) -> dict[str, Any]:
        """The merge patch that lets the next pod go, where its flavor is.

        Raises:
            StartRefused: pod and admission contradict each other.
        """
        pod = self.to_start(job)
        role = role_of(pod) if group_of(pod) else batch.POD_SET_NAME
        admission = (workload.get("status") or {}).get("admission") or {}
        assigned = {item["name"]: item for item in admission.get("podSetAssignments") or ()}
        spec = pod["spec"]
        marks = running.marks_for(
            pod, workload, assigned.get(role, {"name": role}),
            original={"spec": spec}, flavors=flavors,
        )  # fmt: skip
        gates = [g for g in spec["schedulingGates"] if g.get("name") != labels.ADMISSION_GATE]
        changed: dict[str, Any] = {"schedulingGates": gates or None}
        if marks.selector:
            changed["nodeSelector"] = marks.selector
        if marks.tolerations:
            changed["tolerations"] = marks.tolerations
        annotations = {**marks.annotations, **({labels.POD_ROLE: role} if group_of(pod) else {})}
        metadata = {
            "resourceVersion": pod["metadata"]["resourceVersion"],
            "labels": {**marks.labels, labels.MANAGED: "true"},
            **({"annotations": annotations} if annotations else {}),
        }
        return {"metadata": metadata, "spec": changed}

    def suspend_patch(self, job: Document) -> None:
        """Nothing stops a pod but its deletion."""
        return None

    def restore_patch(self, job: Document, workload: Document) -> None:
        """A pod that was let go never comes back."""
        return None


def _age(pod: Document) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp", "")), str(pod["metadata"].get("uid", ""))


def _counts(pod: Document) -> bool:
    """Whether it takes up room in its group: it may run, runs, or has succeeded."""
    is_leaving = bool(pod["metadata"].get("deletionTimestamp"))
    return phase_of(pod) == "Succeeded" or not (is_leaving or phase_of(pod) == "Failed")


def _conditions(pod: Document) -> Sequence[Document]:
    return (pod.get("status") or {}).get("conditions") or ()


def _pod_set(name: str, count: int, pod: Document) -> dict[str, Any]:
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {"name": name, "count": count, "template": {"spec": spec}}


def _compared(spec: Document) -> tuple[Any, ...]:
    def without_image(item: Document) -> dict[str, Any]:
        return {key: value for key, value in item.items() if key != "image"}

    return tuple(
        [without_image(item) for item in found] for found in batch.containers_of({"spec": spec})
    )


def _owner(pod: Document) -> dict[str, Any]:
    metadata = pod["metadata"]
    return {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
