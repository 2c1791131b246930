"""Kinds besides Job that queue: their pod sets, their starts and stops, their ends. Pure.

Described by paths below ``spec``; what a start marks (selectors, tolerations, labels) goes into
each pod set's template and comes off again.
Source: Kueue pkg/controller/jobs/{jobset,kubeflow,rayjob}, pkg/podset, v0.19.2; spec admission 5.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from clusters.documents.keys import Document
from clusters.reconcile.jobs import batch, remote, running
from clusters.reconcile.jobs.adapters.adapter import Queueing
from clusters.reconcile.jobs.adapters.leader_worker_sets import GROUP, KIND, SetQueue
from clusters.reconcile.jobs.adapters.paths import ANY, Path, entries, put, values
from clusters.reconcile.jobs.adapters.pods import PodQueue
from clusters.reconcile.jobs.batch import Outcome, Priority

_GOOD: Final = ("ready", "succeeded")
_ENDS: Final[Mapping[str, str]] = {
    "Complete": "Succeeded",
    "Completed": "Succeeded",
    "Succeeded": "Succeeded",
    "Failed": "Failed",
}


@dataclass(frozen=True, slots=True)
class PodSetsAt:
    """Where pod sets stand in ``spec``.

    Attributes:
        at: Path of each; ``*`` for every entry of a list or map.
        template: Pod template below it.
        counts: Factors of the number of pods, each the least of what stands at its paths, 1 where
            nothing does.
        name: Fixed name, or a field below it; empty for the key in a map.
    """

    at: Path
    template: Path = ("template",)
    counts: tuple[tuple[Path, ...], ...] = ((("replicas",),),)
    name: str = ""
    name_field: str = ""


@dataclass(frozen=True, slots=True)
class Queued:
    """One kind that queues.

    Attributes:
        suspend: Field of ``spec`` that stops it.
        pod_sets_at: Where its pod sets stand.
        order: Names that go first, in this order.
        result: Field of ``status`` with the end, and what its values mean; else conditions tell.
        ready: Condition that says that all pods run; empty where ``ready_at`` tells.
        ready_at: Field of ``status`` and its value once all pods run.
        ready_counts: List in ``status`` whose entries, by name, count replicas that are ready or
            done.
        unclear: Field of ``spec``, values of it, another field: with such a value and without the
            other field its pod sets cannot be told.
    """

    suspend: Path
    pod_sets_at: tuple[PodSetsAt, ...]
    order: tuple[str, ...] = ()
    result: tuple[Path, Mapping[str, str]] = ((), {})
    ready: str = ""
    ready_at: tuple[Path, str] = ((), "")
    ready_counts: str = ""
    unclear: tuple[Path, tuple[str, ...], Path] = ((), (), ())

    def is_clear(self, job: Document) -> bool:
        """Whether its pod sets can be told; if not, its Workload is somebody else's to make."""
        field, words, other = self.unclear
        spec = job["spec"]
        return not field or (
            next(values(spec, field), "") not in words
            or next(values(spec, other), None) is not None
        )

    def pod_sets(self, job: Document) -> list[dict[str, Any]]:
        """Pod sets as a Workload has them."""
        found = [
            {"name": name, "count": count, "template": batch.clean_template(template)}
            for name, count, template in self._found(job["spec"])
        ]
        rank = {name: place for place, name in enumerate(self.order)}
        return sorted(found, key=lambda item: rank.get(str(item["name"]), len(rank)))

    def is_suspended(self, job: Document) -> bool:
        return bool(next(values(job["spec"], self.suspend), False))

    def is_stopped(self, job: Document) -> bool:
        return self.is_suspended(job)

    def missing_owners(self, job: Document, workload: Document) -> list[dict[str, Any]]:
        return []

    def outcome_of(self, job: Document) -> Outcome | None:
        """How it ended; None while it has not."""
        status = job.get("status") or {}
        field, words = self.result
        if field:
            text = str(next(values(status, field), ""))
            reason = words.get(text)
            return Outcome(reason, str(status.get("message") or text)) if reason else None
        for entry in status.get("conditions") or ():
            reason = _ENDS.get(str(entry.get("type")))
            if reason and entry.get("status") == "True":
                return Outcome(reason, str(entry.get("message") or f"{job['kind']} {reason}"))
        return None

    def are_pods_ready(self, job: Document) -> bool:
        """Whether all of its pods run or are done, as far as its status tells."""
        status = job.get("status") or {}
        if self.ready:
            listed = status.get("conditions") or ()
            return any(c.get("type") == self.ready and c.get("status") == "True" for c in listed)
        field, value = self.ready_at
        if field:
            return bool(next(values(status, field), "") == value)
        seen = {item.get("name"): item for item in status.get(self.ready_counts) or ()}
        return all(
            sum(int(seen.get(entry.get("name"), {}).get(word) or 0) for word in _GOOD)
            >= int(entry.get("replicas", 1))
            for place in self.pod_sets_at
            for _, entry in entries(job["spec"], place.at)
        )

    def is_in_sync(self, job: Document, workload: Document) -> bool:
        """Whether a Workload still describes it: the same pod sets, containers and counts."""
        wanted, found = self.pod_sets(job), workload["spec"].get("podSets") or []
        return [_compared(item) for item in wanted] == [_compared(item) for item in found]

    def workload_for(self, job: Document, *, priority: Priority) -> dict[str, Any]:
        """The Workload to create for it."""
        return batch.workload_around(job, self.pod_sets(job), priority=priority)

    def start_patch(
        self, job: Document, workload: Document, *, flavors: Mapping[str, Document]
    ) -> dict[str, Any]:
        """The merge patch that starts it.

        Raises:
            StartRefused: a template and the admission contradict each other.
        """
        admission = (workload.get("status") or {}).get("admission") or {}
        assigned = {item["name"]: item for item in admission.get("podSetAssignments") or ()}
        wanted = {}
        for item in workload["spec"]["podSets"]:
            original = item["template"]
            assignment = assigned.get(item["name"], {"name": item["name"]})
            marks = running.marks_for(job, workload, assignment, original=original, flavors=flavors)
            wanted[item["name"]] = _marked(original, marks)
        spec = self._with_templates(job["spec"], wanted)
        put(spec, self.suspend, False)
        return _guarded(job, remote.replacing(job["spec"], spec))

    def suspend_patch(self, job: Document) -> dict[str, Any]:
        """The merge patch that stops it."""
        spec: dict[str, Any] = {}
        put(spec, self.suspend, True)
        return _guarded(job, spec)

    def restore_patch(self, job: Document, workload: Document) -> dict[str, Any] | None:
        """The merge patch that takes a start's marks off; None when there are none."""
        wanted = {item["name"]: item["template"] for item in workload["spec"]["podSets"]}
        live = {item["name"]: item["template"] for item in self.pod_sets(job)}
        if live == wanted:
            return None
        return _guarded(job, remote.replacing(job["spec"], self.unmarked(job["spec"], workload)))

    def unmarked(self, spec: Document, workload: Document) -> dict[str, Any]:
        """``spec`` with the templates as its owner wrote them, which its Workload keeps."""
        wanted = {item["name"]: item["template"] for item in workload["spec"]["podSets"]}
        return self._with_templates(spec, wanted)

    def _found(self, spec: Document) -> Iterator[tuple[str, int, Document]]:
        for place in self.pod_sets_at:
            for key, entry in entries(spec, place.at):
                template = next(values(entry, place.template), None)
                if template is None:
                    continue
                yield _name(place, key, entry), _count(place, entry), template

    def _with_templates(self, spec: Document, templates: Mapping[str, Document]) -> dict[str, Any]:
        changed = copy.deepcopy(dict(spec))
        for place in self.pod_sets_at:
            for key, entry in entries(changed, place.at):
                template = templates.get(_name(place, key, entry))
                if template is not None and next(values(entry, place.template), None) is not None:
                    put(entry, place.template, copy.deepcopy(dict(template)))
        return changed


