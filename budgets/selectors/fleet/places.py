"""Rows of some Workloads, and intervals of a time: the ways to ask that an index answers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from django.db.models import F, Model, Q, QuerySet

from budgets.models import (
    Allocation,
    BillingPeriod,
    Capacity,
    Interval,
    MeasuredCapacity,
    PoolAllocation,
)
from budgets.selectors.clock import utc_now
from budgets.units import Period, utc_hour

Fact = TypeVar("Fact", bound=Model)


def at_places(places: Iterable[tuple[str, str]]) -> Q:
    """Rows of intervals, facts or events of some (cluster slug, uid).

    The keys of these tables begin with the cluster. Whoever has a UID twice has it by copying an
    object by hand, so what belongs to another pair is no concern here.
    """
    wanted = set(places)
    return Q(cluster__in={cluster for cluster, _ in wanted}, uid__in={uid for _, uid in wanted})


def at_keys(keys: Iterable[tuple[str, str]]) -> Q:
    """Rows of some (namespace, name), and of pairs that these make among each other."""
    wanted = set(keys)
    return Q(
        namespace__in={namespace for namespace, _ in wanted}, name__in={name for _, name in wanted}
    )


def workload_names(places: Iterable[tuple[str, str]]) -> dict[str, str]:
    """UID → name of the Workloads of these places, as the newest interval has it. One query."""
    rows = Interval.objects.filter(at_places(places)).order_by("uid", "start")
    return dict(rows.values_list("uid", "workload"))


def job_names(
    places: Iterable[tuple[str, str]],
) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Place → kind and name of its job, name of its Workload, as the newest interval has them.

    One query.
    """
    rows = Interval.objects.filter(at_places(places)).order_by("cluster", "uid", "start")
    columns = rows.values_list("cluster", "uid", "job_kind", "job_name", "workload")
    return {row[:2]: row[2:] for row in columns}


def counted_intervals(start: datetime, end: datetime, **which: object) -> QuerySet[Interval]:
    """Intervals that overlap [start, end) and are true still; open ones overlap all after them."""
    overlapping = Q(end__isnull=True) | Q(end__gt=start)
    found = Interval.objects.filter(overlapping, start__lt=end, **which)
    return found.exclude(state=Interval.State.SUPERSEDED)


def facts_in(facts: QuerySet[Fact], window: Period | BillingPeriod) -> QuerySet[Fact]:
    """Hour facts whose start lies in a window, in no order; the index is on the hour."""
    hours = facts.filter(hour__gte=utc_hour(window.start), hour__lt=window.end)
    return hours.filter(start__gte=window.start).order_by()


def flavor_places() -> dict[str, set[str]]:
    """Flavor slug → slugs of the clusters that have GPUs of it, or parts of promises. One query."""
    now = utc_now()
    stated = Capacity.objects.filter(Q(valid_until=None) | Q(valid_until__gt=now), gpus__gt=0)
    parts = Allocation.objects.filter(
        line__revision__budget__in_force=F("line__revision"), committed__gt=0
    )
    found: dict[str, set[str]] = {}
    rows = stated.order_by().values_list("flavor__slug", "cluster")
    for flavor, cluster in rows.union(
        MeasuredCapacity.objects.order_by().values_list("flavor__slug", "cluster"),
        parts.order_by().values_list("line__flavor__slug", "cluster"),
        PoolAllocation.objects.filter(gpus__gt=0).order_by().values_list("flavor__slug", "cluster"),
    ):
        found.setdefault(flavor, set()).add(cluster)
    return found
