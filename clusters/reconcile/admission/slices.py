"""Elastic Jobs that are dispatched: a Workload for each size, each replacing the one before. Pure.

A Job that grows under quota gets another Workload, the *slice*, that asks for the whole new size
and names the one it replaces; once the slice has quota, the older one is finished. A Job that
shrinks keeps its Workload, whose counts shrink. The Job is not stopped for any of that.

Source: Kueue pkg/workloadslicing, pkg/controller/jobframework, v0.19.2; spec dispatch 4.2,
admission 3.4.7.
Deviations: only Jobs that are dispatched are elastic, since no webhook gates the pods of a Job that
runs here; slices are numbered by an annotation of the Job instead of its generation.
"""

from __future__ import annotations

from collections.abc import Mapping

from clusters.documents import labels
from clusters.documents.conditions import condition, is_true
from clusters.documents.keys import Document, annotations_of, labels_of, uid_of
from clusters.jobs import batch
from clusters.jobs.batch import JOB
from clusters.jobs.workloads import containers_of, prebuilt_name
from clusters.kube import resources as r
from clusters.reconcile.admission.steps import metadata_write, spec_write
from clusters.reconcile.runtime.writer import Write
from clusters.reconcile.workload_status import REPLACED


def is_over_to(successor: Document, workload: Document) -> bool:
    """Whether the successor has quota, or the workload itself has none: it is finished then."""
    if is_true(successor, "Finished"):
        return False
    return is_true(successor, "QuotaReserved") or not is_true(workload, "QuotaReserved")


def was_replaced(workload: Document) -> bool:
    """Whether a slice ended because another has taken its Job over."""
    return bool(condition(workload, "Finished").get("reason") == REPLACED)


def replaced_message(successor: Document) -> str:
    """What the replaced one's Finished condition says."""
    uid, job = uid_of(successor), labels_of(successor).get(labels.JOB_UID, "")
    return (
        f"Replaced to accommodate a workload (UID: {uid}, JobUID: {job}) due to workload slice "
        "aggregation"
    )


def takes_over(workload: Document, workloads: Mapping[str, Document]) -> bool:
    """Whether the Job goes on while this slice waits: by the size before, or until it is ready.

    Args:
        workload: A slice, or the only Workload of its Job.
        workloads: All of them by key.
    """
    before = annotations_of(workload).get(labels.SLICE_OF)
    if not before or is_true(workload, "Evicted"):
        return False
    if is_true(workload, "QuotaReserved"):
        return True
    older = workloads.get(before)
    return (
        older is not None
        and is_true(older, "QuotaReserved")
        and not is_true(older, "Finished")
        and not is_true(older, "Evicted")
    )


def is_current(job: Document, workload: Document) -> bool:
    """Whether a Workload is its Job's newest slice; the only one of a Job that is not elastic."""
    return not batch.is_elastic(job) or JOB.workload_name_of(job) == workload["metadata"]["name"]


def is_resized(job: Document, workload: Document) -> bool:
    """Whether nothing but the number of pods differs, which an elastic Job may change."""
    if not batch.is_elastic(job) or prebuilt_name(job):
        return False
    listed = workload["spec"].get("podSets") or []
    return len(listed) == 1 and containers_of(job["spec"]["template"]) == containers_of(
        listed[0]["template"]
    )


def resize(job: Document, workload: Document) -> Write | None:
    """The write that brings Job and Workload to the same size; None while an eviction goes on."""
    pod_set = workload["spec"]["podSets"][0]
    wanted = batch.pod_count(job)
    has_quota = is_true(workload, "QuotaReserved")
    if has_quota and is_true(workload, "Evicted"):
        return None
    if not has_quota or wanted < int(pod_set.get("count", 1)):
        return spec_write("resize", workload, podSets=[{**pod_set, "count": wanted}])
    marks = {labels.SLICE: str(batch.slice_of(job) + 1)}
    return metadata_write("slice", job, resource=r.JOB, annotations=marks)
