"""Pods that queue, alone or as a group: what all members of a Workload say together. Pure.

A pod takes part when it carries the queue label and either still has the admission gate or was let
go through it by a start. A pod with the label alone runs already and is left alone. Dispatched,
each pod of a Workload has a copy, all on one worker; the manager's stay behind their gates, and
their status is that of the copies.

Source: Kueue pkg/controller/jobs/pod and its pod_multikueue_adapter.go, v0.19.2; spec admission
5.3, dispatch 4.
Deviations: no webhook puts the gate on, so its owner does, and a pod without it is not dispatched,
since it would run on the manager; no finalizer is put on pods; pods beyond a group's number are
left gated instead of being deleted; priority and other fields that each cluster works out itself
are not sent.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from clusters.documents import labels
from clusters.documents import resources as r
from clusters.documents.conditions import (
    Condition,
    condition,
    conditions_of,
    is_true,
    with_conditions,
)
from clusters.documents.keys import (
    Document,
    annotations_of,
    labels_of,
    owner_uids,
    status_of,
    uid_of,
)
from clusters.documents.packed import worked_out
from clusters.jobs import counting, remote, workloads
from clusters.jobs.kind import JobKind, JobOutcome, Priority
from clusters.jobs.marking import marks_for
from clusters.jobs.topology import topology_request
from clusters.jobs.workloads import POD_SET_NAME, is_gated, replica_workload_name

MEMBERS: Final = "members"
"""Field of a view: the pods that it stands for. No API server knows it."""
GROUPS_MOST: Final = 18
_ENDED: Final = ("Succeeded", "Failed")
# What of a pod decides which pods are alike; images are not part of it.
_SHAPE: Final = (
    "nodeSelector", "affinity", "tolerations", "runtimeClassName", "priority",
    "topologySpreadConstraints", "overhead", "resourceClaims", "resources",
)  # fmt: skip
_NOT_SENT: Final = ("nodeName", "priority", "preemptionPolicy")
_OF_A_RUN: Final = (
    "containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses", "startTime",
    "podIP", "podIPs", "hostIP", "hostIPs", "reason", "message", "conditions",
)  # fmt: skip
_SCHEDULED: Final = "PodScheduled"
_POD: Final = {"apiVersion": r.POD.api_version, "kind": r.POD.kind}


def takes_part(pod: Document) -> bool:
    """Whether it waits behind the gate, or was let go here."""
    if labels.SET_NAME in labels_of(pod) and labels.ORIGIN_UID not in annotations_of(pod):
        return False  # of a LeaderWorkerSet on the manager: a copy of the whole runs elsewhere
    return is_gated(pod) or labels_of(pod).get(labels.MANAGED) == "true"


def phase_of(pod: Document) -> str:
    """``Pending``, ``Running`` and so on; empty before anybody said so."""
    return str(status_of(pod).get("phase") or "")


def is_ended(pod: Document) -> bool:
    """Whether it succeeded or failed."""
    return phase_of(pod) in _ENDED


def _has_succeeded(pod: Document) -> bool:
    return phase_of(pod) == "Succeeded"


def is_over(pod: Document) -> bool:
    """Whether it has ended or is being deleted."""
    return is_ended(pod) or bool(pod["metadata"].get("deletionTimestamp"))


def is_busy(pod: Document) -> bool:
    """Whether it runs or may begin to, here or, as its status tells, on a worker."""
    if is_ended(pod):
        return False
    return phase_of(pod) == "Running" or is_true(pod, _SCHEDULED) or not is_gated(pod)


def group_of(pod: Document) -> str:
    """Name of its group, which is that of the group's Workload; empty for a pod by itself.

    Pods of one replica of a LeaderWorkerSet that was dispatched here are a group too: its copy's
    templates tell the UID of the manager's object, by which the Workload is named.
    """
    marks, annotations = labels_of(pod), annotations_of(pod)
    uid, name = annotations.get(labels.ORIGIN_UID), marks.get(labels.SET_NAME)
    if uid and name:
        return replica_workload_name(name, uid=uid, replica=marks.get(labels.SET_INDEX, ""))
    return marks.get(labels.POD_GROUP) or annotations.get(labels.POD_GROUP, "")


def total_of(pod: Document) -> int:
    """How many pods its group has; 0 when it does not say."""
    return counting.count(annotations_of(pod).get(labels.POD_GROUP_TOTAL), 0)


def role_of(pod: Document) -> str:
    """Name of the pod set of pods like this one; kept as an annotation once it was started."""
    return annotations_of(pod).get(labels.POD_ROLE) or worked_out(pod, _role_by_shape)


def _role_by_shape(pod: Document) -> str:
    spec = pod["spec"]
    shape: dict[str, Any] = {name: spec.get(name) for name in _SHAPE}
    for field in ("initContainers", "containers"):
        shape[field] = [
            [(item.get("resources") or {}).get("requests"), item.get("ports")]
            for item in spec.get(field) or ()
        ]
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:8]


class Pods(JobKind):
    """Pods, alone or as groups; where it says ``job`` there is a view or a pod."""

    resource = r.POD
    integration = "pod"
    words = "the portal, one for a group"
    selector = labels.QUEUE
    # Each pod that was made is noted on the copy; see ``labels.MEMBERS_MADE``.
    is_adopted = False
    is_grouped = True
    answers_for_jobs = False
    tells_when = True
    stops_by_deletion = True

    def workload_name_of(self, job: Document) -> str:
        return workloads.prebuilt_name(job) or group_of(job) or workloads.made_name_of(job)

    def gathered(self, jobs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """The oldest that takes part, with all of them as members.

        Active ones beyond a group's number are left out, youngest first.
        """
        found = sorted((pod for pod in jobs if takes_part(pod)), key=_age)
        if not found:
            return None
        total = total_of(found[0]) if group_of(found[0]) else 1
        left, kept = total or len(found), list[Document]()
        for pod in found:
            if is_over(pod):
                kept.append(pod)
            elif left:
                kept.append(pod)
                left -= 1
        return {**found[0], MEMBERS: tuple(kept)}

    def counts(self, job: Document) -> Iterator[tuple[str, Any]]:
        yield from super().counts(job)
        for pod in self.members(job):
            yield counting.mark_of(annotations_of(pod), labels.POD_GROUP_TOTAL)

    def is_clear(self, job: Document) -> bool:
        """Whether all pods of a group are there, or one speaks for all."""
        if not group_of(job):
            return True
        total, here = total_of(job), self._counted(job)
        if not total or not here:
            return False
        is_whole = annotations_of(job).get(labels.POD_GROUP_FAST) == "true" or len(here) >= total
        return is_whole and len({role_of(pod) for pod in here}) <= GROUPS_MOST

    def pod_sets(self, job: Document) -> list[dict[str, Any]]:
        """One set for a pod by itself; of a group one for each kind of pod, by its role."""
        if not group_of(job):
            return [_pod_set(POD_SET_NAME, 1, self.members(job)[0])]
        counted = self._counted(job)
        if annotations_of(job).get(labels.POD_GROUP_FAST) == "true":
            return [_pod_set(role_of(pod), total_of(job), pod) for pod in counted[:1]]
        firsts = {role_of(pod): pod for pod in reversed(counted)}
        counts = Counter(map(role_of, counted))
        return [_pod_set(role, counts[role], firsts[role]) for role in sorted(firsts)]

    def _counted(self, job: Document) -> list[Document]:
        """Members that take up room in their group: that may run, run, or have succeeded."""
        return [pod for pod in self.members(job) if not is_over(pod) or _has_succeeded(pod)]

    def _waiting(self, job: Document) -> Iterator[Document]:
        """Members that wait to be let go."""
        return (pod for pod in self.members(job) if is_gated(pod) and not is_over(pod))

    def _let_go(self, job: Document) -> Iterator[Document]:
        """Members that run, or may begin to."""
        return (pod for pod in self.members(job) if not is_gated(pod) and not is_over(pod))

    def is_suspended(self, job: Document) -> bool:
        return any(self._waiting(job))

    def is_stopped(self, job: Document) -> bool:
        return not any(self._let_go(job))

    def is_active(self, job: Document) -> bool:
        return any(map(is_busy, self.members(job)))

    def outcome_of(self, job: Document) -> JobOutcome | None:
        """How it ended: a group once all have succeeded, or none runs and none may be replaced."""
        pods = self.members(job)
        if not group_of(job):
            phase = phase_of(pods[0])
            message = str(status_of(pods[0]).get("message") or f"Pod {phase}")
            return JobOutcome(phase, message) if phase in _ENDED else None
        total = total_of(job)
        if not total:
            return None  # it serves until it is deleted
        good = sum(map(_has_succeeded, pods))
        is_final = any(annotations_of(pod).get(labels.POD_RETRIABLE) == "false" for pod in pods)
        if good < total and not (is_final and all(map(is_ended, pods))):
            return None
        return JobOutcome("Succeeded", f"Pods succeeded: {good}/{total}.")

    def ended_at(self, job: Document) -> str | None:
        found = status_of(job).get("containerStatuses") or []
        ended = [
            ((row.get("state") or {}).get("terminated") or {}).get("finishedAt") for row in found
        ]
        return max(map(str, ended)) if ended and all(ended) else None

    def are_pods_ready(self, job: Document) -> bool:
        return all(
            is_true(pod, "Ready") or _has_succeeded(pod)
            for pod in self.members(job)
            if not pod["metadata"].get("deletionTimestamp")
        )

    def is_in_sync(self, job: Document, workload: Document) -> bool:
        """Whether a Workload has room for every pod; images may change, missing pods may come."""
        if not self.is_clear(job):
            return True
        listed = workload["spec"].get("podSets") or []
        if not group_of(job):
            wanted = [_compared(self.members(job)[0]["spec"])]
            return wanted == [_compared(item["template"].get("spec") or {}) for item in listed]
        room = {str(item["name"]): int(item.get("count", 1)) for item in listed}
        roles = Counter(map(role_of, self._counted(job)))
        return all(count <= room.get(role, 0) for role, count in roles.items())

    def workload_for(
        self, job: Document, *, priority: Priority, is_placed: bool = False
    ) -> dict[str, Any]:
        """Every pod of a group owns its Workload, and none controls it."""
        made = super().workload_for(job, priority=priority, is_placed=is_placed)
        if group_of(job):
            made["metadata"]["ownerReferences"] = [_owner(pod) for pod in self.members(job)]
            made["metadata"]["annotations"] = {labels.IS_GROUP_WORKLOAD: "true"}
            del made["metadata"]["labels"]
        return made

    def missing_owners(self, job: Document, workload: Document) -> list[dict[str, Any]]:
        """Owners that a group's Workload does not have yet."""
        if not group_of(job) or not total_of(job):
            return []
        known = set(owner_uids(workload))
        return [_owner(pod) for pod in self.members(job) if pod["metadata"]["uid"] not in known]

    def part_to_start(self, job: Document) -> Document:
        return next(self._waiting(job))

    def part_to_stop(self, job: Document) -> Document:
        return next(self._let_go(job))

    def start_patch(
        self, job: Document, workload: Document, *, flavors: Mapping[str, Document]
    ) -> dict[str, Any]:
        """Lets the next pod go, where its flavor is."""
        pod = self.part_to_start(job)
        role = role_of(pod) if group_of(pod) else POD_SET_NAME
        assigned = {item["name"]: item for item in workloads.assignments_of(workload)}
        spec = pod["spec"]
        marks = marks_for(
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
        patch = remote.guarded(pod, changed)
        patch["metadata"]["labels"] = {**marks.labels, labels.MANAGED: "true"}
        if annotations:
            patch["metadata"]["annotations"] = annotations
        return patch

    def is_started_here(self, *, is_dispatched: bool) -> bool:
        """Pods that were dispatched wait here for ever while copies of them run on a worker."""
        return not is_dispatched

    def controls(self, job: Document) -> bool:
        return not group_of(job)

    def members(self, job: Document) -> Sequence[Document]:
        """The pods of a view; a pod by itself is its own only member."""
        return tuple(job.get(MEMBERS) or (job,))

    def is_past(self, member: Document) -> bool:
        return is_over(member)

    def refusal(self, job: Document) -> str:
        free = next(self._let_go(job), None)
        if free is None:
            return ""
        return (
            f"The owner is not managed by Kueue: pod {free['metadata']['name']} has no "
            f'scheduling gate "{labels.ADMISSION_GATE}" and would run on the manager'
        )

    def copy_of(
        self, job: Document, workload: Document, *, marks: remote.CopyMarks
    ) -> dict[str, Any]:
        spec = {k: copy.deepcopy(v) for k, v in job["spec"].items() if k not in _NOT_SENT}
        if not is_gated(job):
            gate = {"name": labels.ADMISSION_GATE}
            spec["schedulingGates"] = [gate, *(spec.get("schedulingGates") or ())]
        metadata = remote.copy_metadata(job, workload, marks=marks)
        metadata["labels"][labels.MANAGED] = "true"
        if group_of(job):
            metadata["annotations"][labels.POD_ROLE] = role_of(job)
        return {"metadata": metadata, "spec": spec}

    def copied_pod_sets(self, workload: Document, answer: Document) -> Sequence[dict[str, Any]]:
        # Of a group, workers compare roles and counts; of one pod, its containers as they
        # themselves complete them.
        found = [dict(item) for item in workload["spec"]["podSets"]]
        if len(found) == 1 and found[0]["name"] == POD_SET_NAME:
            found[0]["template"] = _pod_set(POD_SET_NAME, 1, answer)["template"]
        return found

    def status_patch(
        self, local: Document, copied: Document, *, now: datetime
    ) -> dict[str, Any] | None:
        if local["metadata"].get("deletionTimestamp"):
            return None
        wanted = dict(status_of(copied))
        shown = condition(local, _SCHEDULED)
        if shown and is_gated(local) and not is_true(copied, _SCHEDULED):
            # Else autoscalers of the manager would make room for a pod that never runs there.
            others = [item for item in conditions_of(copied) if item.get("type") != _SCHEDULED]
            wanted["conditions"] = [*others, dict(shown)]
        if not wanted or _in_order(wanted) == _in_order(status_of(local)):
            return None
        return remote.status_patch(local, wanted)

    def inactive_patch(self, local: Document, *, now: datetime) -> dict[str, Any] | None:
        before = status_of(local)
        status = {key: value for key, value in before.items() if key not in _OF_A_RUN}
        text = "Scheduling is blocked due to non-empty scheduling gates"
        gated = Condition(_SCHEDULED, False, "SchedulingGated", text)
        found = with_conditions({"metadata": {}}, [gated], now=now)
        return remote.status_patch(local, {**status, "phase": "Pending", "conditions": found})


def _age(pod: Document) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp", "")), uid_of(pod)


def _in_order(status: Document) -> dict[str, Any]:
    listed = sorted(status.get("conditions") or (), key=lambda item: str(item.get("type")))
    return {**status, "conditions": listed}


def _pod_set(name: str, count: int, pod: Document) -> dict[str, Any]:
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    request = topology_request(annotations_of(pod))
    found: dict[str, Any] = {"name": name, "count": count, "template": {"spec": spec}}
    return found | ({"topologyRequest": request} if request else {})


def _compared(spec: Document) -> tuple[Any, ...]:
    found = workloads.containers_of({"spec": spec})
    return tuple(
        [{key: value for key, value in item.items() if key != "image"} for item in listed]
        for listed in found
    )


def _owner(pod: Document) -> dict[str, Any]:
    return workloads.owner_reference({**pod, **_POD}, controls=False)
