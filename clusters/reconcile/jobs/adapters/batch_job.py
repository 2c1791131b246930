"""batch/v1 Job.

Source: Kueue pkg/controller/jobs/job/job_multikueue_adapter.go, v0.19.2; spec dispatch 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from clusters.documents import labels
from clusters.documents.keys import Document
from clusters.kube import resources as r
from clusters.reconcile.jobs import batch, remote
from clusters.reconcile.jobs.adapters.adapter import OneObject
from clusters.reconcile.jobs.adapters.shapes import managed_refusal


class BatchJob(OneObject):
    """The Job of Kubernetes."""

    resource = r.JOB
    is_required = True
    is_adopted = True

    def refusal(self, job: Document) -> str:
        return "" if batch.is_managed_by_dispatch(job) else managed_refusal(job, ("managedBy",))

    def is_active(self, job: Document) -> bool:
        return batch.is_active(job)

    def body(self, job: Document, workload: Document, *, marks: remote.CopyMarks) -> dict[str, Any]:
        return remote.job_copy(job, workload, marks=marks)

    def pod_sets(self, workload: Document, answer: Document) -> Sequence[dict[str, Any]]:
        # With the worker's own defaults, so that what it compares with the Job is equal to it.
        template = batch.clean_template(answer["spec"]["template"])
        return [dict(workload["spec"]["podSets"][0]) | {"template": template}]

    def status_patch(
        self, local: Document, copied: Document, *, now: datetime
    ) -> dict[str, Any] | None:
        found = remote.status_copy(local, copied, now=now).status
        return None if found is None else remote.status_patch(local, found)

    def follow_patch(self, local: Document, copied: Document) -> dict[str, Any] | None:
        name, size = batch.workload_name_of(local), local["spec"].get("parallelism", 1)
        is_same = (batch.prebuilt_name(copied), copied["spec"].get("parallelism", 1)) == (
            name,
            size,
        )
        if is_same or not batch.is_elastic(local):
            return None
        patch = remote.guarded(copied, {"parallelism": size})
        patch["metadata"]["annotations"] = {labels.PREBUILT: name}
        return patch

    def inactive_patch(self, local: Document, *, now: datetime) -> dict[str, Any] | None:
        return remote.status_patch(local, remote.inactive_status(local, now=now))
