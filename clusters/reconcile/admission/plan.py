"""One Workload and its Job: which single write brings them one step further.

Pure and level-triggered. The engine's cycle decides about quota; everything else of a workload's
life is here: made for its Job, adopted, started, stopped, released, finished.

Source: Kueue pkg/controller/jobframework/reconciler.go, v0.19.2; spec admission 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusters.documents import labels
from clusters.documents.conditions import Condition, is_true
from clusters.documents.keys import Document, annotations_of, key_of, labels_of
from clusters.documents.queues import FLEET_QUEUE
from clusters.jobs.batch import slice_of
from clusters.jobs.kind import Priority
from clusters.jobs.marking import StartRefused
from clusters.jobs.table import is_below_other_kind, kind_of
from clusters.jobs.workloads import (
    POD_SET_NAME,
    max_execution_seconds,
    owner_reference,
    owner_uid,
    prebuilt_name,
    queue_of,
)
from clusters.kube import resources as r
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.lifecycle.decide import next_steps
from clusters.kueue.lifecycle.steps import LookAgain
from clusters.reconcile import workload_status as status
from clusters.reconcile.admission import pods_ready, slices
from clusters.reconcile.admission.steps import (
    metadata_write,
    spec_write,
    status_write,
    step_write,
)
from clusters.reconcile.runtime.job_cache import JobCache
from clusters.reconcile.runtime.writer import Verb, Write

OUT_OF_SYNC_MESSAGE = "The prebuilt workload is out of sync with its user job"
_LEFT_ALONE = (
    "spec.{path} is {value}, which leaves this {kind} to another cluster, and nobody runs it on "
    "this one: delete it and submit it again without that field"
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a plan looks at besides the workload and its Job.

    Attributes:
        engine: Knows queues, checks and classes.
        cache: Of the cluster.
        now: Current time.
        is_single: Nothing is dispatched from here: jobs run here or nowhere.
        has_own_queue: Jobs are dispatched from queue ``fleet`` alone.
    """

    engine: Engine
    cache: JobCache
    now: datetime
    is_single: bool = False
    has_own_queue: bool = False

    @property
    def is_fine(self) -> bool:
        """Whether conditions have the finer reasons why a workload waits."""
        return self.engine.configuration.gates.unadmitted_workloads_observability


@dataclass(frozen=True, slots=True)
class Plan:
    """At most one write, and when time alone asks for another look."""

    write: Write | None = None
    look_again: datetime | None = None


def plan(workload: Document | None, job: Document | None, around: Surroundings) -> Plan:
    """Say what to write next.

    Args:
        workload: As the API server has it; None when there is none.
        job: The Job that it stands for; None when there is none (yet).
        around: Engine and classes.
    """
    if workload is None:
        return Plan(_without_workload(job, around)) if job is not None else Plan()
    for write in (_ending(workload, job, around), _adopting(workload, job, around)):
        if write is not None:
            return Plan(write)
    if is_true(workload, "Finished") or _is_deleting(workload):
        return Plan(_at_rest(workload, job))
    write, again = _life(workload, around)
    if write is None:
        write = _job_step(workload, job, around)
    return Plan(write, again)


def _without_workload(job: Document, around: Surroundings) -> Write | None:
    """A Job without a Workload does not run; unless somebody else makes it, it gets one."""
    kind = kind_of(job)
    if kind.outcome_of(job) is not None or _is_deleting(job):
        return None
    fault = kind.fault(job)
    if is_below_other_kind(job) or not (fault or kind.is_clear(job)):
        return None
    if not queue_of(job):
        return _to_default_queue(job, around)
    if not kind.is_stopped(job) and slice_of(job) == 1:
        return _stop(job)
    if fault or labels.REFUSED in annotations_of(job):
        return _refusing(job, fault)
    if prebuilt_name(job):
        return None
    flavors = around.engine.state.snapshot.flavors.values()
    has_topology = any(flavor.topology for flavor in flavors)
    priority = _priority_of(job, around)
    body = kind.workload_for(job, priority=priority, is_placed=has_topology)
    metadata, told = body["metadata"], labels_of(job)
    keys = around.engine.configuration.copied_labels
    if copied := {key: told[key] for key in keys if key in told}:
        metadata["labels"] = copied | metadata.get("labels", {})
    if alone := _left_alone(job, around):
        metadata["annotations"] = {**(metadata.get("annotations") or {}), labels.REFUSED: alone}
    return Write(
        "create-workload", Verb.CREATE, r.WORKLOAD, metadata["namespace"], metadata["name"], body
    )


