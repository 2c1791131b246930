"""A cluster's own generation: it rises with each change that its shifts have to look at."""

from __future__ import annotations

from django.db.models import F, QuerySet

from budgets.announcements import Work, announce
from clusters.models import Cluster


def raise_generation(cluster: Cluster) -> None:
    """Have the shifts of a cluster look again; the row in hand keeps the number that it read."""
    _raise(Cluster.objects.filter(pk=cluster.pk))


def raise_manager_generation() -> None:
    """Have the manager look at its workers again."""
    managers = Cluster.objects.filter(role=Cluster.Role.MANAGER)
    _raise(managers.exclude(state=Cluster.State.REMOVED))


def _raise(clusters: QuerySet[Cluster]) -> None:
    clusters.update(generation=F("generation") + 1)
    announce(Work.SYNC)
