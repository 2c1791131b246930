"""Does this database have the past that a cluster remembers; after a restored backup it has not.

The quota shift keeps the newest entry of the audit log as an annotation of its Lease: every change
of a promise is in that log. A database that does not have this very entry is an older one, or
another, and nothing is written to the cluster until an admin has decided which side is right.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import structlog
from django.db import transaction

from budgets import services as promises
from budgets.models import AuditEntry
from clusters.errors import NotFound
from clusters.kube.client import KubeClient
from clusters.kube.lease import LeaseName
from clusters.kube.resources import LEASE
from clusters.models import Cluster

log = structlog.stdlib.get_logger(__name__)

NOTE = "gpu-budget-portal.dev/newest-entry"
RESOLVED = "cluster.resolve_block"


def newest_entry() -> str:
    """What a cluster is to remember: number and time of the newest entry. One query."""
    row = AuditEntry.objects.order_by("-pk").values_list("pk", "at").first()
    return f"{row[0]} {row[1].isoformat()}" if row else ""


def look_back(client: KubeClient, lease: LeaseName, *, cluster_id: int, slug: str) -> None:
    """Block a cluster that remembers what this database does not have.

    Args:
        client: Of the cluster.
        lease: Of its quota shift.
        cluster_id: Of the cluster's row.
        slug: Of the cluster.

    Raises:
        ClusterError: the cluster cannot be asked; then nothing may be written to it either.
    """
    try:
        metadata = client.get(LEASE, lease.name, namespace=lease.namespace)["metadata"]
    except NotFound:
        return
    note = (metadata.get("annotations") or {}).get(NOTE, "")
    at = _lost_since(note, slug)
    if at is None:
        return
    newest = AuditEntry.objects.order_by("-pk").values_list("at", flat=True).first()
    known = f"{newest:%Y-%m-%d %H:%M:%S} UTC" if newest else "never"
    block(
        cluster_id,
        slug,
        f"The portal wrote to this cluster until {at:%Y-%m-%d %H:%M:%S} UTC, with entries in its "
        f"audit log that this database does not have; its newest is of {known}. Was a backup "
        "restored? Nothing is written to this cluster until an admin decides which side is right.",
        still=lambda: _lost_since(note, slug) is not None,
    )


def _lost_since(note: str, slug: str) -> datetime | None:
    """When the newest entry was made that this database lacks; None: it has it, or may lack it."""
    number, _, text = note.partition(" ")
    try:
        pk, at = int(number[:18]), datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is None or AuditEntry.objects.filter(pk=pk, at=at).exists():
        return None
    decided = AuditEntry.objects.filter(action=RESOLVED, cluster=slug, at__gt=at)
    return None if decided.exists() else at


@transaction.atomic
def block(
    cluster_id: int, slug: str, reason: str, *, still: Callable[[], bool] = lambda: True
) -> None:
    """Stop all writing to a cluster until an admin decides; the first reason stands.

    Args:
        cluster_id: Of the cluster's row.
        slug: Of the cluster.
        reason: For people.
        still: Asked once no decision can come any more: one may have been made meanwhile.
    """
    row = Cluster.objects.select_for_update().filter(pk=cluster_id, blocked_reason="").first()
    if row is not None and still():
        row.blocked_reason = reason[:500]
        row.save(update_fields=["blocked_reason"])
        promises.audit(
            None, action="cluster.blocked", subject=f"cluster:{slug}", cluster=slug, reason=reason
        )
        log.warning("sync_blocked", cluster=slug)
