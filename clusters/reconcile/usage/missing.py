"""Workloads that went while nobody watched, and when what they ran ended, if that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from clusters.documents.conditions import condition
from clusters.errors import ClusterError, NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.resources import Document
from clusters.models import WorkloadEvent, WorkloadState
from clusters.reconcile.usage.observed import Listed

log = structlog.stdlib.get_logger(__name__)

_ENDED = (WorkloadState.Phase.FINISHED, WorkloadState.Phase.FAILED, WorkloadState.Phase.GONE)
_READABLE = {"Job": r.JOB, "Pod": r.POD}


def newest_of_missing(cluster_id: int, slug: str, listed: Listed) -> list[WorkloadEvent]:
    """The newest event of every Workload that an earlier shift saw alive and a list lacks.

    Finished ones are left out: their end is known. Two queries.
    """
    alive = WorkloadState.objects.filter(cluster_id=cluster_id).exclude(phase__in=_ENDED)
    gone = sorted(set(alive.values_list("uid", flat=True)) - listed.uids)
    newest: dict[str, WorkloadEvent] = {}
    for at in range(0, len(gone), 500):
        rows = WorkloadEvent.objects.filter(
            cluster=slug, kind="Workload", uid__in=gone[at : at + 500]
        )
        for row in rows.order_by("pk"):
            known = newest.get(row.uid)
            if known is None or _version(row) >= _version(known):
                newest[row.uid] = row
    return [newest[uid] for uid in gone if uid in newest]


def ended_at(client: KubeClient, owned: Mapping[str, Any]) -> str | None:
    """When the Job or Pod behind a Workload ended, RFC 3339, by the cluster's clock.

    Args:
        client: Of the cluster that the Workload was on.
        owned: The Workload, or what was kept of it.

    Returns:
        None when it runs, is gone itself, is another object of that name, or cannot be read.
    """
    metadata = owned["metadata"]
    for owner in metadata.get("ownerReferences") or []:
        resource = _READABLE.get(str(owner.get("kind")))
        if resource is None:
            continue
        try:
            found = client.get(resource, str(owner["name"]), namespace=metadata["namespace"])
        except NotFound:
            continue
        except ClusterError as error:
            log.warning(
                "end_not_readable",
                workload=f"{metadata['namespace']}/{metadata['name']}",
                reason=error.reason,
            )
            continue
        if str(found["metadata"].get("uid")) == str(owner.get("uid")):
            return _of_job(found) if resource is r.JOB else _of_pod(found.get("status") or {})
    return None


def _of_job(job: Document) -> str | None:
    status = job.get("status") or {}
    if status.get("completionTime"):
        return str(status["completionTime"])
    failed = condition(job, "Failed")
    return str(failed["lastTransitionTime"]) if failed.get("status") == "True" else None


def _of_pod(status: Document) -> str | None:
    ended = [
        str(((row.get("state") or {}).get("terminated") or {}).get("finishedAt") or "")
        for row in status.get("containerStatuses") or []
    ]
    return max(ended) if ended and all(ended) else None


def _version(row: WorkloadEvent) -> int:
    return int(row.resource_version) if row.resource_version.isdecimal() else 0
