"""What has to be written to a Job to start it, to stop it, and to take a start's marks off again.

Source: Kueue pkg/podset, pkg/controller/jobs/job, v0.19.2; spec admission 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of
from clusters.reconcile.jobs.batch import clean_template, is_elastic, queue_of


class StartRefused(Exception):
    """The Job cannot take what its admission demands, whatever is tried: finish the Workload."""


def start_patch(
    job: Document, workload: Document, *, flavors: Mapping[str, Document]
) -> dict[str, Any]:
    """The merge patch that starts an admitted Job.

    Built on the template as the Workload keeps it, so that marks of an earlier start go as well.

    Args:
        job: The suspended Job.
        workload: Its admitted Workload.
        flavors: ResourceFlavor documents by name.

    Raises:
        StartRefused: a node selector of the Job and one of the admission contradict each other.
    """
    assignment = _assignment(workload)
    original = workload["spec"]["podSets"][0]["template"]
    wanted = marks_for(job, workload, assignment, original=original, flavors=flavors)
    changed = {"suspend": False, **_counts(job, assignment.get("count"))}
    template = _template_patch(job, wanted)
    return _guarded(job, changed | ({"template": template} if template else {}))


def marks_for(
    job: Document,
    workload: Document,
    assignment: Document,
    *,
    original: Document,
    flavors: Mapping[str, Document],
) -> Marks:
    """What the pods of one admitted pod set have to carry.

    Args:
        job: Whatever queues.
        workload: Its admitted Workload.
        assignment: Of the pod set.
        original: The pod set's template as its owner wrote it.
        flavors: ResourceFlavor documents by name.

    Raises:
        StartRefused: the template and the admission contradict each other.
    """
    metadata, pod = original.get("metadata") or {}, original.get("spec") or {}
    wanted = Marks(
        selector=dict(pod.get("nodeSelector") or {}),
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(metadata.get("annotations") or {}),
        tolerations=list(pod.get("tolerations") or []),
    )
    for name in dict.fromkeys((assignment.get("flavors") or {}).values()):
        spec = (flavors.get(name) or {}).get("spec") or {}
        wanted.add({"nodeSelector": spec.get("nodeLabels"), "tolerations": spec.get("tolerations")})
    for update in _updates(workload, assignment.get("name", "")):
        wanted.add(update)
    wanted.labels.update(_labels(job, workload, assignment))
    return wanted


def suspend_patch(job: Document) -> dict[str, Any]:
    """The merge patch that stops a Job's pods."""
    return _guarded(job, {"suspend": True})


def restore_patch(job: Document, workload: Document) -> dict[str, Any] | None:
    """The merge patch that takes a start's marks off a stopped Job; None when there are none.

    Only a Job whose status has no start time lets its template be changed.
    """
    if (job.get("status") or {}).get("startTime") or not job["spec"].get("suspend"):
        return None
    pod_set = workload["spec"]["podSets"][0]
    metadata = pod_set["template"].get("metadata") or {}
    pod = pod_set["template"].get("spec") or {}
    wanted = Marks(
        selector=pod.get("nodeSelector") or {},
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        tolerations=pod.get("tolerations") or [],
    )
    template = _template_patch(job, wanted)
    spec = _counts(job, int(pod_set.get("count", 1)))
    if template:
        spec["template"] = template
    return _guarded(job, spec) if spec else None


@dataclass(frozen=True, slots=True)
class Marks:
    """Everything of a pod template that a start may change."""

    selector: dict[str, str]
    labels: dict[str, str]
    annotations: dict[str, str]
    tolerations: list[Document]

    def add(self, update: Document) -> None:
        """Adds what a flavor or a check demands; raises StartRefused on a contradiction."""
        _merge(self.selector, update.get("nodeSelector") or {}, "nodeSelector")
        _merge(self.labels, update.get("labels") or {}, "labels")
        _merge(self.annotations, update.get("annotations") or {}, "annotations")
        more = update.get("tolerations") or ()
        self.tolerations.extend(item for item in more if item not in self.tolerations)


def _template_patch(job: Document, wanted: Marks) -> dict[str, Any]:
    """What makes the live template carry these marks and no others; empty when it does."""
    live = clean_template(job["spec"]["template"])
    metadata, pod = live.get("metadata") or {}, live.get("spec") or {}
    patch: dict[str, Any] = {}
    for part, field, now, then in (
        ("metadata", "labels", metadata.get("labels"), wanted.labels),
        ("metadata", "annotations", metadata.get("annotations"), wanted.annotations),
        ("spec", "nodeSelector", pod.get("nodeSelector"), wanted.selector),
        ("spec", "tolerations", pod.get("tolerations"), wanted.tolerations),
    ):
        if (now or None) != (then or None):
            patch.setdefault(part, {})[field] = _replaced(now, then)
    if "labels" in patch.get("metadata", {}):
        # Never dropped whole: the template of a live Job has the Job controller's own besides.
        patch["metadata"]["labels"] = _rekeyed(metadata.get("labels") or {}, wanted.labels)
    return patch


def _assignment(workload: Document) -> Document:
    admission = (workload.get("status") or {}).get("admission") or {}
    assignments = admission.get("podSetAssignments") or ()
    return assignments[0] if assignments else {}


def _labels(job: Document, workload: Document, assignment: Document) -> dict[str, str]:
    admission = (workload.get("status") or {}).get("admission") or {}
    found = {labels.POD_SET: str(assignment.get("name", "main"))}
    # Only names that fit a label value are told there.
    for label, value in (
        (labels.CLUSTER_QUEUE_NAME, str(admission.get("clusterQueue", ""))),
        (labels.LOCAL_QUEUE_NAME, queue_of(job)),
    ):
        if 0 < len(value) <= 63:
            found[label] = value
    return found


def _updates(workload: Document, name: str) -> Sequence[Document]:
    checks = (workload.get("status") or {}).get("admissionChecks") or ()
    return [
        update
        for check in checks
        for update in check.get("podSetUpdates") or ()
        if update.get("name") == name
    ]


def _counts(job: Document, count: int | None) -> dict[str, Any]:
    """Parallelism (and completions that follow it) for the number of admitted pods."""
    if is_elastic(job):
        return {}  # its size is its owner's to change, at any time
    spec = job["spec"]
    parallelism = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    effective = parallelism if completions is None else min(parallelism, int(completions))
    if count is None or count == effective:
        return {}
    changed: dict[str, Any] = {"parallelism": count}
    if annotations_of(job).get(labels.COMPLETIONS_FOLLOW) == "true":
        changed["completions"] = count
    return changed


def _merge(target: dict[str, Any], more: Mapping[str, Any], what: str) -> None:
    for key, value in more.items():
        if target.get(key, value) != value:
            raise StartRefused(
                f"{what} {key} is {target[key]} already, the admission wants {value}"
            )
        target[key] = value


def _replaced(now: Any, wanted: Any) -> Any:
    """In a merge patch: maps lose keys only by null, lists are replaced whole."""
    if not wanted:
        return None
    if isinstance(wanted, Mapping):
        return _rekeyed(now or {}, wanted)
    return wanted


def _rekeyed(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    gone = dict.fromkeys(key for key in now if key not in wanted)
    return {**gone, **wanted}


def _guarded(job: Document, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": job["metadata"]["resourceVersion"]}, "spec": spec}
