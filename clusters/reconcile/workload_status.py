"""Merge patches for a Workload's status: what a decision or a step of its life looks like there.

Pure. Every patch carries the resourceVersion of the state it was built on; lists are replaced
whole, as merge patches do, so that version is what keeps other writers' entries safe.

Source: spec admission 4.1 to 4.3; Kueue pkg/workload, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from clusters.documents.conditions import Condition, condition, is_true, with_conditions
from clusters.documents.keys import Document, bound
from clusters.documents.times import stamp
from clusters.kueue.cycle.decisions import Admit, Pending, Preempt
from clusters.kueue.lifecycle.decide import is_requeued_at_once
from clusters.kueue.lifecycle.steps import Evict, Withdraw
from clusters.kueue.workload.parser import parse_time

Patch = dict[str, Any]

REPLACED: Final = "WorkloadSliceReplaced"
"""Reason of Finished: another slice of an elastic Job took over."""

_NO_RESERVATION: Final = Condition(
    "Admitted", False, "NoReservation", "The workload has no reservation"
)
_CHECKS_OPEN: Final = Condition(
    "Admitted", False, "UnsatisfiedAdmissionChecks", "The workload has not all checks ready"
)
_NEITHER: Final = Condition(
    "Admitted",
    False,
    "NoReservationUnsatisfiedChecks",
    "The workload has no reservation and not all checks ready",
)
_DEACTIVATED: Final = "The workload is deactivated"
# What Kueue says without the gate: of queues, and of what holds a workload back by itself.
_COARSE: Final = {
    "Misconfigured": "Inadmissible",
    "Suspended": "Inadmissible",
    "AdmissionGated": "AdmissionGated",
    "WaitingForPodsReady": "Waiting",
}


def guarded(workload: Document, **status: Any) -> Patch:
    """A status patch that only applies to the very state that it was built on."""
    return {**bound(workload), "status": status}


def conditions_patch(
    workload: Document, changes: Iterable[Condition], *, now: datetime, **status: Any
) -> Patch:
    """A status patch that sets conditions, and other fields beside them."""
    return guarded(workload, conditions=with_conditions(workload, changes, now=now), **status)


def waiting_reason(reason: str, *, is_fine: bool) -> str:
    """The reason that a condition shows of why a workload waits outside of every cycle.

    Args:
        reason: One of the finer ones.
        is_fine: With the gate UnadmittedWorkloadsObservability; without it there are few.
    """
    return reason if is_fine else _COARSE.get(reason, "Pending")


def admit_patch(
    workload: Document,
    decision: Admit,
    *,
    now: datetime,
    more: Sequence[Condition] = (),
    is_fine: bool = False,
) -> Patch:
    """Quota reserved, and Admitted in the same write where no check is open."""
    changes = [*more, Condition("QuotaReserved", True, "QuotaReserved", decision.message)]
    for kind in ("Evicted", "Preempted", "BlockedOnPreemptionGates"):
        before = condition(workload, kind)
        if before.get("status") == "True":
            text = f"Previously: {before.get('message', '')}"
            changes.append(Condition(kind, False, "QuotaReserved", text))
    if decision.is_admitted:
        changes.append(admitted_condition())
    elif is_fine:
        changes.append(_CHECKS_OPEN)
    fields: dict[str, Any] = {"admission": dict(decision.admission)}
    if (workload.get("status") or {}).get("resourceRequests"):
        fields["resourceRequests"] = None
    if (workload.get("status") or {}).get("unhealthyNodes"):
        fields["unhealthyNodes"] = None
    listed = (workload.get("status") or {}).get("admissionChecks") or []
    if decision.checks or listed:
        fields["admissionChecks"] = listed_checks(workload, decision.checks, now=now)
    return conditions_patch(workload, changes, now=now, **fields)


def admitted_condition() -> Condition:
    return Condition("Admitted", True, "Admitted", "The workload is admitted")


def waiting_patch(
    workload: Document,
    reason: str,
    message: str,
    *,
    now: datetime,
    more: Sequence[Condition] = (),
    is_fine: bool = False,
) -> Patch:
    """It waits outside of every cycle, or holds nothing: why."""
    change = Condition("QuotaReserved", False, waiting_reason(reason, is_fine=is_fine), message)
    unadmitted = _without_reservation(workload, is_fine=is_fine)
    return conditions_patch(workload, [*more, change, *unadmitted], now=now)


def pending_patch(
    workload: Document,
    decision: Pending,
    *,
    now: datetime,
    more: Sequence[Condition] = (),
    requests: Sequence[Document] = (),
    is_fine: bool = False,
) -> Patch | None:
    """Why it waits, and what it asks for; None when that is what its status says already.

    Args:
        workload: As the API server has it.
        decision: Why it waits.
        now: Current time.
        more: Further conditions to set.
        requests: ``status.resourceRequests``: total amounts by pod set.
        is_fine: See :func:`waiting_reason`.
    """
    reason = decision.reason
    if not is_fine:
        # The scheduler has one word for whatever it found in a cycle.
        reason = "Waiting" if reason == "WaitingForPodsReady" else "Pending"
    shown = condition(workload, "QuotaReserved")
    generation = workload["metadata"].get("generation")
    told = (shown.get("status"), shown.get("reason"), shown.get("message"))
    is_current = shown.get("observedGeneration") in (None, generation)
    if told == ("False", reason, decision.message) and is_current:
        return None
    change = Condition("QuotaReserved", False, reason, decision.message)
    changes = [*more, change, *_without_reservation(workload, is_fine=is_fine)]
    return conditions_patch(workload, changes, now=now, resourceRequests=list(requests))


def preempt_patch(workload: Document, decision: Preempt, *, now: datetime) -> Patch:
    """Evicted to make room for another workload."""
    preempted = Condition("Preempted", True, decision.reason, decision.message, is_observed=False)
    step = Evict("Preempted", decision.message)
    return evict_patch(workload, step, now=now, more=(preempted,))


def evict_patch(
    workload: Document, step: Evict, *, now: datetime, more: Sequence[Condition] = ()
) -> Patch:
    """Told to stop: its checks begin anew, its quota stays counted until the Job has stopped."""
    status = workload.get("status") or {}
    fields: dict[str, Any] = {
        "clusterName": None,
        "nominatedClusterNames": None,
        "schedulingStats": {"evictions": _counted(status, step)},
    }
    if status.get("admissionChecks"):
        fields["admissionChecks"] = _reset_checks(status["admissionChecks"], now=now)
    if status.get("unhealthyNodes"):
        fields["unhealthyNodes"] = None
    requeue = _requeue_state(status, step)
    if requeue is not None:
        fields["requeueState"] = requeue
    evicted = Condition("Evicted", True, step.reason, step.message)
    patch = conditions_patch(workload, [evicted, *more], now=now, **fields)
    if step.reason.startswith("Deactivated"):
        # Answered: it must not deactivate again what somebody activates later.
        patch["status"]["requeueState"] = None
        patch["status"]["conditions"] = [
            entry
            for entry in patch["status"]["conditions"]
            if entry["type"] != "DeactivationTarget"
        ]
    return patch


def release_patch(workload: Document, *, now: datetime, is_fine: bool = False) -> Patch:
    """The Job of an evicted workload has stopped: give the quota back."""
    evicted = condition(workload, "Evicted")
    reason, message = str(evicted.get("reason", "")), str(evicted.get("message", ""))
    changes = [
        Condition("Requeued", is_requeued_at_once(reason), reason, message),
        _without_quota(reason, message, is_fine=is_fine),
    ]
    fields: dict[str, Any] = {"admission": None}
    if is_true(workload, "PodsReady"):
        text = "Not all pods are ready or succeeded"
        changes.append(Condition("PodsReady", False, "WaitForStart", text))
    changes += _without_reservation(workload, is_fine=is_fine)
    used = _execution_seconds(workload, now)
    if used is not None:
        fields["accumulatedPastExecutionTimeSeconds"] = used
    return conditions_patch(workload, changes, now=now, **fields)


def withdraw_patch(
    workload: Document, step: Withdraw, *, now: datetime, is_fine: bool = False
) -> Patch:
    """Take a reservation back that was never admitted."""
    reason = waiting_reason(step.reason, is_fine=is_fine)
    changes = [
        Condition("QuotaReserved", False, reason, step.message),
        *_without_reservation(workload, is_fine=is_fine),
    ]
    status = workload.get("status") or {}
    fields: dict[str, Any] = {"admission": None, "nominatedClusterNames": None, "clusterName": None}
    if status.get("admissionChecks"):
        fields["admissionChecks"] = _reset_checks(status["admissionChecks"], now=now)
    return conditions_patch(workload, changes, now=now, **fields)


def listed_checks(
    workload: Document, names: Iterable[str], *, now: datetime
) -> list[dict[str, Any]]:
    """Exactly these checks; known entries stay as they are, new ones begin Pending."""
    known = {
        item["name"]: item for item in (workload.get("status") or {}).get("admissionChecks") or ()
    }
    return [
        known.get(name)
        or {"name": name, "state": "Pending", "message": "", "lastTransitionTime": stamp(now)}
        for name in names
    ]


def _reset_checks(checks: Sequence[Document], *, now: datetime) -> list[dict[str, Any]]:
    found = []
    for check in checks:
        entry = dict(check)
        state = entry["state"]
        retries = entry.pop("retryCount", None)
        if state == "Retry":
            entry["retryCount"] = int(retries or 0) + 1
        if state != "Pending":
            entry |= {
                "state": "Pending",
                "message": f"Reset to Pending after eviction. Previously: {state}",
                "lastTransitionTime": stamp(now),
            }
            entry.pop("podSetUpdates", None)
        found.append(entry)
    return found


def _requeue_state(status: Document, step: Evict) -> dict[str, Any] | None:
    if step.requeue_count is None and step.requeue_at is None:
        return None
    found = dict(status.get("requeueState") or {})
    if step.requeue_count is not None:
        found["count"] = step.requeue_count
    if step.requeue_at is not None:
        found["requeueAt"] = stamp(step.requeue_at)
    return found


def _without_reservation(workload: Document, *, is_fine: bool) -> list[Condition]:
    """What Admitted says of a workload without quota; without the gate only if it was admitted."""
    if is_fine:
        return [_NO_RESERVATION]
    if not is_true(workload, "Admitted"):
        return []
    checks = (workload.get("status") or {}).get("admissionChecks") or ()
    return [_NO_RESERVATION if all(item["state"] == "Ready" for item in checks) else _NEITHER]


def _without_quota(eviction_reason: str, message: str, *, is_fine: bool) -> Condition:
    if not is_fine:
        return Condition("QuotaReserved", False, "Pending", message)
    if eviction_reason.startswith("Deactivated"):
        return Condition("QuotaReserved", False, "Deactivated", _DEACTIVATED)
    return Condition("QuotaReserved", False, "PendingEvaluation", message)


def _counted(status: Document, step: Evict) -> list[dict[str, Any]]:
    # What it was deactivated for is the cause there, not part of the reason.
    reason = "Deactivated" if step.reason.startswith("Deactivated") else step.reason
    evictions = [
        dict(item) for item in (status.get("schedulingStats") or {}).get("evictions") or ()
    ]
    for item in evictions:
        if (item["reason"], item.get("underlyingCause", "")) == (reason, step.cause):
            item["count"] = int(item["count"]) + 1
            return evictions
    return [*evictions, {"reason": reason, "underlyingCause": step.cause, "count": 1}]


def _execution_seconds(workload: Document, now: datetime) -> int | None:
    if not is_true(workload, "Admitted"):
        return None
    since = parse_time(condition(workload, "Admitted").get("lastTransitionTime"))
    if since is None:
        return None
    before = int((workload.get("status") or {}).get("accumulatedPastExecutionTimeSeconds") or 0)
    return before + max(0, int((now - since).total_seconds()))