def _left_alone(job: Document, around: Surroundings) -> str:
    """Why a job would hold quota and never run, a sentence; empty when somebody runs it."""
    kind = kind_of(job)
    runs_here = around.is_single or (around.has_own_queue and queue_of(job) != FLEET_QUEUE)
    if not runs_here or not kind.is_left_to_dispatch(job):
        return ""
    return _LEFT_ALONE.format(
        path=kind.managed_by, value=labels.MULTIKUEUE, kind=kind.resource.kind
    )


def _refusing(job: Document, fault: str) -> Write | None:
    """Say on a job what nobody can count with, or take that back; None when it is said."""
    if fault == annotations_of(job).get(labels.REFUSED, "") or not kind_of(job).speaks(job):
        return None
    marks = {labels.REFUSED: fault or None}
    return metadata_write("refuse", job, resource=kind_of(job).resource, annotations=marks)


def _to_default_queue(job: Document, around: Surroundings) -> Write | None:
    """A Job that names no queue is under the namespace's default queue, where there is one."""
    namespace = job["metadata"]["namespace"]
    has_default = f"{namespace}/{labels.DEFAULT_QUEUE}" in around.engine.state.queues.local_queues
    if not has_default or not kind_of(job).speaks(job):
        return None
    marks = {labels.QUEUE: labels.DEFAULT_QUEUE}
    return metadata_write("default-queue", job, resource=kind_of(job).resource, labels=marks)


def _priority_of(job: Document, around: Surroundings) -> Priority:
    """WorkloadPriorityClass by label, else the pods' PriorityClass, else the default, else 0."""
    name = labels_of(job).get(labels.PRIORITY_CLASS, "")
    value = around.engine.state.priority_classes.get(name)
    if name and value is not None:
        reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
        return Priority(value, reference)
    name = kind_of(job).pod_priority_class(job)
    classes = around.cache.of(r.PRIORITY_CLASS)
    chosen = classes.get(name)
    if chosen is None:
        defaults = [item for item in classes.values() if item.get("globalDefault")]
        chosen = max(defaults, key=lambda item: int(item.get("value") or 0), default=None)
    if chosen is None:
        return Priority()
    name = chosen["metadata"]["name"]
    reference = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name}
    return Priority(int(chosen.get("value") or 0), reference)


def _ending(workload: Document, job: Document | None, around: Surroundings) -> Write | None:
    """The Job ended: so does the workload. On a manager, dispatch writes that end."""
    if job is None or is_true(workload, "Finished") or _is_deleting(workload):
        return None
    outcome = kind_of(job).outcome_of(job)
    successor = around.cache.successor_of(key_of(workload))
    if outcome is None and successor is not None and slices.is_over_to(successor, workload):
        text = slices.replaced_message(successor)
        return _finish(workload, status.REPLACED, text, around)
    if outcome is None or (not kind_of(job).refusal(job) and _is_dispatched(workload)):
        return None
    if owner_uid(workload) not in ("", job["metadata"]["uid"]):
        return None
    return _finish(workload, outcome.reason, outcome.message, around)


def _adopting(workload: Document, job: Document | None, around: Surroundings) -> Write | None:
    """Keep Workload and Job about the same thing; take a prebuilt Workload on."""
    if job is None or is_true(workload, "Finished") or _is_deleting(workload):
        return None
    if not slices.is_current(job, workload):
        return None
    kind, is_prebuilt = kind_of(job), bool(prebuilt_name(job))
    alone = _left_alone(job, around)
    if alone and annotations_of(workload).get(labels.REFUSED) != alone:
        return metadata_write("park", workload, annotations={labels.REFUSED: alone})
    fault = kind.fault(job) or alone
    if fault or labels.REFUSED in annotations_of(job):
        return _refusing(job, fault)  # what was admitted before stands
    if not kind.is_in_sync(job, workload):
        return _out_of_sync(workload, job, is_prebuilt, around)
    missing = kind.missing_owners(job, workload)
    if missing:
        return _adopt(workload, missing)
    if not is_prebuilt:
        return _moving(workload, job) or _changing_class(workload, job, around)
    if owner_uid(workload) or not kind.controls(job):
        return None
    return _adopt(workload, [owner_reference(job)], uid=job["metadata"]["uid"])


