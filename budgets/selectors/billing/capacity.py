"""The capacity identity, hour by hour: what samples showed beside what the ledger holds.

Source: issue 6, section 1; spec money, section 1.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.db.models import Sum

from budgets.metering import CapacityFact, KeyedSpan, seconds_by_hour
from budgets.models import CapacityHour, ClusterHour, Flavor, Interval
from budgets.records import record_of
from budgets.selectors.fleet.places import counted_intervals
from budgets.units import HOUR, HOUR_S, Period, utc_hour

KINDS = {
    Interval.Kind.RACE: "race",
    Interval.Kind.UNDECIDED: "undecided",
    Interval.Kind.OUTSIDE: "outside",
    Interval.Kind.RESERVED: "starting",
}
Place = tuple[datetime, str]


def capacity_facts(cluster: str, window: Period) -> list[CapacityFact]:
    """The identity of every hour and flavor that was sampled or held. Four queries.

    Args:
        cluster: Worker slug.
        window: Whole UTC hours.

    Returns:
        By hour and flavor. An hour without a sample has ``measured_s`` 0.
    """
    hours = CapacityHour.objects.filter(
        cluster=cluster, hour__gte=window.start, hour__lt=window.end
    )
    sampled = {(row.hour, row.flavor): row for row in hours}
    used = _used(cluster, window)
    unbilled = seconds_by_hour(_unbilled(cluster, window), window)
    places = {place for place in sampled if place[1]} | used.keys()
    places |= {
        (hour, key.partition("/")[0]) for hour, key in unbilled if not key.endswith("/starting")
    }
    return [
        _fact(cluster, place, sampled, used.get(place, (0, 0)), unbilled)
        for place in sorted(places)
    ]


def unmeasured_hours(cluster: str, window: Period) -> list[datetime]:
    """Whole hours of a window for which samples do not stand, in order. One query."""
    rows = CapacityHour.objects.filter(
        cluster=cluster, flavor="", hour__gte=window.start, hour__lt=window.end, measured_s=HOUR_S
    )
    measured = set(rows.values_list("hour", flat=True))
    return [hour for hour, _ in window.utc_hours() if hour not in measured]


def _fact(
    cluster: str,
    place: Place,
    sampled: Mapping[Place, CapacityHour],
    used: tuple[int, int],
    unbilled: Mapping[Place, int],
) -> CapacityFact:
    """``unbilled``: by hour and ``flavor/kind``; a sample of no flavor is of the whole cluster."""
    hour, flavor = place
    row, whole = sampled.get(place) or CapacityHour(), sampled.get((hour, ""))
    sums = {name: unbilled.get((hour, f"{flavor}/{name}"), 0) for name in KINDS.values()}
    sums["outside"] = max(sums["outside"], row.outside)
    return record_of(
        CapacityFact,
        row,
        hour=hour,
        cluster=cluster,
        flavor=flavor,
        measured_s=whole.measured_s if whole else 0,
        committed_used=used[0],
        burst=used[1],
        **sums,
        by_pods=(whole or row).by_pods,
    )


def _used(cluster: str, window: Period) -> dict[Place, tuple[int, int]]:
    """(hour, flavor) → GPU-seconds committed and of burst."""
    hours = ClusterHour.objects.filter(cluster=cluster, hour__gte=window.start, hour__lt=window.end)
    sums = (
        hours.order_by().values_list("hour", "flavor").annotate(Sum("committed_used"), Sum("burst"))
    )
    return {(hour, flavor): (committed, burst) for hour, flavor, committed, burst in sums}


def _unbilled(cluster: str, window: Period) -> Iterable[KeyedSpan]:
    """Intervals that are nobody's; quota that is only reserved counts where pods are there."""
    with_pods = set(
        Flavor.objects.filter(clock_start=Flavor.ClockStart.PODS_READY).values_list(
            "slug", flat=True
        )
    )
    rows = counted_intervals(window.start, window.end, cluster=cluster, kind__in=KINDS)
    for kind, flavor, gpus, start, end in rows.values_list(
        "kind", "flavor", "gpus", "start", "end"
    ):
        if kind != Interval.Kind.RESERVED or flavor in with_pods:
            yield KeyedSpan(f"{flavor}/{KINDS[Interval.Kind(kind)]}", gpus, start, end)


def settled_hours(start: datetime, end: datetime) -> Period | None:
    """The whole UTC hours that begin and end in a range; None when there is none."""
    first = utc_hour(start + HOUR - timedelta(seconds=1))
    last = utc_hour(end)
    return Period(first, last) if first < last else None
