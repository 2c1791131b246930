"""The manager's side of a workload that is dispatched, and who dispatches to whom. Pure.

The latter as the manager's AdmissionChecks and MultiKueueConfigs say it.

Source: spec dispatch 1.1, 1.4; Kueue pkg/controller/admissionchecks/multikueue, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.documents import labels
from clusters.documents.conditions import condition, is_true
from clusters.documents.keys import Document, status_of
from clusters.jobs.kind import JobKind
from clusters.jobs.remote import CopyMarks
from clusters.jobs.table import JobKinds, job_of
from clusters.kube import resources as r
from clusters.kueue.multikueue.decide import check_of
from clusters.reconcile.runtime.cache import Cache
from clusters.reconcile.runtime.job_cache import JobCache


@dataclass(frozen=True, slots=True)
class Local:
    """The manager's side of one workload.

    Attributes:
        key: ``namespace/name`` of the Workload.
        workload: The Workload; None when it is gone.
        job: The job that it stands for.
        kind: Of the job's kind; None without a job.
        check: Name of the AdmissionCheck that dispatches; empty when it lists none.
        marks: On every copy of its present reservation.
    """

    key: str
    workload: Document | None
    job: dict[str, Any] | None
    kind: JobKind | None
    check: str
    marks: CopyMarks

    @property
    def there(self) -> Document:
        """The Workload of one that is known to be there."""
        assert self.workload is not None
        return self.workload

    @property
    def members(self) -> Sequence[Document]:
        """The objects that its job consists of; none without a job."""
        if self.job is None or self.kind is None:
            return ()
        return self.kind.members(self.job)


def local_job(manager: JobCache, key: str, kinds: JobKinds) -> dict[str, Any] | None:
    """The manager's job of a Workload: one that names it, else the owner that it names."""
    workload = manager.get(r.WORKLOAD, key)
    found = job_of(workload, manager.jobs_for(key))
    if found is not None or workload is None:
        return found
    kind, _, name = kinds.owner_of(workload)
    if kind is None:
        return None
    return manager.get(kind.resource, f"{workload['metadata']['namespace']}/{name}")


def attempt_of(local: Document) -> str:
    """Names a reservation of a Workload: copies of an earlier one are stale.

    By its time and by the evictions before it: times are whole seconds, and a workload can be
    evicted and reserved again within one.
    """
    since = condition(local, "QuotaReserved").get("lastTransitionTime", "")
    stats = status_of(local).get("schedulingStats") or {}
    evictions = sum(int(item.get("count") or 0) for item in stats.get("evictions") or ())
    # The eviction under way ends this reservation; it is not one before it.
    before = evictions - is_true(local, "Evicted")
    return f"{local['metadata']['uid']}@{since}" + (f"#{before}" if before > 0 else "")


def chosen_of(local: Document) -> str:
    """The worker that has a workload of the manager; empty while none does."""
    return str(status_of(local).get("clusterName") or "")


def workers_of(check: Document, configs: Mapping[str, Document]) -> tuple[str, ...]:
    """Workers that an AdmissionCheck dispatches to, in the order of its configuration."""
    config = configs.get(config_of(check))
    return tuple(((config or {}).get("spec") or {}).get("clusters") or ())


def config_of(check: Document) -> str:
    """Name of the MultiKueueConfig that an AdmissionCheck refers to; empty when it names none."""
    reference = (check.get("spec") or {}).get("parameters") or {}
    return str(reference.get("name", ""))


def dispatched_workers(manager: Cache) -> frozenset[str]:
    """Workers that any AdmissionCheck of the manager dispatches to, and that it has."""
    configs, clusters = manager.of(r.MULTIKUEUE_CONFIG), manager.of(r.MULTIKUEUE_CLUSTER)
    return frozenset(
        worker
        for check in manager.of(r.ADMISSION_CHECK).values()
        if is_dispatch_check(check)
        for worker in workers_of(check, configs)
        if worker in clusters
    )


def dispatch_check(manager: Cache, workload: Document) -> str:
    """The AdmissionCheck of a workload that stands for dispatch; empty when it lists none."""
    controllers = {
        name: (check.get("spec") or {}).get("controllerName", "")
        for name, check in manager.of(r.ADMISSION_CHECK).items()
    }
    return check_of(workload, controllers=controllers)


def is_dispatch_check(check: Document) -> bool:
    return bool((check.get("spec") or {}).get("controllerName") == labels.MULTIKUEUE)
