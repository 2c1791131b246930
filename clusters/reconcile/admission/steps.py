"""Writes about one object, bound to the state that was seen; the engine's steps as such. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from clusters.documents.conditions import Condition
from clusters.documents.keys import Document, bound
from clusters.kube import resources as r
from clusters.kube.resources import Resource
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
from clusters.reconcile import workload_status as status
from clusters.reconcile.runtime.writer import Write


def step_write(
    workload: Document,
    step: Step,
    *,
    now: datetime,
    more: Sequence[Condition] = (),
    is_fine: bool = False,
) -> Write | None:
    """The write that carries out one step of a workload's life.

    Args:
        workload: As the API server has it.
        step: What to carry out.
        now: Current time.
        more: Conditions to set with the explanation why it waits.
        is_fine: Reasons why it waits are the finer ones, see ``workload_status``.
    """

    def conditions(name: str, change: Condition, **fields: Any) -> Write:
        patch = status.conditions_patch(workload, [change], now=now, **fields)
        return status_write(name, workload, patch)

    match step:
        case SetInactive():
            return spec_write("deactivate", workload, active=False)
        case SetPriority(value=value):
            return spec_write("set-priority", workload, priority=value)
        case Evict():
            return status_write("evict", workload, status.evict_patch(workload, step, now=now))
        case Withdraw():
            patch = status.withdraw_patch(workload, step, now=now, is_fine=is_fine)
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
            patch = status.waiting_patch(
                workload, reason, message, now=now, more=more, is_fine=is_fine
            )
            return status_write("explain", workload, patch)
        case TargetDeactivation(reason=reason, message=message, resets_execution_time=resets):
            fields = {"accumulatedPastExecutionTimeSeconds": None} if resets else {}
            change = Condition("DeactivationTarget", True, reason, message)
            return conditions("target-deactivation", change, **fields)
        case LookAgain():
            return None


def status_write(
    step: str, workload: Document, patch: dict[str, Any], *, decided: bool = False
) -> Write:
    """A patch of a Workload's status; `decided`: it carries out what the engine has assumed."""
    write = Write.patch(step, r.WORKLOAD, workload, patch, subresource="status")
    return replace(write, decided=True) if decided else write


def spec_write(step: str, workload: Document, **fields: Any) -> Write:
    """A patch of fields of a Workload's spec."""
    return Write.patch(step, r.WORKLOAD, workload, {**bound(workload), "spec": fields})


def metadata_write(
    step: str, document: Document, *, resource: Resource = r.WORKLOAD, **fields: Any
) -> Write:
    """A patch of fields of an object's metadata."""
    body = {"metadata": {**bound(document)["metadata"], **fields}}
    return Write.patch(step, resource, document, body)
