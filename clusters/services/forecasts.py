"""Notes what was said of when waiting jobs start, and afterwards whether it held.

At each turn one waiting job of each cluster, drawn by chance among those that nothing is noted of,
is asked about as its page would; so that a job counts once, and long waits are not told of at their
beginning alone. A job that left its queue without starting is forgotten: nobody knows when it would
have started.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db.models import Exists, OuterRef
from django.utils import timezone

from budgets.models import PendingSpan
from clusters.forecasting import StartForecast
from clusters.models import Cluster, ForecastMade, PendingReason, WorkloadState
from clusters.selectors.forecasts import HELD_SHOWN, play_start, stated_start
from clusters.selectors.reasons import read_reasons

MOST_SETTLED: Final = 200
"""Ranges that are looked at in one turn."""
KEPT: Final = 2 * HELD_SHOWN
"""Forecasts of one cluster; older ones go."""
LATE: Final = timedelta(minutes=10)
"""After the end of a range what happened is known: the ledger has followed."""


def note_forecasts(*, now: datetime | None = None) -> dict[str, int]:
    """Settle what is over, and note one forecast for each active cluster.

    A few queries for each cluster and each range that is over.

    Returns:
        How many were ``settled`` and ``noted``.
    """
    now = now or timezone.now().replace(microsecond=0)
    settled = settle_forecasts(now=now)
    clusters = Cluster.objects.active().values_list("slug", flat=True)
    return {"settled": settled, "noted": sum(_note(slug, now) for slug in clusters)}


def settle_forecasts(*, now: datetime) -> int:
    """Say of each range that is over whether it held, and of late jobs when they did start.

    Returns:
        How many were looked at.
    """
    over = ForecastMade.objects.filter(latest__lt=now - LATE)
    new = over.filter(has_held=None).order_by("latest", "pk")[:MOST_SETTLED]
    late = over.filter(has_held=False, waited_s=None).order_by("-latest", "-pk")[:MOST_SETTLED]
    found = [*new, *late]
    for row in found:
        _settle(row)
    return len(found)


def _settle(row: ForecastMade) -> None:
    state = WorkloadState.objects.filter(cluster__slug=row.cluster, uid=row.uid).first()
    spans = PendingSpan.objects.filter(cluster=row.cluster, uid=row.uid, start__lte=row.made_at)
    span = spans.order_by("-start").first()
    end = span.end if span is not None else None
    is_within = end is not None and end <= row.latest
    has_started = state is not None and (state.admitted_at is not None or state.evictions > 0)
    if span is None or (is_within and not has_started):
        row.delete()
        return
    if end is not None:
        # One that left its queue after the end of its range missed it, too.
        row.waited_s = max(0, round((end - row.made_at).total_seconds()))
    row.has_held = end is not None and row.earliest <= end <= row.latest
    row.save(update_fields=["waited_s", "has_held"])


def _note(cluster: str, now: datetime) -> bool:
    """Note a forecast for one waiting job of a cluster; false where nothing could be said."""
    noted = ForecastMade.objects.filter(cluster=cluster, uid=OuterRef("uid"))
    waiting = WorkloadState.objects.filter(
        cluster__slug=cluster,
        uid=OuterRef("uid"),
        phase=WorkloadState.Phase.PENDING,
        is_remote_copy=False,
        evictions=0,
    )
    drawn = (
        PendingReason.objects.filter(~Exists(noted), Exists(waiting), cluster=cluster)
        .order_by("?")
        .first()
    )
    if drawn is None:
        return False
    states = WorkloadState.objects.select_related("cluster")
    state = states.get(cluster__slug=cluster, uid=drawn.uid)
    [reason] = read_reasons(PendingReason.objects.filter(pk=drawn.pk))
    played = play_start(state, reason.evidence, now=now)
    stated = stated_start(state, played, now=now)
    if stated.earliest is None:
        return False
    _keep(cluster, drawn.uid, played, stated, now)
    return True


def _keep(
    cluster: str, uid: str, played: StartForecast, stated: StartForecast, now: datetime
) -> None:
    assert played.earliest is not None and played.latest is not None
    assert stated.earliest is not None and stated.latest is not None
    ForecastMade.objects.get_or_create(
        cluster=cluster,
        uid=uid,
        defaults={
            "made_at": now,
            "low_s": max(0, round((played.earliest - now).total_seconds())),
            "high_s": max(0, round((played.latest - now).total_seconds())),
            "earliest": stated.earliest,
            "latest": stated.latest,
            "coverage_percent": round(100 * stated.coverage),
        },
    )
    rows = ForecastMade.objects.filter(cluster=cluster).order_by("-made_at", "-pk")
    too_old = rows.values_list("pk", flat=True)[KEPT : KEPT + MOST_SETTLED]
    ForecastMade.objects.filter(pk__in=list(too_old)).delete()
