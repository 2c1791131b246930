"""Brings back a workload that a rejected AdmissionCheck deactivated. Pure: the next write, or none.

Kueue 0.19.2 marks such a workload ``Requeued=False`` with the reason below, and when it is active
again flips only the reason ``Deactivated`` back: ``spec.active: true`` alone never queues it.
Taking the condition away does; quota is reserved again in under two seconds.

Source: spec dispatch 6.3, tried on Kueue 0.19.2.
"""

from __future__ import annotations

from typing import Final

from clusters.documents.conditions import condition, conditions_of, is_true
from clusters.documents.keys import Document, bound
from clusters.kube import resources as r
from clusters.reconcile.runtime.writer import Write

REJECTED: Final = "DeactivatedDueToAdmissionCheck"


def is_stuck(workload: Document) -> bool:
    """Whether a workload is active and Kueue will nevertheless never queue it."""
    return _is_at_rest(workload) and is_active(workload) and _is_marked(workload)


def was_rejected(workload: Document, check: str) -> bool:
    """Whether a check deactivated a workload, and nothing has happened to it since.

    Kueue's eviction names the check: nothing of our own has to be remembered.
    """
    evicted = condition(workload, "Evicted")
    return (
        evicted.get("status") == "True"
        and evicted.get("reason") == REJECTED
        and f'"{check}"' in str(evicted.get("message") or "")
    )


def reactivation(workload: Document) -> Write | None:
    """The next write that brings a workload back; to be asked again with the answer to it.

    First ``spec.active`` is set, then, with the state that followed, the condition is taken away.
    Each write is bound to the state that was read: a conflict means to read again and ask again.

    Args:
        workload: As the manager (or the one cluster) has it now.

    Returns:
        None when nothing is (left) to do: it is finished, is being deleted, still holds quota (the
        eviction is not over: ask later), or waits in its queue.
    """
    if not _is_at_rest(workload):
        return None
    if not is_active(workload):
        body = {**bound(workload), "spec": {"active": True}}
        return Write.patch("activate", r.WORKLOAD, workload, body)
    if _is_marked(workload):
        kept = [item for item in conditions_of(workload) if item["type"] != "Requeued"]
        body = {**bound(workload), "status": {"conditions": kept}}
        return Write.patch("unmark-rejected", r.WORKLOAD, workload, body, subresource="status")
    return None


def _is_at_rest(workload: Document) -> bool:
    """Neither over nor on its way, and without quota."""
    return not (
        workload["metadata"].get("deletionTimestamp")
        or is_true(workload, "Finished")
        or is_true(workload, "QuotaReserved")
    )


def is_active(workload: Document) -> bool:
    """Whether nobody deactivated it."""
    return (workload.get("spec") or {}).get("active") is not False


def _is_marked(workload: Document) -> bool:
    found = condition(workload, "Requeued")
    return found.get("status") == "False" and found.get("reason") == REJECTED