def _name(place: PodSetsAt, key: str, entry: Document) -> str:
    if place.name:
        return place.name
    return str(entry.get(place.name_field) if place.name_field else key).lower()


def _count(place: PodSetsAt, entry: Document) -> int:
    count = 1
    for factor in place.counts:
        numbers = [int(n) for path in factor for n in values(entry, path) if n is not None]
        count *= min(numbers, default=1)
    return count


def _compared(pod_set: Mapping[str, Any]) -> tuple[Any, ...]:
    name, count = str(pod_set.get("name", "")), int(pod_set.get("count", 1))
    return name, count, batch.containers_of(pod_set["template"])


def _marked(template: Document, marks: running.Marks) -> dict[str, Any]:
    found = copy.deepcopy(dict(template))
    metadata, pod = found.setdefault("metadata", {}), found.setdefault("spec", {})
    for node, field, value in (
        (metadata, "labels", marks.labels),
        (metadata, "annotations", marks.annotations),
        (pod, "nodeSelector", marks.selector),
        (pod, "tolerations", marks.tolerations),
    ):
        if value:
            node[field] = value
    return found


def _guarded(job: Document, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": job["metadata"]["resourceVersion"]}, "spec": spec}


def _replicas(field: str, *order: str) -> Queued:
    """A kind of Kubeflow: a map of replica types."""
    return Queued(
        suspend=("runPolicy", "suspend"),
        pod_sets_at=(PodSetsAt((field, ANY)),),
        order=order,
        ready="Running",
    )


_RAY_GROUPS: Final = (
    PodSetsAt(("headGroupSpec",), counts=(), name="head"),
    PodSetsAt(
        ("workerGroupSpecs", ANY),
        counts=((("replicas",),), (("numOfHosts",),)),
        name_field="groupName",
    ),
)
QUEUED: Final[Mapping[tuple[str, str], Queueing]] = {
    ("", "Pod"): PodQueue(),
    (GROUP, KIND): SetQueue(),
    ("jobset.x-k8s.io", "JobSet"): Queued(
        suspend=("suspend",),
        pod_sets_at=(
            PodSetsAt(
                ("replicatedJobs", ANY),
                template=("template", "spec", "template"),
                counts=(
                    (("replicas",),),
                    (("template", "spec", "parallelism"), ("template", "spec", "completions")),
                ),
                name_field="name",
            ),
        ),
        ready_counts="replicatedJobsStatus",
    ),
    ("kubeflow.org", "PyTorchJob"): _replicas("pytorchReplicaSpecs", "master", "worker"),
    ("kubeflow.org", "TFJob"): _replicas("tfReplicaSpecs", "chief", "master", "ps", "worker"),
    ("kubeflow.org", "XGBoostJob"): _replicas("xgbReplicaSpecs", "master", "worker"),
    ("kubeflow.org", "PaddleJob"): _replicas("paddleReplicaSpecs", "master", "worker"),
    ("kubeflow.org", "JAXJob"): _replicas("jaxReplicaSpecs", "worker"),
    ("kubeflow.org", "MPIJob"): _replicas("mpiReplicaSpecs", "launcher", "worker"),
    ("ray.io", "RayCluster"): Queued(
        suspend=("suspend",),
        pod_sets_at=_RAY_GROUPS,
        ready_at=(("state",), "ready"),
    ),
    ("ray.io", "RayJob"): Queued(
        suspend=("suspend",),
        pod_sets_at=(
            *(replace(place, at=("rayClusterSpec", *place.at)) for place in _RAY_GROUPS),
            PodSetsAt((), template=("submitterPodTemplate",), counts=(), name="submitter"),
        ),
        result=(
            ("jobStatus",),
            {"SUCCEEDED": "Succeeded", "FAILED": "Failed", "STOPPED": "Failed"},
        ),
        # Without a template KubeRay makes the submitter's pod up by itself.
        unclear=(("submissionMode",), ("", "K8sJobMode"), ("submitterPodTemplate",)),
        ready_at=(("rayClusterStatus", "state"), "ready"),
    ),
}


def queued_of(job: Document) -> Queueing | None:
    """How a job of a kind besides Job queues; None for kinds whose owners queue them."""
    group = str(job.get("apiVersion", "")).rpartition("/")[0]
    return QUEUED.get((group, str(job.get("kind", ""))))
