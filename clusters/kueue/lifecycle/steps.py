"""The steps that ``lifecycle`` asks for, as values; whoever has the cluster's door writes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class MarkAdmitted:
    """Set Admitted: quota is reserved and every check is ready."""

    message: str = "The workload is admitted"


@dataclass(frozen=True, slots=True)
class ListChecks:
    """Make ``status.admissionChecks`` list exactly these; new ones start Pending."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evict:
    """Tell the workload to stop; its quota stays counted until it has.

    Attributes:
        reason: of the Evicted condition.
        cause: underlying cause for the statistics, often empty.
        requeue_count, requeue_at: new ``status.requeueState``, ``None`` to leave it.
    """

    reason: str
    message: str
    cause: str = ""
    requeue_count: int | None = None
    requeue_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take an unadmitted reservation back, without an eviction."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class TargetDeactivation:
    """Set DeactivationTarget."""

    reason: str
    message: str
    resets_execution_time: bool = False


@dataclass(frozen=True, slots=True)
class SetInactive:
    """Answer DeactivationTarget with ``spec.active: false``."""


@dataclass(frozen=True, slots=True)
class MarkRequeued:
    """Set Requeued: the workload may be queued again."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SetPriority:
    """Write the value of its WorkloadPriorityClass into ``spec.priority``."""

    value: int


@dataclass(frozen=True, slots=True)
class ExplainWaiting:
    """Set QuotaReserved=False: the workload waits in no queue."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Ask again at this time."""

    at: datetime


Step: TypeAlias = (
    MarkAdmitted
    | ListChecks
    | Evict
    | Withdraw
    | TargetDeactivation
    | SetInactive
    | MarkRequeued
    | SetPriority
    | ExplainWaiting
    | LookAgain
)
