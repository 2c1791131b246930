"""Checks of the ledger against what clusters showed: capacity, queues, clocks, histories.

None of them changes a fact: what disagrees is noted and blocks the close until it is settled.

Source: issue 6, section 1; spec money, sections 1.3 to 1.5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet, Sum

from budgets.intervals import Problem
from budgets.metering import CapacityFact, QueueSample, lasting_mismatch
from budgets.models import CapacityWatch, Discrepancy, Flavor, Interval, MeterState
from budgets.models.reconciliation import UNSETTLED
from budgets.selectors.billing.capacity import capacity_facts, settled_hours, unmeasured_hours
from budgets.selectors.clock import utc_now
from budgets.services.billing.discrepancies import (
    clear_discrepancies,
    end_discrepancies,
    note_discrepancy,
)
from budgets.units import HOUR, Period, utc_hour

Kind = Discrepancy.Kind
LATE = timedelta(minutes=15)
"""So long after its end an hour may still get a sample that belongs to it."""
SKEW_LIMIT_S = 60
MOST_KEPT = 400


def check_capacity(*, since: datetime | None = None, now: datetime | None = None) -> int:
    """Compare every settled hour of every sampled cluster; safe to repeat.

    Args:
        since: The meter rewrote facts from here on; None: only hours not compared yet.
        now: UTC; None for the present.

    Returns:
        How many hours of flavors were compared.
    """
    instant = now or utc_now()
    states = {row.cluster: row for row in MeterState.objects.all()}
    compared = 0
    for watch in CapacityWatch.objects.order_by("cluster"):
        state = states.get(watch.cluster)
        if state is not None and state.complete_until and state.metered_until:
            known = min(state.complete_until, state.metered_until, instant)
            compared += _check_cluster(watch.pk, since, known, instant)
    return compared


@transaction.atomic
def _check_cluster(key: int, since: datetime | None, known: datetime, now: datetime) -> int:
    watch = CapacityWatch.objects.select_for_update().get(pk=key)
    begun = watch.checked_until or watch.since
    if since is not None:
        touched = Discrepancy.objects.filter(
            kind=Kind.CAPACITY, cluster=watch.cluster, state__in=UNSETTLED, end__gt=since
        )
        # What is open is looked at as a whole, or it could not be cleared.
        starts = touched.values_list("start", flat=True)
        begun = max(watch.since, min(begun, utc_hour(since), *starts))
    window = settled_hours(begun, min(known, max(watch.until, now - LATE)))
    if window is None:
        return 0
    facts = capacity_facts(watch.cluster, window)
    wrong = [fact for fact in facts if fact.is_measured and not fact.is_explained]
    unexplained = [_unexplained(watch.cluster, fact) for fact in wrong]
    _note_hours(Kind.CAPACITY, watch.cluster, window, unexplained)
    missing = unmeasured_hours(watch.cluster, window)
    unmeasured = [_unmeasured(watch.cluster, hour) for hour in missing]
    _note_hours(Kind.UNMEASURED, watch.cluster, window, unmeasured)
    watch.checked_until = max(window.end, watch.checked_until or window.end)
    watch.save(update_fields=["checked_until"])
    return len(facts)


def _unexplained(cluster: str, fact: CapacityFact) -> Discrepancy:
    way = "are missing from" if fact.unexplained > 0 else "are there beyond"
    return Discrepancy(
        kind=Kind.CAPACITY,
        cluster=cluster,
        flavor=fact.flavor,
        start=fact.hour,
        end=fact.hour + HOUR,
        amount=fact.unexplained,
        message=f"{abs(fact.unexplained)} GPU-seconds of an hour {way} the capacity of "
        f"{fact.flavor}; up to {fact.tolerance} count as no difference.",
    )


def _unmeasured(cluster: str, hour: datetime) -> Discrepancy:
    return Discrepancy(
        kind=Kind.UNMEASURED,
        cluster=cluster,
        start=hour,
        end=hour + HOUR,
        message="Nodes and pods were not looked at for the whole hour, so nobody knows what was "
        "free.",
    )


def _note_hours(kind: str, cluster: str, window: Period, found: Sequence[Discrepancy]) -> None:
    """Note what all hours of a window came to, and clear what is not found there any more."""
    wrong = [(row.flavor, row.start) for row in found]
    for row in found:
        note_discrepancy(row)
    # Only of what lies in the window as a whole all hours were seen.
    rows = Discrepancy.objects.filter(
        kind=kind,
        cluster=cluster,
        state__in=UNSETTLED,
        start__gte=window.start,
        end__lte=window.end,
    )
    over = [row.pk for row in rows if not _has_any(row, wrong)]
    clear_discrepancies(rows.filter(pk__in=over))


def _has_any(row: Discrepancy, wrong: Collection[tuple[str, datetime]]) -> bool:
    assert row.end is not None
    return any(row.start <= hour < row.end for flavor, hour in wrong if flavor == row.flavor)


@dataclass(frozen=True, slots=True)
class QueueSight:
    """One ClusterQueue and flavor as its status told it."""

    queue: str
    flavor: str
    sample: QueueSample


class QueueWatch:
    """Remembers what each queue of one cluster told, and notes what lasts.

    Args:
        cluster: Worker slug.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._runs: dict[tuple[str, str], list[QueueSample]] = {}

    def look(self, sights: Iterable[QueueSight], *, at: datetime) -> int:
        """Compare one look at every queue with the open intervals.

        Args:
            sights: What the queues said; one that is gone says nothing.
            at: UTC, by the cluster's clock: when they said so.

        Returns:
            How many disagree.
        """
        rows = _open_at(self._cluster, at).order_by().values_list("cluster_queue", "flavor")
        held = {(queue, flavor): gpus for queue, flavor, gpus in rows.annotate(Sum("gpus"))}
        runs: dict[tuple[str, str], list[QueueSample]] = {}
        for sight in sights:
            place = sight.queue, sight.flavor
            if sight.sample.is_matched(held.get(place, 0)):
                continue
            runs[place] = [*self._runs.get(place, []), sight.sample][-MOST_KEPT:]
            held_at = partial(_held_at, self._cluster, place)
            if lasting_mismatch(runs[place], held_at):
                self._note(place, runs[place], held.get(place, 0))
        self._runs = runs
        self._end_others(at)
        recheck_queues(self._cluster)
        return len(runs)

    def _note(self, place: tuple[str, str], run: Sequence[QueueSample], held: int) -> None:
        queue, flavor = place
        last = run[-1]
        note_discrepancy(
            Discrepancy(
                kind=Kind.QUEUE,
                cluster=self._cluster,
                start=run[0].at,
                message=f"Kueue says that {queue} uses {last.total} {flavor} and borrows "
                f"{last.borrowed}; the ledger holds {held} with {last.nominal} committed.",
                amount=last.total - held,
                subject=queue,
                flavor=flavor,
                samples=[_as_json(sample) for sample in run],
            )
        )

    def _end_others(self, at: datetime) -> None:
        """What agrees now, or is not there any more, goes on no longer."""
        going_on = Discrepancy.objects.filter(
            kind=Kind.QUEUE, cluster=self._cluster, end__isnull=True, state__in=UNSETTLED
        )
        over = [row.pk for row in going_on if (row.subject, row.flavor) not in self._runs]
        end_discrepancies(going_on.filter(pk__in=over), at=at)


