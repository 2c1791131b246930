"""When a waiting job is likely to start, from the runs that the meter recorded.

Reads what ``clusters.explaining.starting`` decides by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from django.db.models import QuerySet

from budgets.models import Interval, PendingSpan
from budgets.selectors.fleet.places import at_keys
from clusters.explaining.evidence import Evidence, Pair
from clusters.explaining.names import Names
from clusters.explaining.starting import (
    MOST_AHEAD,
    MOST_RECORDS,
    RECENT,
    UNFORESEEN,
    WINDOW,
    Key,
    Records,
    awaited,
    history_in,
    holders_of,
    likely_start,
    unless_unlike,
)
from clusters.forecasting import (
    NEWEST,
    Outcome,
    StartForecast,
    corrected,
    correction_from,
    runs_by_kind,
)
from clusters.models import ForecastMade, PendingReason, WorkloadState

HELD_SHOWN: Final = 500
"""Forecasts that a cluster's page tells of: the newest whose ranges are over."""


@dataclass(frozen=True, slots=True)
class ForecastsHeld:
    """How often what was said of starts on a cluster came true.

    Attributes:
        count: Forecasts whose ranges are over, the newest ``HELD_SHOWN``.
        held_percent: Of them, rounded.
        stated_percent: How often they were to hold, on average.
    """

    count: int
    held_percent: int
    stated_percent: int


def forecasts_held(cluster: str) -> ForecastsHeld | None:
    """How forecasts on a cluster did; None while no range is over. One query.

    Args:
        cluster: Slug of one that the reader sees.
    """
    found = list(_over(cluster).values_list("has_held", "coverage_percent")[:HELD_SHOWN])
    if not found:
        return None
    held = sum(bool(has_held) for has_held, _ in found)
    stated = sum(percent for _, percent in found)
    return ForecastsHeld(len(found), round(100 * held / len(found)), round(stated / len(found)))


def start_forecast(
    state: WorkloadState, evidence: Evidence, names: Names, *, now: datetime
) -> StartForecast:
    """Say when a waiting job is likely to start; five queries at most.

    How many runs of others stand behind it is not told.
    """
    found = stated_start(state, play_start(state, evidence, now=now), now=now)
    short = awaited(evidence)
    holders = holders_of(evidence, short[0]) if short is not None else []
    is_own = all(names.sees(item.namespace) for item in holders)
    return found if is_own else replace(found, runs=0)


def play_start(state: WorkloadState, evidence: Evidence, *, now: datetime) -> StartForecast:
    """When a job starts by its evidence and by recorded runs; four queries at most."""
    short = awaited(evidence)
    if short is None:
        return UNFORESEEN
    pair, _ = short
    ahead = _ahead(state, evidence, pair)
    holders = [(item.namespace, item.name) for item in holders_of(evidence, pair)]
    titles = _job_names([*holders, *(key for key, _ in ahead)])
    records = _records({namespace for namespace, _ in titles}, pair.flavor, now=now)
    found = likely_start(
        evidence, short, ahead=ahead, history=history_in(records, titles), now=now, uid=state.uid
    )
    return unless_unlike(
        found, created_at=state.created_at, waits=lambda: _recent_waits(state, now=now)
    )


def stated_start(state: WorkloadState, played: StartForecast, *, now: datetime) -> StartForecast:
    """The range that is told: where past ones of the cluster would have held. One query."""
    if played.earliest is None:
        return played
    newest = _over(state.cluster.slug).values_list("low_s", "high_s", "waited_s", "made_at")
    past = [
        Outcome(low, high, (now - made_at).total_seconds() if waited is None else waited)
        for low, high, waited, made_at in newest[:NEWEST]
    ]
    past.reverse()
    return corrected(played, correction_from(past), now=now)


def _over(cluster: str) -> QuerySet[ForecastMade]:
    """Forecasts whose ranges are over, the newest first."""
    return ForecastMade.objects.filter(cluster=cluster, has_held__isnull=False).order_by("-latest")


def _recent_waits(state: WorkloadState, *, now: datetime) -> list[timedelta]:
    """How long jobs of its namespace waited that started lately. One query."""
    spans = PendingSpan.objects.filter(
        namespace=state.namespace, end__gt=now - RECENT, cluster=state.cluster.slug
    )
    newest = spans.order_by("-end").values_list("start", "end")[:MOST_AHEAD]
    return [end - start for start, end in newest if end is not None]


def _ahead(state: WorkloadState, evidence: Evidence, pair: Pair) -> list[tuple[Key, int]]:
    """Those that stand before it in its queue and ask for the same, in order. One query."""
    if evidence.position < 2:
        return []
    rows = PendingReason.objects.filter(
        cluster=state.cluster.slug,
        evidence__clusterQueue=evidence.cluster_queue,
        evidence__position__gt=0,
        evidence__position__lt=evidence.position,
    ).values_list("namespace", "name", "evidence__position", "evidence__requests")
    found = sorted(
        (position, (namespace, name), int((requests or {}).get(pair.resource) or 0))
        for namespace, name, position, requests in rows[:MOST_AHEAD]
    )
    return [(key, count) for _, key, count in found if count]


def _job_names(keys: Sequence[Key]) -> dict[Key, str]:
    """(namespace, Workload) → name of its job. One query, none for none."""
    if not keys:
        return {}
    rows = WorkloadState.objects.filter(at_keys(keys)).values_list("namespace", "name", "job_name")
    known = {(namespace, name): job_name for namespace, name, job_name in rows if job_name}
    return {key: known.get(key, key[1]) for key in keys}


def _records(namespaces: set[str], flavor: str, *, now: datetime) -> Records:
    """The newest recorded runs of these namespaces on a flavor. One query, none for none."""
    if not namespaces:
        return {}
    rows = (
        Interval.objects.filter(
            workspace__namespace__in=namespaces,
            flavor=flavor,
            kind=Interval.Kind.BILLABLE,
            state=Interval.State.CLOSED,
            end__gt=now - WINDOW,
        )
        .order_by("-end")
        .values_list(
            "cluster", "uid", "epoch", "namespace", "job_name", "workload", "start", "end"
        )[:MOST_RECORDS]
    )
    spans: dict[tuple[str, str, int], tuple[str, str, datetime, datetime]] = {}
    for cluster, uid, epoch, namespace, job_name, workload, start, end in rows:
        if end is None:
            continue
        known = spans.get((cluster, uid, epoch))
        if known is not None:
            start, end = min(start, known[2]), max(end, known[3])
        spans[cluster, uid, epoch] = (namespace, job_name or workload, start, end)
    return runs_by_kind(spans)
