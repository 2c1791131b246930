"""What the guard has to be shown, whoever looks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from clusters.documents.keys import Document
from clusters.jobs.table import JobKinds
from clusters.reconcile.dispatch.links import Link
from clusters.reconcile.guard.defects import Patient
from clusters.reconcile.runtime.job_cache import JobCache


class Sighted(Protocol):
    """The manager and its workers as they are now."""

    @property
    def origin(self) -> str:
        """Mark of this manager's copies."""

    @property
    def manager(self) -> JobCache:
        """The manager's objects."""

    @property
    def links(self) -> Mapping[str, Link]:
        """Workers by name."""

    @property
    def kinds(self) -> JobKinds:
        """Kinds of jobs."""

    def answers(self, worker: str) -> bool:
        """Whether it is seen what a worker holds now."""

    def patient(self, key: str, local: Document, now: datetime) -> Patient:
        """A workload with all that a diagnosis looks at."""
