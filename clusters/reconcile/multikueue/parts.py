"""Which objects of a job a worker has, and how they compare with the manager's. Pure.

One for most jobs; several for a group of pods, one for several Workloads of a LeaderWorkerSet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, key_of
from clusters.jobs import batch
from clusters.jobs.table import JobKinds, workload_keys
from clusters.kube import resources as r
from clusters.kueue.multikueue.group import Copy
from clusters.reconcile.multikueue.local import Local
from clusters.reconcile.runtime.job_cache import JobCache


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
