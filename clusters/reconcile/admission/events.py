"""Kubernetes Events about Workloads and Jobs: what a write that went well means to a user. Pure.

Source: Kueue's recorder calls in pkg/scheduler, pkg/controller/core, pkg/controller/jobframework
and pkg/workload/evict, v0.19.2. Deviations: a workload that keeps waiting for the same reason is
told once, not with every cycle; the flavors that were tried are not listed (``why`` tells them).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from clusters.documents import labels
from clusters.documents.conditions import condition
from clusters.documents.keys import Document, annotations_of, controller_of, key_of
from clusters.kube import resources as r
from clusters.kueue.workload.parser import parse_time
from clusters.reconcile.runtime.job_cache import JobCache
from clusters.reconcile.runtime.recorder import Event, Reference
from clusters.reconcile.runtime.writer import Write

_PREEMPTOR: Final = re.compile(r"\(UID: ([^,)]+)")
_SET_ASIDE: Final = (
    "The portal tries it again from time to time. Correct it, or delete it and submit it again."
)
_NOT_ADMITTED: Final = "Not admitted by cluster queue"


def events_of(
    write: Write, document: Document | None, key: str, cache: JobCache, *, now: datetime
) -> Iterator[Event]:
    """What to tell after a write.

    Args:
        write: As it was sent.
        document: The object as it is now; None after a deletion.
        key: Of the Workload, ``namespace/name``.
        cache: Of the cluster.
        now: Current time.
    """
    before = cache.get(r.WORKLOAD, key)
    if write.resource.group != r.KUEUE_GROUP:
        if document is not None:
            yield from _about_job(write, document, before)
        return
    if write.resource != r.WORKLOAD:
        return
    workload = document or before
    if workload is None:
        return
    owner = owner_reference(workload)
    if owner is not None and write.step in _TO_OWNER:
        reason, text = _TO_OWNER[write.step]
        yield Event(owner, reason, text.format(key=key))
    if document is not None and write.subresource:
        yield from _about_workload(write, document, cache, now)


def set_aside(document: Document, kind: str, why: str) -> Event:
    """What an object is told that the portal cannot work with.

    Args:
        document: As it was told; its metadata can be read.
        kind: Of objects that do not say theirs, as those of lists.
        why: A sentence.
    """
    about = Reference.of(
        document,
        api_version=str(document.get("apiVersion") or r.WORKLOAD.api_version),
        kind=str(document.get("kind") or kind),
    )
    return Event(about, "SetAside", f"{why}. {_SET_ASIDE}", is_warning=True, is_once=True)


def owner_reference(workload: Document) -> Reference | None:
    """The object that controls a Workload; None when nothing does."""
    owner, namespace = controller_of(workload), workload["metadata"]["namespace"]
    if not owner:
        return None
    return Reference(owner["apiVersion"], owner["kind"], namespace, owner["name"], owner["uid"])


_TO_OWNER: Final[Mapping[str, tuple[str, str]]] = {
    "create-workload": ("CreatedWorkload", "Created Workload: {key}"),
    "rewrite": ("UpdatedWorkload", "Updated not matching Workload for suspended job: {key}"),
    "delete-workload": ("DeletedWorkload", "Deleted not matching Workload: {key}"),
    "set-class": ("UpdatedWorkload", "Updated workload priority class: {key}"),
    "finish": ("FinishedWorkload", "Workload '{key}' is declared finished"),
}


def _about_job(write: Write, job: Document, workload: Document | None) -> Iterator[Event]:
    about = Reference.of(job, api_version=write.resource.api_version, kind=write.resource.kind)
    if write.step == "start" and workload is not None:
        admission = (workload.get("status") or {}).get("admission") or {}
        text = f"Admitted by clusterQueue {admission.get('clusterQueue', '')}"
        yield Event(about, "Started", text)
    elif write.step == "refuse" and labels.REFUSED in annotations_of(job):
        yield Event(about, "Refused", annotations_of(job)[labels.REFUSED], is_warning=True)
    elif write.step == "suspend":
        evicted = condition(workload, "Evicted") if workload is not None else {}
        is_evicted = evicted.get("status") == "True"
        yield Event(about, "Stopped", str(evicted["message"]) if is_evicted else _NOT_ADMITTED)


def _about_workload(
    write: Write, workload: Document, cache: JobCache, now: datetime
) -> Iterator[Event]:
    about = Reference.of(workload)
    queue = ((workload.get("status") or {}).get("admission") or {}).get("clusterQueue", "")
    match write.step:
        case "reserve":
            waited = _seconds_since(_queued_at(workload), now)
            text = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited}s"
            yield Event(about, "QuotaReserved", text)
            if condition(workload, "Admitted").get("status") == "True":
                yield Event(about, "Admitted", _admitted_text(queue, 0))
            yield from _open_checks(workload)
        case "admit":
            since = parse_time(condition(workload, "QuotaReserved").get("lastTransitionTime"))
            waited = _seconds_since(since, now)
            yield Event(about, "Admitted", _admitted_text(queue, waited))
        case "explain" if write.decided:
            shown = condition(workload, "QuotaReserved")
            yield Event(about, str(shown["reason"]), str(shown["message"]), is_warning=True)
        case "preempt":
            yield from _preemption(workload, queue, cache)
            yield _eviction(workload)
        case "evict":
            yield _eviction(workload)
        case "target-deactivation":
            yield from _target(workload)


def _open_checks(workload: Document) -> Iterator[Event]:
    owner = owner_reference(workload)
    texts = [
        f"{check['name']}: {check['message']}"
        for check in (workload.get("status") or {}).get("admissionChecks") or ()
        if check.get("state") == "Pending" and check.get("message")
    ]
    if texts and owner is not None:
        yield Event(owner, "UpdatedAdmissionCheck", "; ".join(texts))


def _admitted_text(queue: str, waited_s: int) -> str:
    return f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited_s}s"


def _eviction(workload: Document) -> Event:
    evicted = condition(workload, "Evicted")
    reason = f"EvictedDueTo{evicted.get('reason', '')}"
    return Event(Reference.of(workload), reason, str(evicted.get("message", "")))


def _preemption(victim: Document, queue: str, cache: JobCache) -> Iterator[Event]:
    text = str(condition(victim, "Preempted").get("message", ""))
    found = _PREEMPTOR.search(text)
    preemptor = cache.workload_by_uid(found[1]) if found else None
    if preemptor is None:
        yield Event(Reference.of(victim), "Preempted", text)
        return
    sides = f"{_priority('preemptor', preemptor)}; {_priority('preemptee', victim)}"
    yield Event(Reference.of(victim), "Preempted", f"{text}; {sides}")
    uid = victim["metadata"]["uid"]
    done = f"Preempted workload {key_of(victim)} (UID: {uid}) in ClusterQueue {queue}; {sides}"
    yield Event(Reference.of(preemptor), "PreemptedWorkload", done)


def _priority(role: str, workload: Document) -> str:
    value = int(workload["spec"].get("priority") or 0)
    return f"{role} effective priority: {value} (base: {value}, boost: 0)"


def _target(workload: Document) -> Iterator[Event]:
    target = condition(workload, "DeactivationTarget")
    about = Reference.of(workload)
    if target.get("reason") == "MaximumExecutionTimeExceeded":
        limit = workload["spec"].get("maximumExecutionTimeSeconds")
        text = f"The maximum execution time ({limit}s) exceeded"
        yield Event(about, "MaximumExecutionTimeExceeded", text, is_warning=True)
    elif target.get("reason") == "AdmissionCheck":
        text = f"Deactivated due to {target.get('message', '')}"
        yield Event(about, "AdmissionCheckRejected", text, is_warning=True)


def _queued_at(workload: Document) -> datetime | None:
    """When its present wait began: made, or put back into its queue."""
    requeued = condition(workload, "Requeued").get("lastTransitionTime")
    return parse_time(requeued or workload["metadata"].get("creationTimestamp"))


def _seconds_since(at: datetime | None, now: datetime) -> int:
    return max(0, round((now - at).total_seconds())) if at is not None else 0
