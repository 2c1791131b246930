"""Puts together what a dispatch decision looks at: the workload, its Job, its copies. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from clusters.kube import resources as r
from clusters.kueue.multikueue import Copy, Group
from clusters.reconcile.admission.image import Image, job_of
from clusters.reconcile.jobs import batch, keys, remote
from clusters.reconcile.jobs.conditions import condition
from clusters.reconcile.jobs.keys import Document


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers of one check as they are now.

    Attributes:
        images: By connected worker.
        lost: Unconnected workers, and since when.
        closed: Workers that take nothing new, and why.
        blocked: Why a workload may not go to a worker now: (key, worker) → reason.
        foreign: (key, worker) where somebody else's object has the name.
        origin: This manager's mark.
        worker_lost_timeout: How long a lost worker is waited for.
    """

    images: Mapping[str, Image]
    lost: Mapping[str, datetime]
    closed: Mapping[str, str]
    blocked: Mapping[tuple[str, str], str]
    foreign: frozenset[tuple[str, str]]
    origin: str
    worker_lost_timeout: timedelta


def local_job(manager: Image, key: str) -> dict[str, Any] | None:
    """The manager's Job of a Workload."""
    return job_of(manager.get(r.WORKLOAD, key), manager.jobs_for(key))


def attempt_of(local: Document) -> str:
    """Names a reservation of a Workload: copies of an earlier one are stale."""
    since = condition(local, "QuotaReserved").get("lastTransitionTime", "")
    return f"{local['metadata']['uid']}@{since}"


def group_for(key: str, manager: Image, fleet: Fleet, *, check: str, now: datetime) -> Group:
    """Everything about one workload.

    Args:
        key: ``namespace/name`` of the Workload.
        manager: The manager's image.
        fleet: The workers.
        check: Name of the AdmissionCheck; empty when the workload lists none.
        now: Current time.
    """
    local = manager.get(r.WORKLOAD, key)
    job = local_job(manager, key)
    attempt = attempt_of(local) if local is not None else ""
    return Group(
        local=local,
        check=check,
        now=now,
        copies={
            name: _copy(key, name, image, fleet, attempt) for name, image in fleet.images.items()
        },
        lost=fleet.lost,
        blocked={
            **fleet.closed,
            **{name: why for (of, name), why in fleet.blocked.items() if of == key},
        },
        refusal=_refusal(local, job),
        is_job_active=job is not None and batch.is_active(job),
        worker_lost_timeout=fleet.worker_lost_timeout,
    )


def _copy(key: str, worker: str, image: Image, fleet: Fleet, attempt: str) -> Copy:
    workload = image.get(r.WORKLOAD, key)
    jobs = image.jobs_for(key)
    job = jobs[0] if jobs else None
    is_foreign = (key, worker) in fleet.foreign
    marked = workload if workload is not None else job
    return Copy(
        workload=workload,
        is_ours=remote.is_ours(workload, fleet.origin),
        is_current=marked is None or keys.annotations_of(marked).get(keys.ATTEMPT) == attempt,
        is_as_sent=workload is None or is_as_sent(workload),
        has_job=job is not None or is_foreign,
        is_job_ours=not is_foreign and remote.is_ours(job, fleet.origin),
        is_adopted=workload is not None
        and bool(batch.owner_uid(workload) or keys.labels_of(workload).get(keys.JOB_UID)),
    )


def is_as_sent(workload: Document) -> bool:
    """Whether a copy's spec is what its own mark says was sent."""
    sent = keys.annotations_of(workload).get(keys.SENT_DIGEST)
    return sent is None or sent == remote.digest_of(workload["spec"])


def _refusal(local: Document | None, job: Document | None) -> str:
    if local is None:
        return ""
    if job is None:
        return "" if batch.owner_uid(local) else "No multikueue adapter found"
    if batch.is_managed_by_dispatch(job):
        return ""
    found = job["spec"].get("managedBy", "")
    return (
        "The owner is not managed by Kueue: "
        f'Expecting spec.managedBy to be "{keys.MULTIKUEUE}" not "{found}"'
    )
