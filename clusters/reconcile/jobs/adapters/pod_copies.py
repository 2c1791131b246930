"""Pods and pod groups in dispatch: each pod of a Workload has a copy, all on one worker.

The manager's pods stay behind their gates; their status is that of the copies.
Source: Kueue pkg/controller/jobs/pod/pod_multikueue_adapter.go, v0.19.2; spec dispatch 4.
Deviations: a pod without the admission gate is refused, since it would run on the manager; priority
and other fields that each cluster works out itself are not sent.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.keys import Document
from clusters.documents.times import stamp
from clusters.kube import resources as r
from clusters.kube.client import Selection
from clusters.reconcile.jobs import batch, remote
from clusters.reconcile.jobs.adapters import pods

_NOT_SENT: Final = ("nodeName", "priority", "preemptionPolicy")
_OF_A_RUN: Final = (
    "containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses", "startTime",
    "podIP", "podIPs", "hostIP", "hostIPs", "reason", "message", "conditions",
)  # fmt: skip
_SCHEDULED: Final = "PodScheduled"


class PodCopies:
    """Pods, alone or as groups."""

    resource = r.POD
    is_required = False
    # Each pod that was made is noted on the copy; see labels.MEMBERS_MADE.
    is_adopted = False
    is_shared = False
    is_silent = False
    selection = Selection(labels=labels.QUEUE)

    def refusal(self, job: Document) -> str:
        free = [
            pod["metadata"]["name"]
            for pod in pods.members_of(job)
            if not pods.is_gated(pod) and not pods.is_over(pod)
        ]
        if not free:
            return ""
        return (
            f"The owner is not managed by Kueue: pod {free[0]} has no scheduling gate "
            f'"{labels.ADMISSION_GATE}" and would run on the manager'
        )

    def is_active(self, job: Document) -> bool:
        return pods.PodQueue().is_active(job)

    def members(self, job: Document) -> Sequence[Document]:
        return pods.members_of(job)

    def body(self, job: Document, workload: Document, *, marks: remote.CopyMarks) -> dict[str, Any]:
        spec = {k: copy.deepcopy(v) for k, v in job["spec"].items() if k not in _NOT_SENT}
        if not pods.is_gated(job):
            gate = {"name": labels.ADMISSION_GATE}
            spec["schedulingGates"] = [gate, *(spec.get("schedulingGates") or ())]
        metadata = remote.copy_metadata(job, workload, marks=marks)
        metadata["labels"][labels.MANAGED] = "true"
        if pods.group_of(job):
            metadata["annotations"][labels.POD_ROLE] = pods.role_of(job)
        return {"metadata": metadata, "spec": spec}

    def pod_sets(self, workload: Document, answer: Document) -> Sequence[dict[str, Any]]:
        # Of a group, workers compare roles and counts; of one pod, its containers as they
        # themselves complete them.
        found = [dict(item) for item in workload["spec"]["podSets"]]
        if len(found) == 1 and found[0]["name"] == batch.POD_SET_NAME:
            spec = {key: value for key, value in answer["spec"].items() if key != "nodeName"}
            found[0]["template"] = {"spec": spec}
        return found

    def status_patch(
        self, local: Document, copied: Document, *, now: datetime
    ) -> dict[str, Any] | None:
        if local["metadata"].get("deletionTimestamp"):
            return None
        wanted = dict(copied.get("status") or {})
        shown = _condition(local)
        if shown is not None and pods.is_gated(local) and not pods.is_scheduled(copied):
            # Else autoscalers of the manager would make room for a pod that never runs there.
            others = [c for c in wanted.get("conditions") or () if c.get("type") != _SCHEDULED]
            wanted["conditions"] = [*others, shown]
        if not wanted or _in_order(wanted) == _in_order(local.get("status") or {}):
            return None
        return remote.status_patch(local, wanted)

    def follow_patch(self, local: Document, copied: Document) -> None:
        return None

    def inactive_patch(self, local: Document, *, now: datetime) -> dict[str, Any] | None:
        before = local.get("status") or {}
        status = {key: value for key, value in before.items() if key not in _OF_A_RUN}
        gated = {
            "type": _SCHEDULED, "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": stamp(now),
        }  # fmt: skip
        return remote.status_patch(local, {**status, "phase": "Pending", "conditions": [gated]})


def _condition(pod: Document) -> dict[str, Any] | None:
    listed = (pod.get("status") or {}).get("conditions") or ()
    return next((dict(item) for item in listed if item.get("type") == _SCHEDULED), None)


def _in_order(status: Document) -> dict[str, Any]:
    listed = sorted(status.get("conditions") or (), key=lambda item: str(item.get("type")))
    return {**status, "conditions": listed}
