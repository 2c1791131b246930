"""Turns the engine's steps of a workload's life into writes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from clusters.documents.conditions import Condition
from clusters.documents.keys import Document
from clusters.kube import resources as r
from clusters.kueue.lifecycle.steps import (
    Evict,
    ExplainWaiting,
    ListChecks,
    LookAgain,
    MarkAdmitted,
    MarkRequeued,
    SetInactive,
    SetPriority,
    Step,
    TargetDeactivation,
    Withdraw,
)
from clusters.reconcile.admission import status
from clusters.reconcile.runtime.writer import Verb, Write


def step_write(
    workload: Document, step: Step, *, now: datetime, more: Sequence[Condition] = ()
) -> Write | None:
    """The write that carries out one step of a workload's life.

    Args:
        workload: As the API server has it.
        step: What to carry out.
        now: Current time.
        more: Conditions to set with the explanation why it waits.
    """
    version = workload["metadata"]["resourceVersion"]

    def spec(name: str, **fields: Any) -> Write:
        body = {"metadata": {"resourceVersion": version}, "spec": fields}
        return workload_write(name, workload, body)

    def conditions(name: str, change: Condition, **fields: Any) -> Write:
        patch = status.conditions_patch(workload, [change], now=now, **fields)
        return status_write(name, workload, patch)

    match step:
        case SetInactive():
            return spec("deactivate", active=False)
        case SetPriority(value=value):
            return spec("set-priority", priority=value)
        case Evict():
            return status_write("evict", workload, status.evict_patch(workload, step, now=now))
        case Withdraw():
            patch = status.withdraw_patch(workload, step, now=now)
            return status_write("withdraw", workload, patch)
        case MarkAdmitted():
            return conditions("admit", status.admitted_condition())
        case ListChecks(names=names):
            checks = status.listed_checks(workload, names, now=now)
            patch = status.guarded(workload, admissionChecks=checks)
            return status_write("list-checks", workload, patch)
        case MarkRequeued(reason=reason, message=message):
            ended = reason == "BackoffFinished"
            fields: dict[str, Any] = {"requeueState": {"requeueAt": None}} if ended else {}
            return conditions("requeue", Condition("Requeued", True, reason, message), **fields)
        case ExplainWaiting(reason=reason, message=message):
            patch = status.waiting_patch(workload, reason, message, now=now, more=more)
            return status_write("explain", workload, patch)
        case TargetDeactivation(reason=reason, message=message, resets_execution_time=resets):
            fields = {"accumulatedPastExecutionTimeSeconds": None} if resets else {}
            change = Condition("DeactivationTarget", True, reason, message)
            return conditions("target-deactivation", change, **fields)
        case LookAgain():
            return None


def status_write(step: str, workload: Document, patch: dict[str, Any]) -> Write:
    metadata = workload["metadata"]
    return Write(
        step, Verb.PATCH, r.WORKLOAD, metadata["namespace"], metadata["name"], patch,
        subresource="status",
    )  # fmt: skip


def workload_write(step: str, workload: Document, body: dict[str, Any]) -> Write:
    metadata = workload["metadata"]
    return Write(step, Verb.PATCH, r.WORKLOAD, metadata["namespace"], metadata["name"], body)
