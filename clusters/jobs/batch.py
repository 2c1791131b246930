"""batch/v1 Job, elastic ones included: plain documents in, values out.

Source: Kueue pkg/controller/jobs/job, pkg/workloadslicing, v0.19.2; spec admission 5, dispatch 2.5,
2.10, 4.1, 4.2.
Deviation: fields by which a Job removes itself are not sent to workers (a copy that vanishes looks
like a lost one and would run again).
"""

from __future__ import annotations

import copy
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
from clusters.documents.keys import Document, annotations_of, status_of
from clusters.documents.numbers import whole_number
from clusters.jobs import counting, remote, workloads
from clusters.jobs.kind import JobKind, JobOutcome, Priority
from clusters.jobs.marking import Marks, marks_for
from clusters.jobs.workloads import POD_SET_NAME, clean_template, containers_of

SLICES_MOST: Final = 10_000
"""A Job that was resized more often than that has to be submitted again."""
_NOT_SENT: Final = ("selector", "manualSelector", "managedBy", "ttlSecondsAfterFinished")
_ANNOUNCED: Final = frozenset({"SuccessCriteriaMet", "FailureTarget"})


def is_managed_by_dispatch(job: Document) -> bool:
    """Whether its own cluster leaves it alone so that a worker's copy can speak for it."""
    return bool(job["spec"].get("managedBy") == labels.MULTIKUEUE)


def is_elastic(job: Document) -> bool:
    """Whether a Job may change its size while it runs: one that is dispatched, or such a copy."""
    if (
        job.get("kind", r.JOB.kind) != r.JOB.kind
        or annotations_of(job).get(labels.ELASTIC) != "true"
    ):
        return False
    return is_managed_by_dispatch(job) or bool(workloads.prebuilt_name(job))


def slice_of(job: Document) -> int:
    """Number of the Workload that stands for its present size; 1 unless it grew."""
    if not is_elastic(job):
        return 1
    return whole_number(annotations_of(job).get(labels.SLICE), most=SLICES_MOST) or 1


def slice_name(job: Document, number: int) -> str:
    """Name of the Workload of a slice, counted from 1, of a Job of the manager."""
    return workloads.made_name_of(job, extra=str(number) if number > 1 else "")


def has_been(job: Document, workload: str) -> bool:
    """Whether a Workload of this name has stood for a Job of the manager, or does."""
    return any(slice_name(job, number) == workload for number in range(slice_of(job), 0, -1))


def pod_count(job: Document) -> int:
    """Pods that run side by side."""
    parallelism = counting.count(job["spec"].get("parallelism"))
    return min(parallelism, counting.count(job["spec"].get("completions"), parallelism))


