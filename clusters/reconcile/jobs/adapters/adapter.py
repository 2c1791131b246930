"""What dispatch and admission have to know of a kind of job.

Source: Kueue pkg/controller/jobframework/{interface,multikueue}.go, v0.19.2; spec dispatch 4,
admission 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from clusters.documents.keys import Document
from clusters.kube.client import EVERYTHING, Selection
from clusters.kube.resources import Resource
from clusters.reconcile.jobs.batch import Outcome, Priority
from clusters.reconcile.jobs.remote import CopyMarks


class Adapter(Protocol):
    """One kind of job."""

    @property
    def resource(self) -> Resource:
        """The kind."""

    @property
    def is_required(self) -> bool:
        """Whether a cluster that does not serve the kind cannot be worked with at all."""

    @property
    def is_adopted(self) -> bool:
        """Whether a worker's engine makes the job the owner of its Workload."""

    @property
    def is_shared(self) -> bool:
        """Whether one object stands for several Workloads, which go to one worker together."""

    @property
    def is_silent(self) -> bool:
        """Whether its status never says that no pod runs."""

    @property
    def selection(self) -> Selection:
        """Which objects of the kind can be jobs."""

    def refusal(self, job: Document) -> str:
        """Why a manager's job may not be dispatched: it would run there; empty when it may."""

    def is_active(self, job: Document) -> bool:
        """Whether pods of it may run, as far as its status tells."""

    def members(self, job: Document) -> Sequence[Document]:
        """The objects that a job consists of; itself for all kinds but groups."""

    def body(self, job: Document, workload: Document, *, marks: CopyMarks) -> dict[str, Any]:
        """The worker's copy.

        Args:
            job: The manager's; of a group one member.
            workload: The manager's Workload, which it is linked to.
            marks: Go onto the copy.
        """

    def pod_sets(self, workload: Document, answer: Document) -> Sequence[dict[str, Any]]:
        """Pod sets of the worker's Workload.

        Args:
            workload: The manager's.
            answer: The copy as the worker would store it.
        """

    def status_patch(
        self, local: Document, remote: Document, *, now: datetime
    ) -> dict[str, Any] | None:
        """The merge patch that brings a copy's status to the manager; None when nothing is due."""

    def follow_patch(self, local: Document, copied: Document) -> dict[str, Any] | None:
        """The merge patch that makes a copy follow the manager's job; None when nothing is due."""

    def inactive_patch(self, local: Document, *, now: datetime) -> dict[str, Any] | None:
        """The status patch that says that no pod runs; None where the status cannot say so."""


class OneObject:
    """What is true of kinds whose jobs are one object with one Workload."""

    is_shared = False
    selection = EVERYTHING

    @property
    def is_silent(self) -> bool:
        return False

    def members(self, job: Document) -> Sequence[Document]:
        return (job,)

    def follow_patch(self, local: Document, copied: Document) -> dict[str, Any] | None:
        return None


class Queueing(Protocol):
    """How a kind besides Job queues where the portal decides."""

    def is_clear(self, job: Document) -> bool:
        """Whether its pod sets can be told; if not, no Workload is made here (yet)."""

    def pod_sets(self, job: Document) -> list[dict[str, Any]]:
        """Pod sets as a Workload has them."""

    def is_suspended(self, job: Document) -> bool:
        """Whether something of it waits to be started."""

    def is_stopped(self, job: Document) -> bool:
        """Whether nothing of it is left to be stopped."""

    def outcome_of(self, job: Document) -> Outcome | None:
        """How it ended; None while it has not."""

    def are_pods_ready(self, job: Document) -> bool:
        """Whether all of its pods run or are done, as far as its status tells."""

    def is_in_sync(self, job: Document, workload: Document) -> bool:
        """Whether a Workload still describes it."""

    def workload_for(self, job: Document, *, priority: Priority) -> dict[str, Any]:
        """The Workload to create for it."""

    def missing_owners(self, job: Document, workload: Document) -> list[dict[str, Any]]:
        """Owners that its Workload should have besides those that it has."""

    def start_patch(
        self, job: Document, workload: Document, *, flavors: Mapping[str, Document]
    ) -> dict[str, Any]:
        """The merge patch that starts it, or its next part; raises ``StartRefused``."""

    def suspend_patch(self, job: Document) -> dict[str, Any] | None:
        """The merge patch that stops it; None where only a deletion does."""

    def restore_patch(self, job: Document, workload: Document) -> dict[str, Any] | None:
        """The merge patch that takes a start's marks off; None when there are none."""
