"""What a job of any kind and its Workload say of each other: queue, names, owners, templates. Pure.

Source: Kueue pkg/controller/jobframework (workload_names.go for names), v0.19.2; spec admission 5.
Deviations: no finalizer is put on Workloads (their deletion gives the quota back); requests stay
as the job has them, and LimitRanges and overhead are worked out where they are counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, controller_of, labels_of, status_of
from clusters.jobs import counting

POD_SET_NAME: Final = "main"
_NAME_LIMIT: Final = 253
_HASH_LENGTH: Final = 5


def queue_of(job: Document) -> str:
    """Name of the LocalQueue; empty for a job that names none."""
    return labels_of(job).get(labels.QUEUE, "")


def prebuilt_name(job: Document) -> str:
    """Name of the Workload that somebody made for this job; the annotation wins."""
    return annotations_of(job).get(labels.PREBUILT) or labels_of(job).get(labels.PREBUILT, "")


def made_name_of(job: Document, *, extra: str = "") -> str:
    """Name of the Workload that is made for a job here.

    Args:
        job: Whatever queues.
        extra: Tells several Workloads of one job apart; empty for the first, or only one.
    """
    metadata = job["metadata"]
    group = str(job.get("apiVersion", "batch/v1")).rpartition("/")[0]
    return workload_name(
        kind=str(job.get("kind", "Job")), group=group, name=metadata["name"],
        uid=metadata["uid"], extra=extra,
    )  # fmt: skip


def workload_name(*, kind: str, group: str, name: str, uid: str, extra: str = "") -> str:
    """The name of the Workload that is made for an owner.

    Args:
        kind: Of the owner, as ``Job``.
        group: Its API group, as ``batch``.
        name: Its name.
        uid: Its UID, so that a Job of a name that was used before gets another Workload.
        extra: Tells several Workloads of one owner apart; empty for the first, or only one.
    """
    parts = (kind, group, name, uid, *filter(None, [extra]))
    digest = hashlib.sha1("\n".join(parts).encode(), usedforsecurity=False)
    stem = f"{kind.lower()}-{name}"[: _NAME_LIMIT - _HASH_LENGTH - 1]
    return f"{stem}-{digest.hexdigest()[:_HASH_LENGTH]}"


def replica_workload_name(name: str, *, uid: str, replica: int | str) -> str:
    """The name of the Workload of one replica of a LeaderWorkerSet."""
    kind, group = labels.SET_KIND, labels.SET_GROUP
    return workload_name(kind=kind, group=group, name=f"{name}-{replica}", uid=uid)


def max_execution_seconds(job: Document) -> int | None:
    """How long it may run; None for as long as it takes."""
    return counting.count(labels_of(job).get(labels.MAX_EXECUTION), 0) or None


def owner_reference(job: Document, *, controls: bool = True) -> dict[str, Any]:
    """How a Workload names a job as its owner, and as the one that controls it."""
    metadata = job["metadata"]
    return {
        "apiVersion": job.get("apiVersion", "batch/v1"),
        "kind": job.get("kind", "Job"),
        "name": metadata["name"],
        "uid": metadata["uid"],
        **({"controller": True, "blockOwnerDeletion": True} if controls else {}),
    }


def owner_uid(workload: Document) -> str:
    """UID of the job that controls a Workload; empty when none does."""
    return str(controller_of(workload).get("uid", ""))


def assignments_of(workload: Document) -> Sequence[Document]:
    """What was admitted, by pod set."""
    admission = status_of(workload).get("admission") or {}
    return admission.get("podSetAssignments") or ()


def clean_template(template: Document) -> dict[str, Any]:
    """A pod template without generated labels and empty leftovers of defaulting.

    What stays as it is, is shared with the template and not copied.
    """
    found = dict(template)
    metadata = {
        key: value
        for key, value in (found.pop("metadata", None) or {}).items()
        if value is not None and key != "creationTimestamp"
    }
    written = metadata.pop("labels", None) or {}
    kept = {key: value for key, value in written.items() if key not in labels.GENERATED_LABELS}
    if kept:
        metadata["labels"] = kept
    return {"metadata": metadata, **found} if metadata else found


def containers_of(template: Document) -> tuple[Any, ...]:
    """What is compared of a pod template: its containers and claims, defaults left out."""
    spec = template.get("spec") or {}
    return tuple(
        [
            {k: v for k, v in item.items() if v not in (None, {}, [])}
            for item in spec.get(field) or ()
        ]
        for field in ("containers", "initContainers", "resourceClaims")
    )


def is_gated(pod: Document) -> bool:
    """Whether the admission gate holds back a pod, or the pods of a template."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == labels.ADMISSION_GATE for gate in gates)
