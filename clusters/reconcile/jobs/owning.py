"""Which Workloads a job has, and which job a Workload stands for. Pure.

Most jobs have one Workload and most Workloads one job; a group of pods shares one, and a
LeaderWorkerSet has one for each replica. Where it is not one to one, a *view* is a document of the
kind that says which part of it is meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clusters.documents.keys import Document
from clusters.reconcile.jobs import batch
from clusters.reconcile.jobs.adapters import leader_worker_sets, pods


def workload_keys(job: Document) -> tuple[str, ...]:
    """Keys of the Workloads that a job has, or will have."""
    namespace = job["metadata"]["namespace"]
    names: Iterable[str] = (
        leader_worker_sets.workload_names(job)
        if leader_worker_sets.is_set(job)
        else (batch.workload_name_of(job),)
    )
    return tuple(f"{namespace}/{name}" for name in names)


def seen_from(job: dict[str, Any], workload: str) -> dict[str, Any]:
    """A job as the Workload of a key means it."""
    if not leader_worker_sets.is_set(job):
        return job
    return leader_worker_sets.view_of(job, workload.partition("/")[2])


def job_of(workload: Document | None, jobs: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The job that a Workload stands for: its owner, else the oldest that names it."""
    listed = list(jobs)
    # Of a replica that was dispatched here, its pods are what starts and stops.
    of_replica = [job for job in listed if pods.is_pod(job)]
    listed = of_replica or listed
    owner = batch.owner_uid(workload) if workload is not None else ""
    if owner:
        listed = [job for job in listed if job["metadata"].get("uid") == owner]
    found = next(iter(listed), None)
    return pods.view_of(listed) if found is not None and pods.is_pod(found) else found