def recheck_queues(cluster: str) -> int:
    """Clear what the ledger, rebuilt since, agrees with now; returns how many."""
    rows = Discrepancy.objects.filter(
        kind=Kind.QUEUE, cluster=cluster, end__isnull=False, state__in=UNSETTLED
    )
    matching = [
        row.pk
        for row in rows
        if not lasting_mismatch(
            [_from_json(text) for text in row.samples],
            partial(_held_at, cluster, (row.subject, row.flavor)),
        )
    ]
    return clear_discrepancies(rows.filter(pk__in=matching))


def note_skew(*, cluster: str, at: datetime, skew_s: int) -> None:
    """Note that a cluster's clock is off by more than a minute, or that it is right again.

    Args:
        cluster: Slug.
        at: UTC, by this server's clock.
        skew_s: Seconds that the cluster's clock is ahead.
    """
    if abs(skew_s) > SKEW_LIMIT_S:
        way = "ahead of" if skew_s > 0 else "behind"
        message = f"The cluster's clock is {abs(skew_s)} s {way} this server's; 60 s is the bound."
        note_discrepancy(
            Discrepancy(kind=Kind.CLOCK, cluster=cluster, start=at, message=message, amount=skew_s)
        )
    else:
        end_discrepancies(Discrepancy.objects.filter(kind=Kind.CLOCK, cluster=cluster), at=at)


def note_problems(
    *,
    cluster: str,
    uids: Collection[str],
    problems: Iterable[Problem],
    spans: Mapping[str, tuple[datetime, datetime]],
) -> None:
    """Note what of some workloads' histories was refused, and clear what is right now.

    Args:
        cluster: Slug.
        uids: Workloads of it that were built.
        problems: What of them left something out.
        spans: Uid -> (first, last) time at which a workload with a problem was seen.
    """
    wrong = set()
    for row in problems:
        wrong.add(row.uid)
        start, end = spans[row.uid]
        message = f"{row.code}: {row.message}"
        note_discrepancy(
            Discrepancy(
                kind=Kind.HISTORY,
                cluster=cluster,
                start=start,
                end=end,
                message=message,
                subject=row.uid,
            )
        )
    rows = Discrepancy.objects.filter(kind=Kind.HISTORY, cluster=cluster, state__in=UNSETTLED)
    clear_discrepancies(rows.filter(subject__in=set(uids) - wrong))


def _open_at(cluster: str, at: datetime) -> QuerySet[Interval]:
    """Intervals that hold what Kueue counts; a clock of another start counts reservations."""
    by_reservation = Flavor.objects.exclude(clock_start=Flavor.ClockStart.ADMITTED)
    return Interval.objects.filter(
        Q(end__isnull=True) | Q(end__gt=at),
        ~Q(kind=Interval.Kind.RESERVED) | Q(flavor__in=by_reservation.values("slug")),
        cluster=cluster,
        start__lte=at,
    ).exclude(Q(state=Interval.State.SUPERSEDED) | Q(kind=Interval.Kind.MANAGER_WAIT))


def _held_at(cluster: str, place: tuple[str, str], at: datetime) -> int:
    rows = _open_at(cluster, at).filter(cluster_queue=place[0], flavor=place[1])
    return int(rows.aggregate(gpus=Sum("gpus"))["gpus"] or 0)


def _as_json(sample: QueueSample) -> list[Any]:
    return [sample.at.isoformat(), sample.total, sample.borrowed, sample.nominal]


def _from_json(row: Sequence[Any]) -> QueueSample:
    return QueueSample(datetime.fromisoformat(row[0]), int(row[1]), int(row[2]), int(row[3]))
