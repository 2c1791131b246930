"""Every kind of job that the portal knows: one row each, by group and kind.

A new kind is a file that describes it and a row here. From the rows come what is queued, started
and dispatched, the rights that are asked for, what preflight checks and the table of the docs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from clusters.documents.keys import Document, annotations_of, controller_of
from clusters.documents.labels import OWNER_GVK, OWNER_NAME
from clusters.documents.resources import Resource
from clusters.jobs import rows
from clusters.jobs.batch import JOB
from clusters.jobs.described import Described, named
from clusters.jobs.kind import JobKind
from clusters.jobs.leader_worker_sets import LeaderWorkerSets
from clusters.jobs.pods import Pods
from clusters.jobs.workloads import owner_uid

_ROWS: Final[Sequence[JobKind]] = (
    JOB,
    rows.JOB_SET,
    rows.JAX,
    rows.MPI,
    rows.PADDLE,
    rows.PYTORCH,
    rows.TENSORFLOW,
    rows.XGBOOST,
    LeaderWorkerSets(),
    Pods(),
    rows.RAY_CLUSTER,
    rows.RAY_JOB,
    rows.TRAIN,
    rows.APP_WRAPPER,
)
KINDS: Final[dict[tuple[str, str], JobKind]] = {
    (row.resource.group, row.resource.kind): row for row in _ROWS
}
# Makes Jobs that do not queue by themselves, and is dispatched by nobody.
_OTHER_OWNERS: Final = (rows.RAY_SERVICE,)
_UNKNOWN: Final = named(Resource("", "", "", "", True))
_NAME: Final = re.compile(r"([A-Z][A-Za-z0-9]*)\.(v[0-9][a-z0-9]*)\.([a-z0-9-]+(?:\.[a-z0-9-]+)+)")


def kind_of(job: Document) -> JobKind:
    """The kind of a document, whichever version it is in; a Job where it does not say."""
    return _kind_named(job.get("apiVersion") or "batch/v1", job.get("kind") or "Job")


@lru_cache(maxsize=64)
def _kind_named(api_version: str, kind: str) -> JobKind:
    return KINDS.get((api_version.rpartition("/")[0], kind), _UNKNOWN)


def kind_served(resource: Resource) -> JobKind:
    """The kind of what a Configuration names.

    In another version than the table's its fields may mean something else: it is dispatched as the
    table says, and its Workloads come along.
    """
    known = KINDS.get((resource.group, resource.kind))
    if known is None or known.resource == resource:
        return known or named(resource)
    if not isinstance(known, Described):
        return named(resource)
    return replace(known, resource=resource, is_queued_here=False)


def integrations(names: Collection[str]) -> tuple[Resource, ...]:
    """Kinds besides Job that ``integrations.frameworks`` names."""
    return tuple(
        kind.resource for kind in KINDS.values() if kind.integration in names and kind is not JOB
    )


def resource_named(text: str) -> Resource:
    """Read ``Kind.version.group``.

    Raises:
        ValueError: the text is not of that form.
    """
    found = _NAME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not Kind.version.group, as PipelineRun.v1.tekton.dev")
    return Resource.guessed(*found.groups())


def is_below_other_kind(job: Document) -> bool:
    """Whether an owner of another kind that queues answers for a job."""
    above = controller_of(job).get("kind")
    return any(
        row.answers_for_jobs and row.resource.kind == above
        for row in (*KINDS.values(), *_OTHER_OWNERS)
    )


def suspendable() -> tuple[JobKind, ...]:
    """Kinds that wait for their quota suspended as a whole, whoever starts them."""
    return tuple(
        row
        for row in (*KINDS.values(), *_OTHER_OWNERS)
        if row is JOB or (isinstance(row, Described) and row.suspend)
    )


def workload_keys(job: Document) -> tuple[str, ...]:
    """Keys of the Workloads that a job has, or will have."""
    namespace = job["metadata"]["namespace"]
    return tuple(f"{namespace}/{name}" for name in kind_of(job).workload_names(job))


def seen_from(job: dict[str, Any], workload: str) -> dict[str, Any]:
    """A job as the Workload of a key means it: a *view*, which says what part of it is meant."""
    return kind_of(job).view_of(job, workload.partition("/")[2])


def job_of(workload: Document | None, jobs: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The job that a Workload stands for: its owner, else the oldest that names it."""
    listed = list(jobs)
    # Of a replica that was dispatched here, its pods are what starts and stops.
    listed = [job for job in listed if kind_of(job).is_grouped] or listed
    owner = owner_uid(workload) if workload is not None else ""
    if owner:
        listed = [job for job in listed if job["metadata"].get("uid") == owner]
    return kind_of(listed[0]).gathered(listed) if listed else None


class JobKinds:
    """The kinds in force on a cluster.

    Args:
        named: Kinds besides Job that its Configuration names.
    """

    def __init__(self, named: Iterable[Resource] = ()) -> None:
        found = (JOB, *map(kind_served, named))
        self._known = {(kind.resource.api_version, kind.resource.kind): kind for kind in found}

    def __iter__(self) -> Iterator[JobKind]:
        return iter(self._known.values())

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Every kind."""
        return tuple(kind.resource for kind in self)

    @property
    def optional(self) -> tuple[Resource, ...]:
        """Kinds that a cluster may not serve."""
        return tuple(kind.resource for kind in self if not kind.is_required)

    def of(self, document: Document) -> JobKind | None:
        """The kind of a job; None for one that nobody named."""
        return self._known.get((str(document.get("apiVersion")), str(document.get("kind"))))

    def with_resources(
        self, jobs: Iterable[dict[str, Any]]
    ) -> tuple[tuple[Resource, dict[str, Any]], ...]:
        """Jobs with their resources; without those of kinds that nobody named."""
        found = ((self.of(job), job) for job in jobs)
        return tuple((kind.resource, job) for kind, job in found if kind is not None)

    def owner_of(self, workload: Document) -> tuple[JobKind | None, str, str]:
        """Who a Workload stands for: kind, its name and the job's; empty texts without an owner.

        Annotations first, then the owner that controls it, then the first owner.
        """
        marks = annotations_of(workload)
        if marks.get(OWNER_GVK) and marks.get(OWNER_NAME):
            group_version, _, kind = marks[OWNER_GVK].partition(", Kind=")
            return self._known.get((group_version, kind)), kind, marks[OWNER_NAME]
        owners = workload["metadata"].get("ownerReferences") or ()
        found = controller_of(workload) or next(iter(owners), {})
        if not found:
            return None, "", ""
        kind, version = str(found.get("kind", "")), str(found.get("apiVersion", ""))
        return self._known.get((version, kind)), f"{version}, Kind={kind}", str(found["name"])


JOBS_ONLY: Final = JobKinds()
