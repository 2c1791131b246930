"""Puts together what a dispatch decision looks at: the workload, its Job, its copies. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from clusters.documents import labels
from clusters.documents.conditions import condition, is_true
from clusters.documents.keys import Document, annotations_of, key_of, labels_of, status_of
from clusters.jobs import batch, remote
from clusters.jobs.kind import JobKind
from clusters.jobs.table import JobKinds, kind_of, workload_keys
from clusters.jobs.workloads import owner_uid
from clusters.kube import resources as r
from clusters.kueue.multikueue.decide import Copy, Group
from clusters.kueue.multikueue.group import Round, Siblings
from clusters.kueue.multikueue.offers import Offer
from clusters.reconcile.multikueue.local import Local, chosen_of
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
    read: Mapping[str, str],
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
        read: By worker, the UID of the copy that had finished when its Job was read anew.
    """
    workload, job, kind = local.workload, local.job, local.kind
    copies = {
        name: _copy(local, cache, fleet, is_foreign=name in foreign, read=read.get(name))
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
    found = {name: manager.get(r.WORKLOAD, name) for name in wanted if name != local.key}
    chosen = (chosen_of(workload) for workload in found.values() if workload is not None)
    # They are made in order: while some are missing the last one is.
    is_complete = all(manager.get(r.WORKLOAD, name) is not None for name in reversed(wanted))
    return Siblings(
        is_complete=is_complete,
        is_first=local.key == wanted[0],
        chosen=next(filter(None, chosen), "") if is_complete else "",
    )


def _older_slice(local: Document | None, manager: JobCache) -> Siblings | None:
    """The slice that this one replaces: where its Job runs, this one goes, until it is evicted."""
    before = annotations_of(local).get(labels.SLICE_OF) if local is not None else None
    older = manager.get(r.WORKLOAD, before) if before else None
    if older is None or local is None or status_of(local).get("schedulingStats"):
        return None
    chosen = chosen_of(older)
    return Siblings(is_complete=True, is_first=True, chosen=chosen)


def _is_handed_over(local: Local, manager: JobCache) -> bool:
    ended = condition(local.workload, "Finished") if local.workload is not None else {}
    after = manager.successor_of(local.key)
    if ended.get("reason") != SLICE_REPLACED or after is None:
        return False
    return is_true(after, "QuotaReserved") and not is_true(after, "Evicted")


def _copy(
    local: Local, cache: JobCache, fleet: DispatchFleet, *, is_foreign: bool, read: str | None
) -> Copy:
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
        is_job_unread=workload is not None
        and is_true(workload, "Finished")
        and not all(kind_of(item).tells_end for item in jobs)
        and read != workload["metadata"]["uid"],
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


# Which objects of a job a worker has, and how they compare with the manager's: one for most jobs,
# several for a group of pods, one for several Workloads of a LeaderWorkerSet.


def jobs_there(
    key: str,
    cache: JobCache,
    kinds: JobKinds,
    *,
    elastic: Document | None = None,
    is_removed: bool = False,
) -> list[dict[str, Any]]:
    """What a worker has of a workload's job.

    An object that several Workloads share counts for one of them as long as its own copy is
    there, or no copy of another is: the last one takes it along. An elastic Job is still linked to
    the slice before until it follows.

    Args:
        key: Of the workload.
        cache: The worker's.
        kinds: Kinds of jobs.
        elastic: The manager's job, where it may be elastic.
        is_removed: Its copy goes, so what is a sibling's as well is left out.
    """
    jobs, has_copy = cache.jobs_for(key), cache.get(r.WORKLOAD, key) is not None
    if not jobs and elastic is not None and batch.is_elastic(elastic):
        is_newest = has_copy and key in workload_keys(elastic)
        found = cache.get(r.JOB, key_of(elastic)) if is_newest else None
        return [found] if found is not None else []
    kind = kinds.of(jobs[0]) if jobs else None
    if kind is None or not kind.is_shared or (has_copy and not is_removed):
        return jobs
    others = (name for name in workload_keys(jobs[0]) if name != key)
    return [] if any(cache.get(r.WORKLOAD, name) is not None for name in others) else jobs


def compared(copy: Copy, local: Local, jobs: list[dict[str, Any]]) -> Copy:
    """A copy with how a worker's objects of its job compare with the manager's."""
    job, kind, workload = local.job, local.kind, copy.workload
    if job is None or kind is None or workload is None:
        return copy
    marks = annotations_of(workload)
    is_behind = bool(jobs) and kind.follow_patch(job, jobs[0]) is not None
    if kind.is_shared:
        # Noted on every copy, though only the first one makes it.
        return replace(
            copy, is_short=bool(jobs) and labels.JOB_MADE not in marks, is_behind=is_behind
        )
    if not kind.is_grouped:
        is_larger = local.workload is not None and shrunk_pod_sets(workload, local.workload)
        may_follow = local.workload is not None and stands_for(local.workload, job)
        return replace(copy, is_behind=(is_behind and may_follow) or bool(is_larger))
    there = {item["metadata"]["name"] for item in jobs}
    wanted = {item["metadata"]["name"]: item for item in kind.members(job)}
    made = members_made(workload)
    missing = [
        item for name, item in wanted.items() if name not in there and not kind.is_past(item)
    ]
    return replace(
        copy,
        is_short=any(item["metadata"]["uid"] not in made for item in missing),
        has_lost=any(item["metadata"]["uid"] in made for item in missing),
        is_behind=bool(there - wanted.keys()),
    )


def stands_for(local: Document, job: Document) -> bool:
    """Whether a Workload of the manager is about its job as it is now, size and all.

    Else the job was resized just now, and what was admitted is not that size.
    """
    if not batch.is_elastic(job):
        return True
    [pod_set, *_] = local["spec"]["podSets"]
    is_newest = key_of(local) in workload_keys(job)
    return is_newest and int(pod_set.get("count", 1)) == batch.pod_count(job)


def shrunk_pod_sets(copied: Document, local: Document) -> list[dict[str, Any]] | None:
    """Pod sets of a copy with the manager's smaller counts; None when none is smaller."""
    if annotations_of(local).get(labels.ELASTIC) != "true":
        return None
    wanted = {item["name"]: int(item.get("count", 1)) for item in local["spec"]["podSets"]}
    found = [
        {**item, "count": min(int(item.get("count", 1)), wanted.get(item["name"], 1 << 31))}
        for item in copied["spec"]["podSets"]
    ]
    return found if found != copied["spec"]["podSets"] else None


def members_made(workload: Document) -> frozenset[str]:
    """UIDs of the manager's pods that were made beside a copy."""
    return frozenset(filter(None, annotations_of(workload).get(labels.MEMBERS_MADE, "").split(",")))
