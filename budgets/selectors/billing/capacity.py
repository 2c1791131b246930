"""The capacity identity, hour by hour: what samples showed beside what the ledger holds.

Source: issue 6, section 1; spec money, section 1.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Sum

from budgets.metering import CapacityFact, KeyedSpan, seconds_by_hour
from budgets.models import CapacityHour, ClusterHour, Flavor, Interval
from budgets.selectors.fleet.places import counted_intervals
from budgets.units import HOUR_S, Period, utc_hour

KINDS = {
    Interval.Kind.RACE: "race",
    Interval.Kind.UNDECIDED: "undecided",
    Interval.Kind.OUTSIDE: "outside",
    Interval.Kind.RESERVED: "starting",
}
HOUR = timedelta(hours=1)
Place = tuple[datetime, str]


@dataclass(frozen=True, slots=True)
class _Held:
    """GPU-seconds that the ledger holds of a cluster, by (hour, flavor) and kind."""

    used: dict[Place, tuple[int, int]]
    unbilled: dict[tuple[datetime, str, str], int]


def capacity_facts(
    cluster: str, window: Period, *, flavors: Sequence[str] | None = None
) -> list[CapacityFact]:
    """The identity of every hour and flavor that was sampled or held. Four queries.

    Args:
        cluster: Worker slug.
        window: Whole UTC hours.
        flavors: Only these; None for all.

    Returns:
        By hour and flavor. An hour without a sample has ``measured_s`` 0.
    """
    hours = CapacityHour.objects.filter(
        cluster=cluster, hour__gte=window.start, hour__lt=window.end
    )
    sampled = {(row.hour, row.flavor): row for row in hours}
    held = _held(cluster, window)
    places = {place for place in sampled if place[1]} | set(held.used)
    places |= {(hour, flavor) for hour, flavor, kind in held.unbilled if kind != "starting"}
    if flavors is not None:
        places = {place for place in places if place[1] in flavors}
    return [
        _fact(cluster, place, sampled.get(place), sampled.get((place[0], "")), held)
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
    sampled: CapacityHour | None,
    whole: CapacityHour | None,
    held: _Held,
) -> CapacityFact:
    hour, flavor = place
    used, burst = held.used.get(place, (0, 0))
    sums = {name: held.unbilled.get((hour, flavor, name), 0) for name in KINDS.values()}
    row = sampled or CapacityHour()
    sums["outside"] = max(sums["outside"], row.outside)
    return CapacityFact(
        hour=hour,
        cluster=cluster,
        flavor=flavor,
        measured_s=whole.measured_s if whole else 0,
        capacity=row.capacity,
        committed_used=used,
        burst=burst,
        **sums,
        free=row.free,
        down=row.down,
        over_admitted=row.over_admitted,
        by_pods=(whole or row).by_pods,
    )


def _held(cluster: str, window: Period) -> _Held:
    used: dict[Place, tuple[int, int]] = {}
    rows = ClusterHour.objects.filter(
        cluster=cluster, hour__gte=window.start, hour__lt=window.end
    ).order_by()
    for hour, flavor, committed, burst in rows.values_list("hour", "flavor").annotate(
        Sum("committed_used"), Sum("burst")
    ):
        used[hour, flavor] = (committed, burst)
    unbilled = seconds_by_hour(_unbilled(cluster, window), window)
    found = {}
    for (hour, key), seconds in unbilled.items():
        flavor, _, name = key.partition("/")
        found[hour, flavor, name] = int(seconds)
    return _Held(used, found)


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
