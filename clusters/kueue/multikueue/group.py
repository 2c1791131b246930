"""What a dispatch decision looks at: a workload, its copies on the workers, and their state.

Values and readings of documents; ``multikueue`` decides on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from clusters.documents.conditions import condition, is_true
from clusters.documents.keys import Document
from clusters.kueue.multikueue.offers import Offer
from clusters.kueue.workload.parser import parse_time


@dataclass(frozen=True, slots=True)
class Copy:
    """What one connected worker holds of a workload.

    Attributes:
        workload: The Workload of the same key, None when there is none; whoever made it.
        is_ours: It carries our origin.
        is_current: It was made under the manager's present reservation.
        is_as_sent: Its spec is what was sent.
        has_job: A Job of the name exists there.
        is_job_ours: That Job carries our origin.
        is_adopted: A Job controls the Workload, or did before it was deleted.
        is_job_open: Its Job has not ended, as far as the worker's watch has told.
        is_job_unread: It has finished, its Job does not say so itself, and was not read since.
        is_short: Objects of the Job have still to be made there.
        has_lost: Objects of the Job were made there, and deleted.
        is_behind: The Job differs from the manager's in what it may follow.
    """

    workload: Document | None = None
    is_ours: bool = True
    is_current: bool = True
    is_as_sent: bool = True
    has_job: bool = False
    is_job_ours: bool = True
    is_adopted: bool = False
    is_job_open: bool = False
    is_job_unread: bool = False
    is_short: bool = False
    has_lost: bool = False
    is_behind: bool = False

    @property
    def is_anything_ours(self) -> bool:
        """Whether there is something to remove."""
        return (self.workload is not None and self.is_ours) or (self.has_job and self.is_job_ours)

    @property
    def has_foreign_job(self) -> bool:
        """Whether somebody else's Job has the name."""
        return self.has_job and not self.is_job_ours


@dataclass(frozen=True, slots=True)
class Round:
    """One round of nominations under one reservation.

    Attributes:
        number: From 1 on.
        started_at: When it was opened.
        nominated: Workers that it added.
        why: By worker, why it was taken, or passed over.
    """

    number: int
    started_at: datetime
    nominated: tuple[str, ...]
    why: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Siblings:
    """The other Workloads of a job that has several, all of which go to one worker.

    Attributes:
        is_complete: All of them exist.
        is_first: This is the one that chooses the worker.
        chosen: The worker that one of the others has; empty while none has any.
    """

    is_complete: bool
    is_first: bool
    chosen: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A workload with all its copies.

    Attributes:
        local: The manager's Workload; None when it is gone.
        check: Name of the AdmissionCheck that stands for dispatch.
        copies: By connected worker of the check's configuration.
        lost: Workers that cannot be reached, and since when.
        blocked: Connected workers that may not be nominated now, and why.
        refusal: Why the manager's Job cannot be dispatched; empty when it can.
        is_job_active: The manager's Job still says that pods run.
        is_stop_due: Whoever evicts has still to suspend the manager's Job.
        now: Current time.
        is_silent: The manager's Job never says whether pods run; its Workload's copy does.
        worker_lost_timeout: How long a lost worker is waited for.
        order: Workers as the check's configuration lists them.
        rounds: Of this reservation so far, oldest first.
        offers: What connected workers could give it now; empty unless a dispatcher asks.
        siblings: The other Workloads of its job; None where it has no others.
        is_handed_over: It was replaced by a Workload that has quota, and its Job goes on.
        left: Workers that are dispatched to no more, though they may still hold a copy.
        opening: Lost ones whose first try to connect is not over; nobody knows yet what they are.
    """

    local: Document | None
    check: str
    now: datetime
    copies: Mapping[str, Copy] = field(default_factory=dict)
    lost: Mapping[str, datetime] = field(default_factory=dict)
    blocked: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""
    is_job_active: bool = False
    is_stop_due: bool = False
    is_silent: bool = False
    worker_lost_timeout: timedelta = timedelta(minutes=15)
    order: tuple[str, ...] = ()
    rounds: tuple[Round, ...] = ()
    offers: Mapping[str, Offer] = field(default_factory=dict)
    siblings: Siblings | None = None
    is_handed_over: bool = False
    left: frozenset[str] = frozenset()
    opening: frozenset[str] = frozenset()

    @property
    def usable(self) -> frozenset[str]:
        """Connected workers that nothing speaks against."""
        return frozenset(name for name in self.copies if name not in self.blocked)

    def order_or_names(self) -> tuple[str, ...]:
        """The configured order; whatever it does not list comes after it, by name."""
        rest = sorted(self.copies.keys() - set(self.order))
        return (*self.order, *rest)

    def passed_over(self) -> dict[str, str]:
        """Why workers cannot be nominated now."""
        return {**dict.fromkeys(self.lost, "not connected"), **self.blocked}


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group whose workload exists, with what every step asks for."""

    group: Group
    local: Document

    @property
    def status(self) -> Document:
        """``status`` of the manager's Workload."""
        return self.local.get("status") or {}

    @property
    def checks(self) -> Mapping[str, str]:
        """State by AdmissionCheck name."""
        return {item["name"]: item["state"] for item in self.status.get("admissionChecks") or ()}

    @property
    def state(self) -> str:
        """State of the check that stands for dispatch; empty when it is not listed."""
        return self.checks.get(self.group.check, "")

    @property
    def chosen(self) -> str:
        """The worker that has it; empty while nobody does."""
        return str(self.status.get("clusterName") or "")

    @property
    def nominated(self) -> tuple[str, ...]:
        """The stored nominations."""
        return tuple(self.status.get("nominatedClusterNames") or ())

    @property
    def has_quota(self) -> bool:
        """Whether quota is reserved on the manager."""
        return is_true(self.local, "QuotaReserved")

    @property
    def is_evicted(self) -> bool:
        """Whether the manager told it to stop."""
        return is_true(self.local, "Evicted")

    def standing(self) -> dict[str, Document]:
        """Our copies of this reservation; once a worker is chosen, only the one there."""
        return {
            name: copy.workload
            for name, copy in self.group.copies.items()
            if copy.workload is not None
            and copy.is_ours
            and copy.is_current
            and (not self.chosen or name == self.chosen)
        }

    def first(self, kind: str) -> tuple[str, Document] | None:
        """The standing copy whose condition became true first; ties go by name."""
        found = [
            (since(workload, kind), name, workload)
            for name, workload in self.standing().items()
            if is_true(workload, kind)
        ]
        return min(found, key=lambda item: item[:2])[1:] if found else None


def since(document: Document, kind: str) -> datetime:
    """When a condition last changed; raises ``ValueError`` when it does not say."""
    found = parse_time(condition(document, kind).get("lastTransitionTime"))
    if found is None:
        raise ValueError(f"condition {kind} has no lastTransitionTime")
    return found
