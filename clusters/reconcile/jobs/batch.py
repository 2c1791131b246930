"""batch/v1 Jobs as the admission and dispatch shifts see them: plain documents in, values out.

Source: Kueue pkg/controller/jobs/job, pkg/controller/jobframework, v0.19.2; spec admission 5.
Deviations: no finalizer is put on Workloads (their deletion gives the quota back); requests stay
as the Job has them, and LimitRanges and overhead are worked out where they are counted.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, labels_of
from clusters.documents.numbers import whole_number
from clusters.reconcile.jobs.workload_names import replica_workload_name, workload_name

POD_SET_NAME: Final = "main"
KIND: Final = "Job"
# Controllers whose own object is what queues; a Job below one of them does not.
_QUEUED_OWNERS: Final = frozenset(
    {
        "AppWrapper", "JAXJob", "JobSet", "MPIJob", "PaddleJob", "PyTorchJob", "RayCluster",
        "RayJob", "RayService", "TFJob", "TrainJob", "XGBoostJob",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a Job ended; ``reason`` is that of the Workload's Finished condition."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Priority:
    """A workload's priority and what it comes from.

    Attributes:
        value: Higher goes first.
        reference: ``spec.priorityClassRef``, None when it comes from nothing.
    """

    value: int = 0
    reference: Mapping[str, str] | None = None


def queue_of(job: Document) -> str:
    """Name of the LocalQueue; empty for a Job that names none."""
    return labels_of(job).get(labels.QUEUE, "")


def is_below_other_kind(job: Document) -> bool:
    """Whether an owner of another queued kind answers for this Job."""
    owners = job["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("kind") in _QUEUED_OWNERS for owner in owners)


def prebuilt_name(job: Document) -> str:
    """Name of the Workload that somebody made for this Job; the annotation wins."""
    return annotations_of(job).get(labels.PREBUILT) or labels_of(job).get(labels.PREBUILT, "")


def workload_name_of(job: Document) -> str:
    """Name of this Job's Workload, prebuilt or not."""
    metadata = job["metadata"]
    group = str(job.get("apiVersion", "batch/v1")).rpartition("/")[0]
    return prebuilt_name(job) or pod_group_of(job) or workload_name(
        kind=str(job.get("kind", KIND)), group=group, name=metadata["name"], uid=metadata["uid"],
        extra=_slice_part(slice_of(job)),
    )  # fmt: skip


def is_elastic(job: Document) -> bool:
    """Whether a Job may change its size while it runs: one that is dispatched, or such a copy."""
    if job.get("kind", KIND) != KIND or annotations_of(job).get(labels.ELASTIC) != "true":
        return False
    return is_managed_by_dispatch(job) or bool(prebuilt_name(job))


def slice_of(job: Document) -> int:
    """Number of the Workload that stands for its present size; 1 unless it grew."""
    text = annotations_of(job).get(labels.SLICE, "")
    return int(text) if text.isdecimal() and is_elastic(job) else 1


def _slice_part(number: int) -> str:
    return str(number) if number > 1 else ""


def pod_group_of(job: Document) -> str:
    """Name of a pod's group, which is that of the group's Workload; empty for everything else.

    Pods of one replica of a LeaderWorkerSet that was dispatched here are a group too: its copy's
    templates tell the UID of the manager's object, by which the Workload is named.
    """
    if job.get("kind") != "Pod":
        return ""
    marks, annotations = labels_of(job), annotations_of(job)
    uid, name = annotations.get(labels.ORIGIN_UID), marks.get(labels.SET_NAME)
    if uid and name:
        return replica_workload_name(name, uid=uid, replica=marks.get(labels.SET_INDEX, ""))
    return marks.get(labels.POD_GROUP) or annotations.get(labels.POD_GROUP, "")


def is_suspended(job: Document) -> bool:
    return bool(job["spec"].get("suspend"))


def is_active(job: Document) -> bool:
    """Whether pods of it run, as far as its status tells."""
    return bool((job.get("status") or {}).get("active"))


def is_managed_by_dispatch(job: Document) -> bool:
    """Whether its own cluster leaves it alone so that a worker's copy can speak for it."""
    return bool(job["spec"].get("managedBy") == labels.MULTIKUEUE)


def outcome_of(job: Document) -> Outcome | None:
    """How the Job ended; None while it has not."""
    for entry in (job.get("status") or {}).get("conditions") or ():
        if entry.get("status") != "True" or entry.get("type") not in ("Complete", "Failed"):
            continue
        reason = "Succeeded" if entry["type"] == "Complete" else "Failed"
        fallback = "Job finished successfully" if reason == "Succeeded" else "Job failed"
        return Outcome(reason, entry.get("message") or fallback)
    return None


def pod_count(job: Document) -> int:
    """Pods that run side by side."""
    spec = job["spec"]
    parallelism = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    return parallelism if completions is None else min(parallelism, int(completions))


def pod_set(job: Document) -> dict[str, Any]:
    """The one pod set of a Job, without the marks that the Job controller puts on templates."""
    found: dict[str, Any] = {
        "name": POD_SET_NAME,
        "count": pod_count(job),
        "template": clean_template(job["spec"]["template"]),
    }
    fewest = annotations_of(job).get(labels.MIN_PARALLELISM, "")
    if fewest.isdecimal() and 0 < int(fewest) < found["count"]:
        found["minCount"] = int(fewest)
    return found


