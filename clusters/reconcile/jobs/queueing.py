"""Jobs of every kind that the admission shift queues: one function per question, whatever the kind.

A Job of Kubernetes is ``batch`` and ``running``; every other kind is described in
``adapters.queued``. Documents carry their ``apiVersion`` and ``kind``. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from clusters.documents.keys import Document
from clusters.kube.client import Selection
from clusters.kube.resources import Resource
from clusters.kueue.multikueue.settings import INTEGRATIONS, QUEUED_HERE, DispatchSettings
from clusters.reconcile.jobs import batch, remote, running
from clusters.reconcile.jobs.adapters import Adapter, Adapters
from clusters.reconcile.jobs.adapters.batch_job import BatchJob
from clusters.reconcile.jobs.adapters.leader_worker_sets import SetQueue
from clusters.reconcile.jobs.adapters.pods import PodQueue
from clusters.reconcile.jobs.adapters.queued import queued_of
from clusters.reconcile.jobs.adapters.shapes import resource_of as resource_named
from clusters.reconcile.jobs.batch import Outcome, Priority

_JOB = BatchJob()
_KNOWN = Adapters.of_settings(DispatchSettings(integrations=tuple(INTEGRATIONS.values())))


def kinds_of(settings: DispatchSettings) -> dict[Resource, Selection]:
    """Kinds besides Job that get their Workloads here, as far as a Configuration names them.

    Returns:
        Kind → which of its objects can be jobs.
    """
    named = (resource_named(kind) for kind in settings.kinds if kind in QUEUED_HERE)
    return {resource: _KNOWN.selection_of(resource) for resource in named}


def resource_of(job: Document) -> Resource:
    """The kind of a job."""
    return _adapter(job).resource


def is_clear(job: Document) -> bool:
    """Whether its pods can be told from it; if not, its Workload is somebody else's to make."""
    queued = queued_of(job)
    return queued is None or queued.is_clear(job)


def is_suspended(job: Document) -> bool:
    queued = queued_of(job)
    return batch.is_suspended(job) if queued is None else queued.is_suspended(job)


def is_stopped(job: Document) -> bool:
    """Whether nothing of it is left to be stopped; not the same where parts start by themselves."""
    queued = queued_of(job)
    return batch.is_suspended(job) if queued is None else queued.is_stopped(job)


def is_surplus(job: Document, workload: Document) -> bool:
    """Whether a Workload is one of a part that its job no longer has."""
    queued = queued_of(job)
    return isinstance(queued, SetQueue) and queued.is_surplus(job, workload)


def is_started_here(job: Document, *, is_dispatched: bool) -> bool:
    """Whether a start changes it, here.

    Pods that were dispatched wait here for ever while copies of them run on a worker; a
    LeaderWorkerSet is never changed itself, its pods are.
    """
    queued = queued_of(job)
    if isinstance(queued, SetQueue):
        return False
    return not (is_dispatched and isinstance(queued, PodQueue))


def tells_readiness(job: Document) -> bool:
    """Whether its status says when its pods are ready."""
    return not isinstance(queued_of(job), SetQueue)


def is_active(job: Document) -> bool:
    """Whether pods of it run, as far as its status tells."""
    return _adapter(job).is_active(job)


def is_managed_by_dispatch(job: Document) -> bool:
    """Whether its own cluster leaves it alone so that a worker's copy can speak for it."""
    return not _adapter(job).refusal(job)


def outcome_of(job: Document) -> Outcome | None:
    """How it ended; None while it has not."""
    queued = queued_of(job)
    return batch.outcome_of(job) if queued is None else queued.outcome_of(job)


def pod_sets(job: Document) -> list[dict[str, Any]]:
    """Pod sets as a Workload has them."""
    queued = queued_of(job)
    return [batch.pod_set(job)] if queued is None else queued.pod_sets(job)


def pod_priority_class(job: Document) -> str:
    """``priorityClassName`` of its pods, of the first that name one; else empty."""
    if queued_of(job) is None:
        return batch.pod_priority_class(job)
    named = (
        (item["template"].get("spec") or {}).get("priorityClassName") for item in pod_sets(job)
    )
    return next((str(name) for name in named if name), "")


def workload_for(job: Document, *, priority: Priority) -> dict[str, Any]:
    """The Workload to create for a job that brought none."""
    queued = queued_of(job)
    if queued is None:
        return batch.workload_for(job, priority=priority)
    return queued.workload_for(job, priority=priority)


def is_in_sync(job: Document, workload: Document) -> bool:
    """Whether a Workload still describes its job."""
    queued = queued_of(job)
    if queued is None:
        return batch.is_in_sync(job, workload)
    if is_surplus(job, workload):
        return False
    return not queued.is_clear(job) or queued.is_in_sync(job, workload)


def reclaimable(job: Document) -> int:
    """Pods that are done and will not be replaced; of kinds besides Job none are given back."""
    return batch.reclaimable(job) if queued_of(job) is None else 0


def start_patch(
    job: Document, workload: Document, *, flavors: Mapping[str, Document]
) -> dict[str, Any]:
    """The merge patch that starts it; raises ``running.StartRefused``."""
    queued = queued_of(job)
    if queued is None:
        return running.start_patch(job, workload, flavors=flavors)
    return queued.start_patch(job, workload, flavors=flavors)


def part_to_start(job: Document) -> Document:
    """The object that a start changes: the job, or the next pod of a group."""
    queued = queued_of(job)
    return queued.to_start(job) if isinstance(queued, PodQueue) else job


def part_to_stop(job: Document) -> Document:
    """The object that a stop changes or deletes: the job, or the next pod of a group."""
    queued = queued_of(job)
    return queued.to_stop(job) if isinstance(queued, PodQueue) else job


def missing_owners(job: Document, workload: Document) -> list[dict[str, Any]]:
    """Owners that its Workload should have besides those that it has."""
    queued = queued_of(job)
    return [] if queued is None else queued.missing_owners(job, workload)


def suspend_patch(job: Document) -> dict[str, Any] | None:
    """The merge patch that stops its pods; None where only a deletion stops them."""
    queued = queued_of(job)
    return running.suspend_patch(job) if queued is None else queued.suspend_patch(job)


def restore_patch(job: Document, workload: Document) -> dict[str, Any] | None:
    """The merge patch that takes a start's marks off a stopped job; None when there are none."""
    queued = queued_of(job)
    if queued is None:
        return running.restore_patch(job, workload)
    return queued.restore_patch(job, workload) if queued.is_clear(job) else None


def is_fixed(job: Document) -> bool:
    """Whether its template cannot be changed yet: a Job keeps its start time until it stopped."""
    return queued_of(job) is None and bool((job.get("status") or {}).get("startTime"))


def inactive_patch(job: Document, *, now: datetime) -> dict[str, Any]:
    """The status patch of a Job that says that no pod runs."""
    return remote.status_patch(job, remote.inactive_status(job, now=now))


def _adapter(job: Document) -> Adapter:
    return _KNOWN.of(job) or _JOB