class BatchJob(JobKind):
    """The Job of Kubernetes."""

    resource = r.JOB
    integration = "batch/job"
    words = "the portal"
    is_required = True
    answers_for_jobs = False
    tells_when = True
    is_placed = True
    pod_index = labels.COMPLETION_INDEX
    managed_by = "managedBy"

    def workload_name_of(self, job: Document) -> str:
        return workloads.prebuilt_name(job) or slice_name(job, slice_of(job))

    def has_several(self, job: Document) -> bool:
        return is_elastic(job)

    def counts(self, job: Document) -> Iterator[tuple[str, Any]]:
        yield from super().counts(job)
        yield counting.mark_of(annotations_of(job), labels.MIN_PARALLELISM)
        for field in ("parallelism", "completions"):
            yield f"spec.{field}", job["spec"].get(field)

    def fault(self, job: Document) -> str:
        slices = [counting.mark_of(annotations_of(job), labels.SLICE)] if is_elastic(job) else []
        return super().fault(job) or counting.fault_of(slices, most=SLICES_MOST)

    def pod_sets(self, job: Document) -> list[dict[str, Any]]:
        """One, without the marks that the Job controller puts on templates."""
        found: dict[str, Any] = {
            "name": POD_SET_NAME,
            "count": pod_count(job),
            "template": clean_template(job["spec"]["template"]),
        }
        fewest = counting.count(annotations_of(job).get(labels.MIN_PARALLELISM), 0)
        if 0 < fewest < found["count"]:
            found["minCount"] = fewest
        return [found]

    def workload_for(
        self, job: Document, *, priority: Priority, is_placed: bool = False
    ) -> dict[str, Any]:
        made = super().workload_for(job, priority=priority, is_placed=is_placed)
        annotations = annotations_of(job)
        copied = {k: v for k, v in annotations.items() if k.startswith("provreq.kueue")}
        if is_elastic(job):
            copied |= {labels.ELASTIC: "true", labels.SLICE_NAME: slice_name(job, 1)}
            if slice_of(job) > 1:
                before = slice_name(job, slice_of(job) - 1)
                copied[labels.SLICE_OF] = f"{job['metadata']['namespace']}/{before}"
        if annotations.get(labels.GATED_BY):
            copied[labels.GATED_BY] = annotations[labels.GATED_BY]
        if copied:
            made["metadata"]["annotations"] = copied
        return made

    def is_in_sync(self, job: Document, workload: Document) -> bool:
        """Compared, as the engine of record does: containers, counts, maximum execution time.

        What starting changes (selectors, tolerations, labels) is not.
        """
        sets = workload["spec"].get("podSets") or []
        seconds = workload["spec"].get("maximumExecutionTimeSeconds")
        if len(sets) != 1 or seconds != workloads.max_execution_seconds(job):
            return False
        wanted, found = pod_count(job), sets[0]
        if containers_of(job["spec"]["template"]) != containers_of(found["template"]):
            return False
        most = int(found.get("count", 1))
        if is_elastic(job) and workloads.prebuilt_name(job):
            return True  # dispatch changes the size of both, one after the other
        return bool(int(found.get("minCount") or most) <= wanted <= most)

    def is_suspended(self, job: Document) -> bool:
        return bool(job["spec"].get("suspend"))

    def is_fixed(self, job: Document) -> bool:
        """A Job keeps its start time, and with it its template, until it has stopped."""
        return bool(status_of(job).get("startTime"))

    def start_patch(
        self, job: Document, workload: Document, *, flavors: Mapping[str, Document]
    ) -> dict[str, Any]:
        """Built on the template as the Workload keeps it: marks of an earlier start go as well."""
        assignment = next(iter(workloads.assignments_of(workload)), {})
        original = workload["spec"]["podSets"][0]["template"]
        wanted = marks_for(
            job, workload, assignment, original=original, flavors=flavors, is_placed=self.is_placed
        )
        changed = {"suspend": False, **_counts(job, assignment.get("count"))}
        template = _template_patch(job, wanted)
        return remote.guarded(job, changed | ({"template": template} if template else {}))

    def suspend_patch(self, job: Document) -> dict[str, Any]:
        return remote.guarded(job, {"suspend": True})

    def restore_patch(self, job: Document, workload: Document) -> dict[str, Any] | None:
        """Only a Job whose status has no start time lets its template be changed."""
        if self.is_fixed(job) or not self.is_suspended(job):
            return None
        pod_set = workload["spec"]["podSets"][0]
        spec = _counts(job, int(pod_set.get("count", 1)))
        template = _template_patch(job, Marks.of(pod_set["template"]))
        if template:
            spec["template"] = template
        return remote.guarded(job, spec) if spec else None

    def are_pods_ready(self, job: Document) -> bool:
        """Pods that are ready, done, or done and not counted yet, are as many as run together."""
        seen = status_of(job)
        uncounted = (seen.get("uncountedTerminatedPods") or {}).get("succeeded") or ()
        good = int(seen.get("ready") or 0) + int(seen.get("succeeded") or 0) + len(uncounted)
        return good >= pod_count(job)

    def reclaimable(self, job: Document) -> int:
        parallelism = counting.count(job["spec"].get("parallelism"))
        status = status_of(job)
        ended = int(status.get("succeeded") or 0)
        if job["spec"].get("completionMode") == "Indexed":
            ended += int(status.get("failed") or 0) if status.get("failedIndexes") else 0
        if parallelism <= 1 or not ended:
            return 0
        left = counting.count(job["spec"].get("completions"), parallelism) - ended
        return max(0, parallelism - max(left, 0))

    def outcome_of(self, job: Document) -> JobOutcome | None:
        for entry in conditions_of(job):
            if entry.get("status") != "True" or entry.get("type") not in ("Complete", "Failed"):
                continue
            reason = "Succeeded" if entry["type"] == "Complete" else "Failed"
            fallback = "Job finished successfully" if reason == "Succeeded" else "Job failed"
            return JobOutcome(reason, entry.get("message") or fallback)
        return None

    def ended_at(self, job: Document) -> str | None:
        completed = status_of(job).get("completionTime")
        if completed or not is_true(job, "Failed"):
            return completed
        return condition(job, "Failed").get("lastTransitionTime")

    def is_active(self, job: Document) -> bool:
        return bool(status_of(job).get("active"))

    def is_stop_due(self, job: Document) -> bool:
        return not self.is_suspended(job)

    def copy_of(
        self, job: Document, workload: Document, *, marks: remote.CopyMarks
    ) -> dict[str, Any]:
        """Suspended; with the template as its owner wrote it, which the Workload keeps."""
        spec = {key: value for key, value in job["spec"].items() if key not in _NOT_SENT}
        pod_set = workload["spec"]["podSets"][0]
        spec["template"] = copy.deepcopy(pod_set["template"])
        if is_elastic(job):
            # It may have grown since; only what its Workload asked for was admitted.
            spec["parallelism"] = pod_set.get("count", 1)
        spec["suspend"] = True
        return {"metadata": remote.copy_metadata(job, workload, marks=marks), "spec": spec}

    def copied_pod_sets(self, workload: Document, answer: Document) -> Sequence[dict[str, Any]]:
        # With the worker's own defaults, so that what it compares with the Job is equal to it.
        template = clean_template(answer["spec"]["template"])
        return [dict(workload["spec"]["podSets"][0]) | {"template": template}]

    def status_patch(
        self, local: Document, copied: Document, *, now: datetime
    ) -> dict[str, Any] | None:
        found = status_copy(local, copied, now=now)
        return None if found is None else remote.status_patch(local, found)

    def follow_patch(self, local: Document, copied: Document) -> dict[str, Any] | None:
        name, size = self.workload_name_of(local), local["spec"].get("parallelism", 1)
        shown = workloads.prebuilt_name(copied), copied["spec"].get("parallelism", 1)
        if shown == (name, size) or not is_elastic(local):
            return None
        patch = remote.guarded(copied, {"parallelism": size})
        patch["metadata"]["annotations"] = {labels.PREBUILT: name}
        return patch

    def inactive_patch(self, local: Document, *, now: datetime) -> dict[str, Any]:
        return remote.status_patch(local, inactive_status(local, now=now))