def clean_template(template: Document) -> dict[str, Any]:
    """A pod template without generated labels and empty leftovers of defaulting."""
    found = copy.deepcopy(dict(template))
    metadata = {
        key: value
        for key, value in (found.pop("metadata", None) or {}).items()
        if value is not None
    }
    metadata.pop("creationTimestamp", None)
    found_labels = metadata.pop("labels", None) or {}
    kept = {k: v for k, v in found_labels.items() if k not in labels.GENERATED_LABELS}
    if kept:
        metadata["labels"] = kept
    return {"metadata": metadata, **found} if metadata else found


def pod_priority_class(job: Document) -> str:
    """``priorityClassName`` of the pods; empty when they name none."""
    return str(job["spec"]["template"].get("spec", {}).get("priorityClassName") or "")


def max_execution_seconds(job: Document) -> int | None:
    return whole_number(labels_of(job).get(labels.MAX_EXECUTION), least=1)


def workload_for(job: Document, *, priority: Priority) -> dict[str, Any]:
    """The Workload to create for a Job that brought none."""
    metadata = job["metadata"]
    marks = {labels.JOB_UID: metadata["uid"]}
    spec: dict[str, Any] = {
        "active": True,
        "queueName": queue_of(job),
        "podSets": [pod_set(job)],
        "priority": priority.value,
    }
    if priority.reference is not None:
        spec["priorityClassRef"] = dict(priority.reference)
    seconds = max_execution_seconds(job)
    if seconds is not None:
        spec["maximumExecutionTimeSeconds"] = seconds
    copied = {
        key: value for key, value in annotations_of(job).items() if key.startswith("provreq.kueue")
    } | _slice_marks(job)
    gates = annotations_of(job).get(labels.GATED_BY)
    if gates:
        copied[labels.GATED_BY] = gates
    return {
        "metadata": {
            "name": workload_name_of(job),
            "namespace": metadata["namespace"],
            "labels": marks,
            **({"annotations": copied} if copied else {}),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def _slice_marks(job: Document) -> dict[str, str]:
    """What the Workload of an elastic Job says: its first slice, and the one it replaces."""
    if not is_elastic(job):
        return {}
    names = slice_names(job)
    marks = {labels.ELASTIC: "true", labels.SLICE_NAME: names[0]}
    if len(names) > 1:
        marks[labels.SLICE_OF] = f"{job['metadata']['namespace']}/{names[-2]}"
    return marks


def slice_names(job: Document) -> tuple[str, ...]:
    """Names of the Workloads that a Job of the manager has had, the present one last."""
    metadata = job["metadata"]
    return tuple(
        workload_name(
            kind=KIND, group="batch", name=metadata["name"], uid=metadata["uid"],
            extra=_slice_part(number),
        )
        for number in range(1, slice_of(job) + 1)
    )  # fmt: skip


def workload_around(
    job: Document, pod_sets: list[dict[str, Any]], *, priority: Priority
) -> dict[str, Any]:
    """The Workload to create for a job of whatever kind, around its pod sets."""
    spec: dict[str, Any] = {
        "active": True,
        "queueName": queue_of(job),
        "podSets": pod_sets,
        "priority": priority.value,
    }
    if priority.reference is not None:
        spec["priorityClassRef"] = dict(priority.reference)
    seconds = max_execution_seconds(job)
    if seconds is not None:
        spec["maximumExecutionTimeSeconds"] = seconds
    return {
        "metadata": {
            "name": workload_name_of(job),
            "namespace": job["metadata"]["namespace"],
            "labels": {labels.JOB_UID: job["metadata"]["uid"]},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def owner_reference(job: Document) -> dict[str, Any]:
    metadata = job["metadata"]
    return {
        "apiVersion": job.get("apiVersion", "batch/v1"),
        "kind": job.get("kind", KIND),
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owner_uid(workload: Document) -> str:
    """UID of the Job that controls a Workload; empty when none does."""
    for owner in workload["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid", ""))
    return ""


def is_in_sync(job: Document, workload: Document) -> bool:
    """Whether a Workload still describes its Job.

    Compared, as the engine of record does: containers and init containers, counts, maximum
    execution time. What starting changes (selectors, tolerations, labels) is not.
    """
    sets = workload["spec"].get("podSets") or []
    if len(sets) != 1 or workload["spec"].get("maximumExecutionTimeSeconds") != (
        max_execution_seconds(job)
    ):
        return False
    wanted, found = pod_set(job), sets[0]
    if containers_of(wanted["template"]) != containers_of(found["template"]):
        return False
    most = int(found.get("count", 1))
    if is_elastic(job) and prebuilt_name(job):
        return True  # dispatch changes the size of both, one after the other
    return bool(int(found.get("minCount") or most) <= wanted["count"] <= most)


def reclaimable(job: Document) -> int:
    """Pods that are done and will not be replaced; 0 where that cannot be told yet."""
    parallelism = int(job["spec"].get("parallelism", 1))
    status = job.get("status") or {}
    ended = int(status.get("succeeded") or 0)
    if job["spec"].get("completionMode") == "Indexed":
        ended += int(status.get("failed") or 0) if status.get("failedIndexes") else 0
    if parallelism <= 1 or not ended:
        return 0
    completions = job["spec"].get("completions")
    left = (parallelism if completions is None else int(completions)) - ended
    return max(0, parallelism - max(left, 0))


def containers_of(template: Document) -> tuple[Any, ...]:
    """What is compared of a pod template: containers and init containers, defaults left out."""
    spec = template.get("spec") or {}
    return tuple(
        [
            {k: v for k, v in item.items() if v not in (None, {}, [])}
            for item in spec.get(field) or ()
        ]
        for field in ("containers", "initContainers")
    )
