"""What dispatch has to know of a kind of job.

Source: Kueue pkg/controller/jobframework/multikueue.go, v0.19.2; spec dispatch 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from clusters.kube.resources import Resource
from clusters.reconcile.jobs.keys import Document
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

    def refusal(self, job: Document) -> str:
        """Why a manager's job may not be dispatched: it would run there; empty when it may."""

    def is_active(self, job: Document) -> bool:
        """Whether pods of it may run, as far as its status tells."""

    def body(self, job: Document, workload: Document, *, marks: CopyMarks) -> dict[str, Any]:
        """The worker's copy.

        Args:
            job: The manager's.
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

    def inactive_patch(self, local: Document, *, now: datetime) -> dict[str, Any] | None:
        """The status patch that says that no pod runs; None where the status cannot say so."""
