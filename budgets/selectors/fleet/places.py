"""Rows of some Workloads: the one way to ask for them that finds them by an index."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q

from budgets.models import Interval


def at_places(places: Iterable[tuple[str, str]]) -> Q:
    """Rows of intervals, facts or events of some (cluster slug, uid).

    The keys of these tables begin with the cluster. Whoever has a UID twice has it by copying an
    object by hand, so what belongs to another pair is no concern here.
    """
    wanted = set(places)
    return Q(cluster__in={cluster for cluster, _ in wanted}, uid__in={uid for _, uid in wanted})


def workload_names(places: Iterable[tuple[str, str]]) -> dict[str, str]:
    """UID → name of the Workloads of these places, as the newest interval has it. One query."""
    rows = Interval.objects.filter(at_places(places)).order_by("uid", "start")
    return dict(rows.values_list("uid", "workload"))
