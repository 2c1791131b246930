"""Puts together what a dispatch decision looks at: the workload, its Job, its copies. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.kueue.multikueue import Copy, Group
from clusters.kueue.multikueue_group import Round
from clusters.kueue.multikueue_offers import Offer
from clusters.reconcile.admission.image import Image, job_of
from clusters.reconcile.jobs import batch, keys, remote
from clusters.reconcile.jobs.adapters import JOBS_ONLY, Adapter, Adapters
from clusters.reconcile.jobs.conditions import condition, is_true
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
        order: Workers as the check's configuration lists them.
        unserved: Kinds of jobs that a worker does not serve, or forbids.
        adapters: Kinds of jobs.
    """

    images: Mapping[str, Image]
    lost: Mapping[str, datetime]
    closed: Mapping[str, str]
    blocked: Mapping[tuple[str, str], str]
    foreign: frozenset[tuple[str, str]]
    origin: str
    worker_lost_timeout: timedelta
    order: tuple[str, ...] = ()
    unserved: Mapping[str, Collection[Resource]] = field(default_factory=dict)
    adapters: Adapters = JOBS_ONLY


def local_job(manager: Image, key: str, adapters: Adapters = JOBS_ONLY) -> dict[str, Any] | None:
    """The manager's job of a Workload: one that names it, else the owner that it names."""
    workload = manager.get(r.WORKLOAD, key)
    found = job_of(workload, manager.jobs_for(key))
    if found is not None or workload is None:
        return found
    adapter, _, name = adapters.owner_of(workload)
    if adapter is None:
        return None
    return manager.get(adapter.resource, f"{workload['metadata']['namespace']}/{name}")


def attempt_of(local: Document) -> str:
    """Names a reservation of a Workload: copies of an earlier one are stale.

    By its time and by the evictions before it: times are whole seconds, and a workload can be
    evicted and reserved again within one.
    """
    since = condition(local, "QuotaReserved").get("lastTransitionTime", "")
    stats = (local.get("status") or {}).get("schedulingStats") or {}
    evictions = sum(int(item.get("count") or 0) for item in stats.get("evictions") or ())
    # The eviction under way ends this reservation; it is not one before it.
    before = evictions - is_true(local, "Evicted")
    return f"{local['metadata']['uid']}@{since}" + (f"#{before}" if before > 0 else "")


@dataclass(frozen=True, slots=True)
class Bids:
    """What is remembered of, and offered to, one workload.

    Attributes:
        rounds: Of this reservation so far.
        offers: By worker; empty unless the dispatcher asks.
    """

    rounds: tuple[Round, ...] = ()
    offers: Mapping[str, Offer] = field(default_factory=dict)


def group_for(
    key: str, manager: Image, fleet: Fleet, *, check: str, now: datetime, bids: Bids | None = None
) -> Group:
    """Everything about one workload.

    Args:
        key: ``namespace/name`` of the Workload.
        manager: The manager's image.
        fleet: The workers.
        check: Name of the AdmissionCheck; empty when the workload lists none.
        now: Current time.
        bids: For the dispatcher; none where nothing will be nominated.
    """
    bids = bids or Bids()
    local = manager.get(r.WORKLOAD, key)
    job = local_job(manager, key, fleet.adapters)
    adapter = fleet.adapters.of(job) if job is not None else None
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
            **_not_served(fleet, adapter),
            **{name: why for (of, name), why in fleet.blocked.items() if of == key},
        },
        refusal=_refusal(local, job, fleet.adapters),
        is_job_active=adapter is not None and job is not None and adapter.is_active(job),
        worker_lost_timeout=fleet.worker_lost_timeout,
        order=fleet.order,
        rounds=bids.rounds,
        offers=bids.offers,
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
        and bool(
            batch.owner_uid(workload)
            or keys.labels_of(workload).get(keys.JOB_UID)
            or keys.annotations_of(workload).get(keys.JOB_MADE)
        ),
    )


def is_as_sent(workload: Document) -> bool:
    """Whether a copy's spec is what its own mark says was sent."""
    sent = keys.annotations_of(workload).get(keys.SENT_DIGEST)
    return sent is None or sent == remote.digest_of(workload["spec"])


def _not_served(fleet: Fleet, adapter: Adapter | None) -> dict[str, str]:
    """Workers that cannot take this kind of job, and no other reason against them."""
    if adapter is None:
        return {}
    kind = adapter.resource
    text = f"{kind.kind}.{kind.version}.{kind.group} is not served there, or forbidden"
    return {name: text for name, kinds in fleet.unserved.items() if kind in kinds}


def _refusal(local: Document | None, job: Document | None, adapters: Adapters) -> str:
    if local is None:
        return ""
    if job is not None:
        adapter = adapters.of(job)
        return adapter.refusal(job) if adapter is not None else ""
    adapter, kind, _ = adapters.owner_of(local)
    if adapter is not None:
        return ""
    of = f' for owner kind "{kind}"' if kind else ""
    return f"No multikueue adapter found{of}"
