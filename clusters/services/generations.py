"""What every change of a cluster ends with: its generation rises, and the log tells who did it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import F, QuerySet

from budgets.announcements import Work, announce
from budgets.models import User
from budgets.services.audit import audit
from clusters.models import Cluster


def locked(cluster: Cluster) -> Cluster:
    """The row of a cluster, held until the transaction ends."""
    return Cluster.objects.select_for_update().get(pk=cluster.pk)


def record_change(
    actor: User | None,
    action: str,
    row: Cluster,
    *,
    reason: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> Cluster:
    """Have the shifts of a cluster look at what was saved, and write it down; the row is fresh."""
    raise_generation(row)
    row.refresh_from_db()
    audit(actor, action, row, cluster=row.slug, reason=reason, before=before, after=after)
    return row


def raise_generation(cluster: Cluster) -> None:
    """Have the shifts of a cluster look again; the row in hand keeps the number that it read."""
    _raise(Cluster.objects.filter(pk=cluster.pk))


def raise_manager_generation() -> None:
    """Have the manager look at its workers again."""
    _raise(Cluster.objects.registered().filter(role=Cluster.Role.MANAGER))


def _raise(clusters: QuerySet[Cluster]) -> None:
    clusters.update(generation=F("generation") + 1)
    announce(Work.SYNC)
