"""Usage for pages, API and CSV: hour facts added up, in GPU-seconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Max, Min, Sum
from django.db.models.functions import TruncDay

from budgets.amounts import HELD, NAMES, STORED, completed
from budgets.exports import defused
from budgets.models import Interval, MeterState, User
from budgets.selectors.clock import utc_now
from budgets.selectors.fleet.places import workload_names
from budgets.selectors.usage.scope import HELD_SUMS, USED, UsageFilter, UsageScope, amounts_of
from budgets.units import gpu_hours, time_text

LATE_AFTER = timedelta(minutes=5)
ROWS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class UsageRow:
    """GPU-seconds of one step and key; None where a class has no meaning.

    A floor belongs to no cluster, so a split by cluster knows only what ran there. ``start`` is
    None in sums over a range.
    """

    start: datetime | None
    key: str
    name: str
    amounts: Mapping[str, int | None]

    def __getattr__(self, name: str) -> Any:
        """An amount of :data:`budgets.amounts.AMOUNTS` by its name."""
        if name not in NAMES:
            raise AttributeError(name)
        return self.amounts[name]

    @property
    def held(self) -> int:
        """What jobs used, committed or burst."""
        return sum(self.amounts[name] or 0 for name in HELD)


def usage_row(start: datetime | None, key: str, name: str, stored: Mapping[str, int]) -> UsageRow:
    """A row of the amounts that are known of it; sums of them are added up, others are None."""
    return UsageRow(start, key, name, completed(stored))


@dataclass(frozen=True, slots=True)
class Freshness:
    """Up to when the facts are complete.

    Attributes:
        complete_until: The earliest over all clusters; None before the first facts.
        late_clusters: Clusters more than five minutes behind.
        clusters: Cluster slug -> complete until.
        estimated: Whether an interval of the range has an estimated end.
    """

    complete_until: datetime | None
    late_clusters: tuple[str, ...]
    clusters: Mapping[str, datetime | None]
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class UsageTable:
    """Rows that add up to the totals."""

    rows: tuple[UsageRow, ...]
    totals: UsageRow
    freshness: Freshness


@dataclass(frozen=True, slots=True)
class WorkloadUsageRow:
    """GPU-seconds of one workload on one cluster and flavor within the range."""

    namespace: str
    cluster: str
    uid: str
    workload: str
    flavor: str
    committed_used: int
    burst: int
    first: datetime
    last: datetime


def usage_table(user: User, chosen: UsageFilter, *, now: datetime | None = None) -> UsageTable:
    """Usage of the visible workspaces, by time step and key, with totals and freshness.

    The number of queries is bounded; sums are made by the database, whole numbers only.
    """
    scope = UsageScope(user, chosen)
    rows = tuple(_rows(scope, whole=True))
    return UsageTable(
        rows=rows,
        totals=add_up(rows, name="total", known=known_amounts(chosen)),
        freshness=freshness(scope, now=now),
    )


def usage_totals(user: User, chosen: UsageFilter) -> UsageTable:
    """The same without its freshness, which counts intervals; for pages that do not show it."""
    rows = tuple(_rows(UsageScope(user, chosen), whole=True))
    totals = add_up(rows, name="total", known=known_amounts(chosen))
    return UsageTable(rows=rows, totals=totals, freshness=Freshness(None, (), {}))


def add_up(rows: Iterable[UsageRow], *, name: str, known: Collection[str] = STORED) -> UsageRow:
    """One row that is the sum of rows; None for the amounts that are not ``known``."""
    sums = dict.fromkeys(known, 0)
    for row in rows:
        for amount in known:
            sums[amount] += row.amounts[amount] or 0
    return usage_row(None, "", name, sums)


def known_amounts(chosen: UsageFilter) -> tuple[str, ...]:
    """Amounts that have a meaning in a split: a floor belongs to no cluster."""
    return HELD if chosen.split_by == "cluster" else STORED


def usage_csv(user: User, chosen: UsageFilter) -> Iterator[tuple[str, ...]]:
    """What the usage page shows, as rows of texts, the header first; GPU-hours are exact.

    Times are ISO 8601 with Z; an amount that has no meaning is empty. Rows are read from the
    database as they are taken, never held all at once.
    """
    yield (
        "start",
        "key",
        "name",
        *(f"{name}_gpu_seconds" for name in NAMES),
        *(f"{name}_gpu_hours" for name in NAMES),
    )
    for row in _rows(UsageScope(user, chosen)):
        amounts = [row.amounts[name] for name in NAMES]
        yield (
            time_text(row.start) if row.start else "",
            defused(row.key),
            defused(row.name),
            *("" if amount is None else str(amount) for amount in amounts),
            *("" if amount is None else gpu_hours(amount) for amount in amounts),
        )


def workload_usage(
    user: User, chosen: UsageFilter, *, limit: int = 200, after: int = 0
) -> list[WorkloadUsageRow]:
    """The workloads behind a usage table, the largest first; ``after``: so many left out of them.

    Step and split of the filter are ignored. Three queries.
    """
    found = list(
        UsageScope(user, chosen)
        .of_workloads()
        .values("workspace__namespace", "cluster", "uid", "flavor")
        .annotate(**HELD_SUMS, used=Sum(USED), first=Min("hour"), last=Max("hour"))
        .order_by("-used", "uid", "cluster", "flavor")[after : after + limit]
    )
    names = workload_names((row["cluster"], row["uid"]) for row in found)
    return [
        WorkloadUsageRow(
            namespace=row["workspace__namespace"],
            cluster=row["cluster"],
            uid=row["uid"],
            workload=names.get(row["uid"], row["uid"]),
            flavor=row["flavor"],
            **amounts_of(row),
            first=row["first"],
            last=row["last"],
        )
        for row in found
    ]


def freshness(scope: UsageScope | None = None, *, now: datetime | None = None) -> Freshness:
    """Up to when every cluster's facts are complete, and whether a part of it is estimated."""
    instant = now or utc_now()
    clusters = dict(MeterState.objects.order_by("cluster").values_list("cluster", "complete_until"))
    known = [until for until in clusters.values() if until is not None]
    return Freshness(
        complete_until=min(known) if len(known) == len(clusters) and known else None,
        late_clusters=tuple(
            cluster
            for cluster, until in clusters.items()
            if until is None or until < instant - LATE_AFTER
        ),
        clusters=clusters,
        estimated=scope is not None and _is_estimated(scope),
    )


