"""Kinds of jobs that a few paths describe: how they are managed, suspended and known as active.

Their copy is metadata and spec, their status is taken over as a whole.
Source: spec dispatch 4, 2.9; Kueue pkg/controller/jobs and .../externalframeworks, v0.19.2.
Deviation from Kueue: fields by which an object removes itself are not sent (2.10).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.keys import Document
from clusters.kube.resources import Resource
from clusters.kueue.multikueue.settings import Framework
from clusters.reconcile.jobs import remote
from clusters.reconcile.jobs.adapters.adapter import OneObject
from clusters.reconcile.jobs.adapters.paths import ANY, Path, drop, put, values, zero
from clusters.reconcile.jobs.adapters.queued import Queued, queued_of

_MANAGED: Final = ("managedBy",)
_RUN_POLICY: Final = ("runPolicy", "managedBy")


@dataclass(frozen=True, slots=True)
class Shape(OneObject):
    """One kind, in paths below ``spec`` and ``status``; ``*`` stands for every entry.

    Attributes:
        resource: The kind.
        is_adopted: Whether a worker's engine makes it the owner of its Workload.
        managed_by: Field of ``spec`` that says who runs it.
        suspend: Field of ``spec`` that stops it; empty for a kind without one.
        not_sent: Fields of ``spec`` that a copy must not have.
        counts: Fields of ``status`` that count running pods.
        idle: Field of ``status`` and its values while no pod runs; empty where counts say it.
    """

    resource: Resource
    is_adopted: bool = False
    managed_by: Path = _MANAGED
    suspend: Path = ()
    not_sent: tuple[Path, ...] = ()
    counts: tuple[Path, ...] = ()
    idle: tuple[Path, tuple[str, ...]] = ((), ())

    @property
    def is_required(self) -> bool:
        """A cluster may well not serve it."""
        return False

    @property
    def is_silent(self) -> bool:
        return not self.counts and not self.idle[0]

    def refusal(self, job: Document) -> str:
        return managed_refusal(job, self.managed_by)

    def is_active(self, job: Document) -> bool:
        status = job.get("status") or {}
        if any(found for path in self.counts for found in values(status, path)):
            return True
        field, words = self.idle
        if field:
            return next(values(status, field), "") not in words
        return self.is_silent

    def body(self, job: Document, workload: Document, *, marks: remote.CopyMarks) -> dict[str, Any]:
        spec = copy.deepcopy(dict(job.get("spec") or {}))
        queued = queued_of(job)
        if isinstance(queued, Queued) and queued.is_clear(job):
            # A start on the manager may have marked them with the manager's own flavors.
            spec = queued.unmarked(spec, workload)
        for path in (self.managed_by, *self.not_sent):
            drop(spec, path)
        if self.suspend:
            put(spec, self.suspend, True)
        return {"metadata": remote.copy_metadata(job, workload, marks=marks), "spec": spec}

    def pod_sets(self, workload: Document, answer: Document) -> Sequence[dict[str, Any]]:
        return [dict(item) for item in workload["spec"]["podSets"]]

    def status_patch(
        self, local: Document, copied: Document, *, now: datetime
    ) -> dict[str, Any] | None:
        wanted = copied.get("status") or {}
        # A copy that has not begun says nothing yet; what the manager shows stays.
        if not wanted or wanted == (local.get("status") or {}):
            return None
        return remote.status_patch(local, wanted)

    def inactive_patch(self, local: Document, *, now: datetime) -> dict[str, Any] | None:
        status = copy.deepcopy(dict(local.get("status") or {}))
        field, words = self.idle
        if self.is_silent:
            return None
        for path in self.counts:
            zero(status, path)
        if field:
            put(status, field, words[0])
        return remote.status_patch(local, status)


def managed_refusal(job: Document, path: Path) -> str:
    """Why a job that its own cluster would run may not be dispatched; empty when it may."""
    found = next(values(job.get("spec") or {}, path), "")
    if found == labels.MULTIKUEUE:
        return ""
    return (
        "The owner is not managed by Kueue: "
        f'Expecting spec.{".".join(path)} to be "{labels.MULTIKUEUE}" not "{found}"'
    )


def resource_of(framework: Framework) -> Resource:
    """The resource of a named kind, its plural built as clients do that ask nobody."""
    return Resource(framework.group, framework.version, framework.plural, framework.kind, True)


def shape_of(framework: Framework) -> Shape:
    """The shape of a kind: of a known one its own, of any other ``spec.managedBy`` and no more."""
    known = _KNOWN.get((framework.group, framework.kind))
    resource = resource_of(framework)
    return Shape(resource) if known is None else Shape(resource, is_adopted=True, **known)


_KUBEFLOW: Final[Mapping[str, Any]] = {
    "managed_by": _RUN_POLICY,
    "suspend": ("runPolicy", "suspend"),
    "not_sent": (("runPolicy", "ttlSecondsAfterFinished"),),
    "counts": (("replicaStatuses", ANY, "active"),),
}
_RAY_IDLE: Final = (("jobDeploymentStatus",), ("Suspended", ""))
_KNOWN: Final[Mapping[tuple[str, str], Mapping[str, Any]]] = {
    ("jobset.x-k8s.io", "JobSet"): {
        "suspend": ("suspend",),
        "not_sent": (("ttlSecondsAfterFinished",),),
        "counts": (("replicatedJobsStatus", ANY, "active"),),
    },
    **{
        ("kubeflow.org", kind): _KUBEFLOW
        for kind in ("JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob")
    },
    ("trainer.kubeflow.org", "TrainJob"): {
        "suspend": ("suspend",),
        "counts": (("jobsStatus", ANY, "active"),),
    },
    ("workload.codeflare.dev", "AppWrapper"): {
        "suspend": ("suspend",),
        "idle": (("phase",), ("Suspended", "", "Succeeded", "Failed")),
    },
    ("ray.io", "RayJob"): {
        "suspend": ("suspend",),
        "idle": _RAY_IDLE,
    },
    ("ray.io", "RayCluster"): {
        "suspend": ("suspend",),
        "idle": (("state",), ("suspended", "", "unhealthy", "failed")),
    },
}
