"""Copies of a manager's job and its Workload on a worker: what is sent, and how it is known. Pure.

Source: spec dispatch 2.5, 2.10, 4 and the recipe of section 9.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, bound, labels_of, status_of
from clusters.jobs.paths import values

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


def managed_refusal(job: Document, path: str) -> str:
    """Why a job that its own cluster would run may not be dispatched; empty when it may.

    By the field of ``spec`` that says who runs it.
    """
    found = next(values(job.get("spec") or {}, path), "")
    if found == labels.MULTIKUEUE:
        return ""
    return (
        "The owner is not managed by Kueue: "
        f'Expecting spec.{path} to be "{labels.MULTIKUEUE}" not "{found}"'
    )


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
    """The body of the worker's Workload, with pod sets as it will compare them with the job."""
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


def status_patch(local: Document, status: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes a job's status exactly this, bound to the state that was read."""
    return {**bound(local), "status": replacing(status_of(local), status)}


def guarded(document: Document, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch of ``spec``, bound to the state that was read."""
    return {**bound(document), "spec": dict(spec)}


def replacing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that turns one map into another, maps inside it included."""
    patch: dict[str, Any] = dict.fromkeys(key for key in before if key not in after)
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            value = replacing(old, value)
        patch[key] = value
    return patch