def _is_estimated(scope: UsageScope) -> bool:
    """Whether an interval of the range has an end that was not seen."""
    chosen = scope.chosen
    found = Interval.objects.filter(
        state=Interval.State.ESTIMATED,
        workspace__isnull=False,
        start__lt=chosen.end,
        end__gt=chosen.start,
    )
    if not scope.is_platform:
        found = found.filter(workspace__in=scope.workspaces.values("pk"))
    if chosen.flavors:
        found = found.filter(flavor__in=chosen.flavors)
    return found.exists()


def _rows(scope: UsageScope, *, whole: bool = False) -> Iterator[UsageRow]:
    """Rows by time and key, in that order; read in pieces unless the whole is wanted anyway."""
    facts, keys, sums = scope.split()
    # Said with the zone, for rows may be read after the request.
    day = TruncDay("hour", tzinfo=scope.chosen.zone)
    step: Any = day if scope.chosen.step == "day" else F("hour")
    grouped = facts.annotate(step=step).values("step", *keys)
    rows = grouped.annotate(**sums).order_by("step", *keys)
    # All at once in one round trip, or by a cursor of the server that holds them.
    for row in rows if whole else rows.iterator(chunk_size=ROWS_AT_ONCE):
        key, name = (row[keys[0]], row[keys[-1]]) if keys else ("", "all")
        yield usage_row(row["step"], key, name, amounts_of(row))
