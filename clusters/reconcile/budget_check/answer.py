"""What to write about one workload or one check. Pure: documents in, the next write or none out.

Source: spec dispatch 6.1 to 6.4; Kueue pkg/controller/core/workload_controller.go, v0.19.2.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

from budgets.plan import StopPolicy
from budgets.spending import QueueEffect
from clusters.documents.conditions import Condition, conditions_of, is_true, with_conditions
from clusters.documents.keys import Document, bound
from clusters.documents.times import stamp
from clusters.kube import resources as r
from clusters.manifests import names
from clusters.reconcile.reactivation import is_active, reactivation, was_rejected
from clusters.reconcile.runtime.writer import Verb, Write

HELD_BACK: Final = (
    "A spend cap of this budget is reached. The job starts again by itself when the cap is "
    "raised or its next window begins."
)
LET_IN: Final = "Within the spend caps of its budget."
RUNS: Final = "It ran before a spend cap was set."
NOT_REJECTED: Final = "The cap allows it again."


class CheckAnswer(StrEnum):
    """What an AdmissionCheck says of a workload."""

    PENDING = "Pending"
    READY = "Ready"
    REJECTED = "Rejected"


def entry_of(workload: Document, check: str) -> Document:
    """The workload's entry of a check; empty when it lists none."""
    for entry in (workload.get("status") or {}).get("admissionChecks") or []:
        if entry.get("name") == check:
            return dict(entry)
    return {}


def waits_for_answer(workload: Document, check: str) -> bool:
    """Whether a verdict is due: it holds quota, and nothing ends or takes it back (6.2, 6.3)."""
    return (
        entry_of(workload, check).get("state") == CheckAnswer.PENDING
        and _is_alive(workload)
        and is_active(workload)
        and is_true(workload, "QuotaReserved")
        and not is_true(workload, "Evicted")
        and not is_true(workload, "DeactivationTarget")
    )


def answer(
    workload: Document, check: str, effect: QueueEffect, *, controller: str, now: datetime
) -> Write | None:
    """The next write about a workload; to be asked again with the answer to it.

    Args:
        workload: As it was seen; every write is bound to that state.
        check: Name of a check of ours.
        effect: Of the spend rules of its budget.
        controller: Ours; the field manager of entries.
        now: Of the transition.
    """
    is_held = effect.stop_policy is not StopPolicy.NONE
    if waits_for_answer(workload, check):
        if is_true(workload, "Admitted"):
            # The check came onto the queue while it ran: a running job is never stopped here.
            return _entry(workload, check, CheckAnswer.READY, RUNS, controller=controller, now=now)
        state, message = (
            (CheckAnswer.REJECTED, HELD_BACK) if is_held else (CheckAnswer.READY, LET_IN)
        )
        return _entry(workload, check, state, message, controller=controller, now=now)
    if is_held or not _is_alive(workload) or not was_rejected(workload, check):
        return None
    if entry_of(workload, check).get("state") == CheckAnswer.REJECTED:
        # Else it would be deactivated again at once; writing Pending is harmless at any time.
        return _entry(
            workload, check, CheckAnswer.PENDING, NOT_REJECTED, controller=controller, now=now
        )
    return reactivation(workload)


def activation(check: Document, *, controller: str, now: datetime) -> Write | None:
    """Tell that a check of ours is served, or why it cannot be (6.1); None when that is told.

    Nothing is told when a shift ends: while no portal runs, jobs wait for their answer.
    """
    spec = check.get("spec") or {}
    if spec.get("controllerName") != controller or check["metadata"].get("deletionTimestamp"):
        return None
    if spec.get("parameters"):
        text = "This check takes no parameters: its spend caps are set in the portal."
        wanted = Condition("Active", False, "BadParametersRef", text)
    else:
        wanted = Condition("Active", True, "Active", "The portal answers by its spend caps.")
    conditions = with_conditions(check, [wanted], now=now)
    if conditions == conditions_of(check):
        return None
    body = {**bound(check), "status": {"conditions": conditions}}
    return Write.patch("activate-check", r.ADMISSION_CHECK, check, body, subresource="status")


def _entry(
    workload: Document,
    check: str,
    state: CheckAnswer,
    message: str,
    *,
    controller: str,
    now: datetime,
) -> Write:
    """Our own entry, whole, bound to the state that was seen (6.4)."""
    metadata = workload["metadata"]
    own = {
        "name": check,
        "state": state.value,
        "message": message,
        "lastTransitionTime": stamp(now),
    }
    body = {
        "apiVersion": names.KUEUE_API,
        "kind": "Workload",
        "metadata": {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "status": {"admissionChecks": [own]},
    }
    return Write(
        f"answer-{state.value.lower()}", Verb.APPLY, r.WORKLOAD, metadata["namespace"],
        metadata["name"], body, subresource="status", manager=controller,
    )  # fmt: skip


def _is_alive(workload: Document) -> bool:
    return not workload["metadata"].get("deletionTimestamp") and not is_true(workload, "Finished")