def _adopt(workload: Document, owners: list[dict[str, Any]], *, uid: str = "") -> Write:
    """Take a Workload on: further owners, and the label of the one that controls it."""
    marks: dict[str, Any] = {"labels": {labels.JOB_UID: uid}} if uid else {}
    all_owners = [*(workload["metadata"].get("ownerReferences") or ()), *owners]
    return metadata_write("adopt", workload, ownerReferences=all_owners, **marks)


def _moving(workload: Document, job: Document) -> Write | None:
    """A Job that was put under another queue takes its Workload along, while that waits."""
    wanted = queue_of(job)
    is_same = wanted in ("", workload["spec"].get("queueName"))
    if is_same or is_true(workload, "QuotaReserved"):
        return None
    return spec_write("move", workload, queueName=wanted)


def _changing_class(workload: Document, job: Document, around: Surroundings) -> Write | None:
    """A Job that was given another WorkloadPriorityClass takes its Workload along."""
    name = labels_of(job).get(labels.PRIORITY_CLASS, "")
    value = around.engine.state.priority_classes.get(name)
    shown = workload["spec"].get("priorityClassRef") or {}
    if value is None or (shown.get("group"), shown.get("name")) == (r.KUEUE_GROUP, name):
        return None
    if is_true(workload, "QuotaReserved") and shown.get("group") != r.KUEUE_GROUP:
        return None  # which kind of class it has stays while quota is reserved
    reference = {"group": r.KUEUE_GROUP, "kind": "WorkloadPriorityClass", "name": name}
    return spec_write("set-class", workload, priorityClassRef=reference, priority=value)


def _out_of_sync(
    workload: Document, job: Document, is_prebuilt: bool, around: Surroundings
) -> Write | None:
    if is_prebuilt:
        return _finish(workload, "OutOfSync", OUT_OF_SYNC_MESSAGE, around)
    if slices.is_resized(job, workload):
        return slices.resize(job, workload)
    if not kind_of(job).is_stopped(job):
        return _stop(job)
    if is_true(workload, "QuotaReserved") or kind_of(job).is_surplus(job, workload):
        return Write.delete("delete-workload", r.WORKLOAD, workload)
    return spec_write(
        "rewrite",
        workload,
        podSets=kind_of(job).asked(job),
        maximumExecutionTimeSeconds=max_execution_seconds(job),
    )


def _at_rest(workload: Document, job: Document | None) -> Write | None:
    """Finished or being deleted: nothing of it may run, and nothing of ours holds it back."""
    live = job if job is not None and kind_of(job).outcome_of(job) is None else None
    runs = live is not None and not kind_of(live).is_stopped(live)
    if live is not None and runs and not slices.was_replaced(workload):
        return _stop(live)
    finalizers = workload["metadata"].get("finalizers") or []
    if not _is_deleting(workload) or labels.IN_USE_FINALIZER not in finalizers:
        return None
    if live is not None and kind_of(live).is_active(live):
        return None
    left = [item for item in finalizers if item != labels.IN_USE_FINALIZER]
    return metadata_write("unfinalize", workload, finalizers=left or None)


def _life(workload: Document, around: Surroundings) -> tuple[Write | None, datetime | None]:
    """The engine's own steps: checks, stops, time-outs, deactivation, requeueing."""
    for step in next_steps(around.engine, workload, now=around.now):
        if isinstance(step, LookAgain):
            return None, step.at
        first = pods_ready.first_condition(workload, around.engine.configuration)
        found = step_write(workload, step, now=around.now, more=first, is_fine=around.is_fine)
        return found, None
    return None, None