JOB: Final = BatchJob()


def status_copy(local: Document, copied: Document, *, now: datetime) -> Mapping[str, Any] | None:
    """Follow a worker's Job without ever writing a status that an API server refuses.

    A suspended Job may not have a start time, so the status of a running copy waits until the
    manager has started its own.
    """
    status = _without_interim_ends(copied)
    is_suspended = JOB.is_suspended(local)
    if is_suspended and not JOB.is_suspended(copied) and JOB.outcome_of(copied) is None:
        if is_true(local, "Suspended"):
            return None
        change = _suspended("MultiKueueAdapter", "Set by MultiKueue adapter")
        found = with_conditions(local, [change], now=now)
        return {**status_of(local), "conditions": found}
    before = status_of(local)
    if JOB.outcome_of(local) is not None or status == before:
        return None
    if not is_suspended and JOB.is_suspended(copied) and before.get("startTime"):
        # Only a Job known as suspended may lose its start time; its own stop comes first.
        status["startTime"] = before["startTime"]
    return status if status != before else None


def inactive_status(local: Document, *, now: datetime) -> dict[str, Any]:
    """The status of a Job whose copy is proved to be gone: no pods, suspended."""
    change = _suspended("JobSuspended", "Its copy on the worker is gone")
    kept = {
        key: value
        for key, value in status_of(local).items()
        if key not in ("startTime", "active", "ready", "terminating", "conditions")
    }
    found = with_conditions(local, [change], now=now)
    return {**kept, "active": 0, "ready": 0, "conditions": found}


def _suspended(reason: str, message: str) -> Condition:
    """Jobs' conditions know no generation."""
    return Condition("Suspended", True, reason, message, is_observed=False)


def _without_interim_ends(copied: Document) -> dict[str, Any]:
    """A copy's status; what only announces its end is left out until the end itself is there.

    An API server lets nobody take these conditions back, and an eviction in between would leave
    them on a Job that runs once more.
    """
    status = dict(status_of(copied))
    if JOB.outcome_of(copied) is None and "conditions" in status:
        kept = [item for item in status.pop("conditions") if item["type"] not in _ANNOUNCED]
        status |= {"conditions": kept} if kept else {}
    return status


def _template_patch(job: Document, wanted: Marks) -> dict[str, Any]:
    """What makes the live template carry these marks and no others; empty when it does."""
    live = Marks.of(clean_template(job["spec"]["template"]))
    patch: dict[str, Any] = {}
    for (part, field, then), (_, _, now) in zip(wanted.fields(), live.fields(), strict=True):
        if now == then:
            continue
        if isinstance(then, Mapping) and (then or field == "labels"):
            # Labels never go whole: a live Job's template has the Job controller's own besides.
            then = remote.replacing(now, then)
        patch.setdefault(part, {})[field] = then or None
    return patch


def _counts(job: Document, count: int | None) -> dict[str, Any]:
    """Parallelism (and completions that follow it) for the number of admitted pods."""
    if is_elastic(job):
        return {}  # its size is its owner's to change, at any time
    if count is None or count == pod_count(job):
        return {}
    changed: dict[str, Any] = {"parallelism": count}
    if annotations_of(job).get(labels.COMPLETIONS_FOLLOW) == "true":
        changed["completions"] = count
    return changed
