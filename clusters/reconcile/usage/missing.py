"""Workloads that went while nobody watched, and when what they ran ended, if that can be read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import structlog

from clusters.documents.keys import version_number
from clusters.errors import ClusterError, NotFound
from clusters.jobs.table import KINDS
from clusters.kube.client import KubeClient
from clusters.models import WorkloadEvent, WorkloadState

log = structlog.stdlib.get_logger(__name__)

_ENDED = (WorkloadState.Phase.FINISHED, WorkloadState.Phase.FAILED, WorkloadState.Phase.GONE)
# By the name alone: no more is kept of a Workload's owner.
_TELLING = {kind.resource.kind: kind for kind in KINDS.values() if kind.tells_when}


def newest_of_missing(cluster_id: int, slug: str, uids: Collection[str]) -> list[WorkloadEvent]:
    """The newest event of every Workload that an earlier shift saw alive and a list lacks.

    Finished ones are left out: their end is known. Two queries.
    """
    alive = WorkloadState.objects.filter(cluster_id=cluster_id).exclude(phase__in=_ENDED)
    gone = sorted(set(alive.values_list("uid", flat=True)).difference(uids))
    newest: dict[str, WorkloadEvent] = {}
    for at in range(0, len(gone), 500):
        rows = WorkloadEvent.objects.filter(
            cluster=slug, kind="Workload", uid__in=gone[at : at + 500]
        )
        for row in rows.order_by("pk"):
            known = newest.get(row.uid)
            if known is None or version_number(row.resource_version) >= version_number(
                known.resource_version
            ):
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
        kind = _TELLING.get(str(owner.get("kind")))
        if kind is None:
            continue
        try:
            found = client.get(kind.resource, str(owner["name"]), namespace=metadata["namespace"])
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
            return kind.ended_at(found)
    return None
