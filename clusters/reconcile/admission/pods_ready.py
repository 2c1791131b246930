"""The PodsReady condition of a Workload: what its Job says about its pods. Pure.

Source: Kueue pkg/controller/jobframework/reconciler.go, v0.19.2; spec admission 4.1.
"""

from __future__ import annotations

from typing import Final

from clusters.documents.conditions import Condition, condition, is_true
from clusters.documents.keys import Document
from clusters.jobs.table import kind_of
from clusters.jobs.workloads import owner_uid
from clusters.kueue.configuration import Configuration

WAITS: Final = Condition("PodsReady", False, "WaitForStart", "Not all pods are ready or succeeded")
_RECOVERS: Final = Condition(
    "PodsReady", False, "WaitForRecovery", "At least one pod has failed, waiting for recovery"
)
_READY_MESSAGE: Final = "All pods reached readiness and the workload is running"


def first_condition(workload: Document, configuration: Configuration) -> tuple[Condition, ...]:
    """What a Workload of a Job says before it has been admitted; empty once it says something.

    It travels with the first status write that there is anyhow.
    """
    is_followed = configuration.pods_ready is not None and owner_uid(workload)
    return (WAITS,) if is_followed and not condition(workload, "PodsReady") else ()


def changed_condition(workload: Document, job: Document) -> Condition | None:
    """The condition of a running Job; None while it stays the same.

    Args:
        workload: Admitted.
        job: Unsuspended.
    """
    shown = condition(workload, "PodsReady")
    if kind_of(job).are_pods_ready(job):
        was_lost = shown.get("reason") in ("WaitForRecovery", "Recovered")
        reason = "Recovered" if was_lost else "Started"
        wanted = Condition("PodsReady", True, reason, _READY_MESSAGE)
    elif is_true(workload, "PodsReady") or shown.get("reason") == "WaitForRecovery":
        wanted = _RECOVERS
    else:
        wanted = WAITS
    is_same = (shown.get("status"), shown.get("reason")) == (str(wanted.status), wanted.reason)
    return None if is_same else wanted
