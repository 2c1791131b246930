"""Puts together what a dispatch decision looks at: the workload, its Job, its copies. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from clusters.documents import labels
from clusters.documents.conditions import condition, is_true
from clusters.documents.keys import Document, annotations_of, labels_of
from clusters.jobs import remote
from clusters.jobs.kind import JobKind
from clusters.jobs.table import JobKinds, kind_of, workload_keys
from clusters.jobs.workloads import owner_uid
from clusters.kube import resources as r
from clusters.kueue.multikueue.decide import Copy, Group
from clusters.kueue.multikueue.group import Round, Siblings
from clusters.kueue.multikueue.offers import Offer
from clusters.reconcile.multikueue.local import Local
from clusters.reconcile.multikueue.parts import compared, jobs_there
from clusters.reconcile.multikueue.workers import DispatchFleet
from clusters.reconcile.runtime.job_cache import JobCache
from clusters.reconcile.workload_status import REPLACED as SLICE_REPLACED


def group_for(
    local: Local,
    manager: JobCache,
    fleet: DispatchFleet,
    *,
    now: datetime,
    rounds: tuple[Round, ...],
    offers: Mapping[str, Offer],
    blocked: Mapping[str, str],
    foreign: Collection[str],
) -> Group:
    """Everything about one workload.

    Args:
        local: The manager's side.
        manager: The manager's cache.
        fleet: The workers.
        now: Current time.
        rounds: Of this reservation so far.
        offers: By worker; empty unless the dispatcher asks.
        blocked: Why it may not go to a worker now, by worker.
        foreign: Workers where somebody else's object has its name.
    """
    workload, job, kind = local.workload, local.job, local.kind
    copies = {
        name: _copy(local, cache, fleet, is_foreign=name in foreign)
        for name, cache in fleet.caches.items()
    }
    # A worker that left is of no interest but for what is still there.
    emptied = {n for n in fleet.left if n not in copies or not copies[n].is_anything_ours}
    blocked = {**fleet.closed, **_not_served(fleet, kind), **blocked}
    return Group(
        local=workload,
        check=local.check,
        now=now,
        copies={name: copy for name, copy in copies.items() if name not in emptied},
        lost=fleet.lost,
        left=fleet.left,
        opening=fleet.opening,
        blocked={name: why for name, why in blocked.items() if name not in emptied},
        refusal=_refusal(local, fleet.kinds),
        is_job_active=kind is not None and job is not None and kind.is_active(job),
        is_stop_due=kind is not None and job is not None and kind.is_stop_due(job),
        is_silent=kind is not None and kind.is_silent,
        worker_lost_timeout=fleet.worker_lost_timeout,
        order=fleet.order,
        rounds=rounds,
        offers=offers,
        siblings=_siblings(local, manager) or _older_slice(workload, manager),
        is_handed_over=_is_handed_over(local, manager),
    )


def _siblings(local: Local, manager: JobCache) -> Siblings | None:
    if local.job is None or local.kind is None or not local.kind.is_shared:
        return None
    wanted = workload_keys(local.job)
    found = {name: manager.get(r.WORKLOAD, name) for name in wanted}
    chosen = [
        str((workload.get("status") or {}).get("clusterName") or "")
        for name, workload in found.items()
        if workload is not None and name != local.key
    ]
    return Siblings(
        is_complete=None not in found.values(),
        is_first=local.key == wanted[0],
        chosen=next(filter(None, chosen), ""),
    )


def _older_slice(local: Document | None, manager: JobCache) -> Siblings | None:
    """The slice that this one replaces: where its Job runs, this one goes, until it is evicted."""
    before = annotations_of(local).get(labels.SLICE_OF) if local is not None else None
    older = manager.get(r.WORKLOAD, before) if before else None
    if older is None or local is None or (local.get("status") or {}).get("schedulingStats"):
        return None
    chosen = str((older.get("status") or {}).get("clusterName") or "")
    return Siblings(is_complete=True, is_first=True, chosen=chosen)


def _is_handed_over(local: Local, manager: JobCache) -> bool:
    ended = condition(local.workload, "Finished") if local.workload is not None else {}
    after = manager.successor_of(local.key)
    if ended.get("reason") != SLICE_REPLACED or after is None:
        return False
    return is_true(after, "QuotaReserved") and not is_true(after, "Evicted")


def _copy(local: Local, cache: JobCache, fleet: DispatchFleet, *, is_foreign: bool) -> Copy:
    workload = cache.get(r.WORKLOAD, local.key)
    jobs = jobs_there(local.key, cache, fleet.kinds, elastic=local.job)
    job = jobs[0] if jobs else None
    marked = workload if workload is not None else job
    found = Copy(
        workload=workload,
        is_ours=remote.is_ours(workload, local.marks.origin),
        is_current=marked is None
        or annotations_of(marked).get(labels.ATTEMPT) == local.marks.attempt,
        is_as_sent=workload is None or remote.is_as_sent(workload),
        has_job=job is not None or is_foreign,
        is_job_ours=not is_foreign and remote.is_ours(job, local.marks.origin),
        is_job_open=_is_open(jobs),
        is_adopted=workload is not None
        and bool(
            owner_uid(workload)
            or labels_of(workload).get(labels.JOB_UID)
            or annotations_of(workload).get(labels.JOB_MADE)
        ),
    )
    return compared(found, local, jobs)


def _is_open(jobs: list[dict[str, Any]]) -> bool:
    """Whether the one job there has not ended; never of kinds whose end cannot be read here."""
    if len(jobs) != 1:
        return False
    kind = kind_of(jobs[0])
    return kind.tells_end and kind.outcome_of(jobs[0]) is None


def _not_served(fleet: DispatchFleet, kind: JobKind | None) -> dict[str, str]:
    """Workers that cannot take this kind of job, and no other reason against them."""
    if kind is None:
        return {}
    text = f"{kind.resource.full_name} is not served there, or forbidden"
    return {name: text for name, found in fleet.unserved.items() if kind.resource in found}


def _refusal(local: Local, kinds: JobKinds) -> str:
    if local.workload is None:
        return ""
    if local.job is not None:
        job, kind = local.job, local.kind
        return kind.fault(job) or kind.refusal(job) if kind is not None else ""
    kind, name, _ = kinds.owner_of(local.workload)
    if kind is not None:
        return ""
    of = f' for owner kind "{name}"' if name else ""
    return f"No multikueue adapter found{of}"
