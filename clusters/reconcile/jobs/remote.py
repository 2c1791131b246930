"""Copies of a manager's Job on a worker: what is sent there, and what comes back.

Source: spec dispatch 2.5, 2.10, 4, 4.1 and the recipe of section 9.
Deviation from Kueue: fields by which a Job removes itself are stripped (a copy that vanishes looks
like a lost one and would run again).
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.conditions import Condition, condition, with_conditions
from clusters.documents.keys import Document, annotations_of, labels_of
from clusters.reconcile.jobs.batch import is_elastic, outcome_of

_NOT_SENT: Final = ("selector", "manualSelector", "managedBy", "ttlSecondsAfterFinished")
_ANNOUNCED: Final = frozenset({"SuccessCriteriaMet", "FailureTarget"})
_PRIVATE_ANNOTATIONS: Final = ("kubectl.kubernetes.io/last-applied-configuration",)


@dataclass(frozen=True, slots=True)
class CopyMarks:
    """What marks a copy as one of this manager's.

    Attributes:
        origin: Value of the origin label: the installation's id.
        attempt: Names the manager's reservation that the copy was made under.
    """

    origin: str
    attempt: str


def job_copy(job: Document, workload: Document, *, marks: CopyMarks) -> dict[str, Any]:
    """The body of the worker's Job: suspended, linked to the prebuilt Workload.

    Args:
        job: The manager's Job; a start there may have changed its template.
        workload: The manager's Workload; it keeps the template as its owner wrote it.
        marks: Go onto the copy.
    """
    spec = {key: value for key, value in job["spec"].items() if key not in _NOT_SENT}
    pod_set = workload["spec"]["podSets"][0]
    spec["template"] = copy.deepcopy(pod_set["template"])
    if is_elastic(job):
        # It may have grown since; only what its Workload asked for was admitted.
        spec["parallelism"] = pod_set.get("count", 1)
    spec["suspend"] = True
    return {"metadata": copy_metadata(job, workload, marks=marks), "spec": spec}


def copy_metadata(job: Document, workload: Document, *, marks: CopyMarks) -> dict[str, Any]:
    """``metadata`` of a worker's copy: linked to the prebuilt Workload, and marked as ours."""
    metadata = job["metadata"]
    annotations = {
        key: value for key, value in annotations_of(job).items() if key not in _PRIVATE_ANNOTATIONS
    }
    kept = {k: v for k, v in labels_of(job).items() if k != labels.PREBUILT}
    kept |= {
        labels.ORIGIN: marks.origin,
        labels.QUEUE: labels_of(job).get(labels.QUEUE) or workload["spec"].get("queueName", ""),
    }
    annotations |= {labels.PREBUILT: workload["metadata"]["name"], labels.ATTEMPT: marks.attempt}
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "labels": kept,
        "annotations": annotations,
    }


def workload_copy(
    workload: Document, pod_sets: Sequence[Document], *, marks: CopyMarks
) -> dict[str, Any]:
    """The body of the worker's Workload.

    Args:
        workload: The manager's.
        pod_sets: As the worker will compare them with the job.
        marks: Go onto the copy.
    """
    metadata = workload["metadata"]
    spec = {
        key: workload["spec"][key]
        for key in ("queueName", "priority", "priorityClassRef", "maximumExecutionTimeSeconds")
        if workload["spec"].get(key) is not None
    }
    spec |= {"active": True, "podSets": [dict(item) for item in pod_sets]}
    kept = {
        k: v for k, v in labels_of(workload).items() if k not in (labels.JOB_UID, labels.ORIGIN)
    }
    annotations = {
        k: v for k, v in annotations_of(workload).items() if k not in _PRIVATE_ANNOTATIONS
    }
    annotations |= {labels.SENT_DIGEST: digest_of(spec), labels.ATTEMPT: marks.attempt}
    return {
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {**kept, labels.ORIGIN: marks.origin},
            "annotations": annotations,
        },
        "spec": spec,
    }


def digest_of(spec: Mapping[str, Any]) -> str:
    """Digest of what a copy's pod sets said when it was sent.

    Without what is empty: an engine that writes a Workload back whole, to adopt it, puts empty
    ``metadata`` and the like into templates.
    """
    sent = {"podSets": spec["podSets"], "queueName": spec.get("queueName", "")}
    return _digest(_filled(sent))