def _job_step(workload: Document, job: Document | None, around: Surroundings) -> Write | None:
    """Make the Job do what its Workload may."""
    is_evicted, has_quota = is_true(workload, "Evicted"), is_true(workload, "QuotaReserved")
    may_run = is_true(workload, "Admitted") and has_quota and not is_evicted
    if job is None:
        owner = owner_uid(workload)
        if is_evicted and has_quota and not owner:
            return _release(workload, around)
        return None
    if not may_run:
        if slices.takes_over(workload, around.cache.of(r.WORKLOAD)):
            return None
        if not kind_of(job).is_stopped(job):
            return _stop(job)
        if is_evicted and has_quota:
            return None if kind_of(job).is_active(job) else _release(workload, around)
        # Quota may be reserved again before the marks of the last start are off.
        reset = _reset(workload, job, around)
        return reset if has_quota else reset or _first(workload, around)
    if not kind_of(job).is_started_here(is_dispatched=_is_dispatched(workload)):
        return _running(workload, job, around)
    if kind_of(job).is_suspended(job):
        return _start(workload, job, around)
    return _running(workload, job, around)


def _reset(workload: Document, job: Document, around: Surroundings) -> Write | None:
    """Take the marks of the last start off a stopped Job."""
    kind = kind_of(job)
    if not kind.refusal(job) and kind.is_fixed(job):
        # No Job controller answers for it, and its copy may be gone before its end was copied.
        patch = kind.inactive_patch(job, now=around.now)
        if patch is None:
            return None
        return Write.patch("clear-start", kind.resource, job, patch, subresource="status")
    restore = kind.restore_patch(job, workload)
    return _job_write("restore", job, restore) if restore is not None else None


def _first(workload: Document, around: Surroundings) -> Write | None:
    """What a workload says of its pods that no cycle has come to yet."""
    first = pods_ready.first_condition(workload, around.engine.configuration)
    if not first:
        return None
    return status_write(
        "explain", workload, status.conditions_patch(workload, first, now=around.now)
    )


def _start(workload: Document, job: Document, around: Surroundings) -> Write | None:
    if kind_of(job).is_fixed(job):
        # The Job controller has not noted the stop yet; until then the template is fixed.
        return None
    try:
        flavors = around.cache.of(r.RESOURCE_FLAVOR)
        patch = kind_of(job).start_patch(job, workload, flavors=flavors)
    except StartRefused as error:
        return _finish(workload, "FailedToStart", str(error), around)
    return _job_write("start", kind_of(job).part_to_start(job), patch)


def _running(workload: Document, job: Document, around: Surroundings) -> Write | None:
    """Follow a running Job: pods that are ready, pods that are done."""
    done = kind_of(job).reclaimable(job)
    shown = (workload.get("status") or {}).get("reclaimablePods") or ()
    before = max((int(item.get("count") or 0) for item in shown), default=0)
    if done > before:
        pods = [{"name": POD_SET_NAME, "count": done}]
        return status_write("reclaim", workload, status.guarded(workload, reclaimablePods=pods))
    if around.engine.configuration.pods_ready is None or not kind_of(job).tells_readiness:
        return None
    change = pods_ready.changed_condition(workload, job)
    if change is None:
        return None
    patch = status.conditions_patch(workload, [change], now=around.now)
    return status_write("pods-ready", workload, patch)


def _release(workload: Document, around: Surroundings) -> Write:
    patch = status.release_patch(workload, now=around.now, is_fine=around.is_fine)
    return status_write("release", workload, patch)


def _finish(workload: Document, reason: str, message: str, around: Surroundings) -> Write:
    change = Condition("Finished", True, reason, message)
    patch = status.conditions_patch(workload, [change], now=around.now)
    return status_write("finish", workload, patch)


def _is_dispatched(workload: Document) -> bool:
    return bool((workload.get("status") or {}).get("clusterName"))


def _stop(job: Document) -> Write:
    """Stop a job, or the next pod of one that only a deletion stops."""
    part, patch = kind_of(job).part_to_stop(job), kind_of(job).suspend_patch(job)
    if patch is not None:
        return _job_write("suspend", part, patch)
    return Write.delete("suspend", kind_of(part).resource, part)


def _is_deleting(document: Document) -> bool:
    return bool(document["metadata"].get("deletionTimestamp"))


def _job_write(step: str, job: Document, body: dict[str, Any]) -> Write:
    return Write.patch(step, kind_of(job).resource, job, body)