def is_as_sent(workload: Document) -> bool:
    """Whether a copy's spec is what its own mark says was sent."""
    sent, spec = annotations_of(workload).get(labels.SENT_DIGEST), workload["spec"]
    if sent is None or sent == digest_of(spec):
        return True
    # Copies that were sent before empty fields were left out.
    return sent == _digest({"podSets": spec["podSets"], "queueName": spec.get("queueName", "")})


def _digest(sent: Any) -> str:
    text = json.dumps(sent, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _filled(node: Any) -> Any:
    if isinstance(node, Mapping):
        found = {key: _filled(value) for key, value in node.items()}
        return {key: value for key, value in found.items() if value not in (None, {}, [])}
    return [_filled(item) for item in node] if isinstance(node, list | tuple) else node


def is_ours(document: Document | None, origin: str) -> bool:
    """Whether an object on a worker carries this manager's mark."""
    return (
        document is not None and bool(origin) and labels_of(document).get(labels.ORIGIN) == origin
    )


@dataclass(frozen=True, slots=True)
class StatusCopy:
    """What to do with the manager's Job after a look at the worker's.

    Attributes:
        status: The status to write; None when nothing has to be written.
        is_deferred: The copy runs while the manager's Job is still suspended: look again soon.
    """

    status: Mapping[str, Any] | None
    is_deferred: bool = False


def status_copy(local: Document, remote: Document, *, now: datetime) -> StatusCopy:
    """Follow a worker's Job without ever writing a status that an API server refuses.

    A suspended Job may not have a start time, so the status of a running copy waits until the
    manager has started its own.
    """
    status = _without_interim_ends(remote)
    is_suspended = bool(local["spec"].get("suspend"))
    runs = not remote["spec"].get("suspend") and outcome_of(remote) is None
    if is_suspended and runs:
        told = condition(local, "Suspended").get("status") == "True"
        if told:
            return StatusCopy(None, is_deferred=True)
        change = Condition("Suspended", True, "MultiKueueAdapter", "Set by MultiKueue adapter")
        held = dict(local.get("status") or {})
        held["conditions"] = _job_conditions(local, change, now=now)
        return StatusCopy(held, is_deferred=True)
    if outcome_of(local) is not None or status == (local.get("status") or {}):
        return StatusCopy(None)
    before = local.get("status") or {}
    if not is_suspended and remote["spec"].get("suspend") and before.get("startTime"):
        # Only a Job known as suspended may lose its start time; its own stop comes first.
        status["startTime"] = before["startTime"]
    if status == before:
        return StatusCopy(None)
    return StatusCopy(status)


def _without_interim_ends(remote: Document) -> dict[str, Any]:
    """A copy's status; what only announces its end is left out until the end itself is there.

    An API server lets nobody take these conditions back, and an eviction in between would leave
    them on a Job that runs once more.
    """
    status = dict(remote.get("status") or {})
    if outcome_of(remote) is None and "conditions" in status:
        kept = [item for item in status.pop("conditions") if item["type"] not in _ANNOUNCED]
        status |= {"conditions": kept} if kept else {}
    return status


def inactive_status(local: Document, *, now: datetime) -> dict[str, Any]:
    """The status of a Job whose copy is proved to be gone: no pods, suspended."""
    change = Condition("Suspended", True, "JobSuspended", "Its copy on the worker is gone")
    kept = {
        key: value
        for key, value in (local.get("status") or {}).items()
        if key not in ("startTime", "active", "ready", "terminating", "conditions")
    }
    return {**kept, "active": 0, "ready": 0, "conditions": _job_conditions(local, change, now=now)}


def status_patch(local: Document, status: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes a Job's status exactly this, bound to the state that was read."""
    version = local["metadata"]["resourceVersion"]
    patch = replacing(local.get("status") or {}, status)
    return {"metadata": {"resourceVersion": version}, "status": patch}


def guarded(document: Document, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch of ``spec``, bound to the state that was read."""
    version = document["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "spec": dict(spec)}


def replacing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that turns one map into another, maps inside it included."""
    patch: dict[str, Any] = dict.fromkeys(key for key in before if key not in after)
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            value = replacing(old, value)
        patch[key] = value
    return patch


def _job_conditions(local: Document, change: Condition, *, now: datetime) -> list[dict[str, Any]]:
    found = with_conditions(local, [change], now=now)
    for entry in found:
        # Jobs' conditions know no generation.
        entry.pop("observedGeneration", None)
    return found
