"""Usage for pages, API and CSV: hour facts added up, in GPU-seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from django.db.models import F, Max, Min, QuerySet, Sum
from django.db.models.functions import TruncDay

from budgets.models import Interval, MeterState, UsageRecord, User, WorkloadUsage
from budgets.selectors.clock import utc_now
from budgets.selectors.roles import visible_workspaces

AMOUNTS = ("committed", "committed_used", "burst", "borrowed", "lent", "idle", "pending")
HELD_AMOUNTS = ("committed_used", "burst")
LATE_AFTER = timedelta(minutes=5)
STEPS = ("hour", "day")
SPLITS = ("none", "workspace", "flavor", "cluster")


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """What of the usage is asked for.

    Attributes:
        start: UTC, inclusive; facts of the hours that begin at or after it.
        end: UTC, exclusive.
        workspaces: Namespaces; empty for all visible ones. Invisible ones have no usage.
        flavors: Flavor slugs; empty for all.
        step: ``hour`` or ``day`` (UTC).
        split_by: ``none``, ``workspace``, ``flavor`` or ``cluster``.
    """

    start: datetime
    end: datetime
    workspaces: tuple[str, ...] = ()
    flavors: tuple[str, ...] = ()
    step: str = "hour"
    split_by: str = "none"

    def __post_init__(self) -> None:
        if self.step not in STEPS or self.split_by not in SPLITS:
            raise ValueError(f"no such step or split: {self.step!r}, {self.split_by!r}")


@dataclass(frozen=True, slots=True)
class UsageRow:
    """GPU-seconds of one step and key; None where a class has no meaning.

    A floor belongs to no cluster, so a split by cluster knows only what ran there.
    """

    start: datetime | None
    key: str
    name: str
    committed: int | None
    committed_used: int
    burst: int
    borrowed: int | None
    lent: int | None
    idle: int | None
    pending: int | None


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
    rows = tuple(_rows(user, chosen))
    amounts: dict[str, Any] = {}
    for name in AMOUNTS:
        values = [getattr(row, name) for row in rows]
        is_unknown = chosen.split_by == "cluster" and name not in HELD_AMOUNTS
        amounts[name] = None if is_unknown else sum(values)
    return UsageTable(
        rows=rows,
        totals=UsageRow(start=None, key="", name="total", **amounts),
        freshness=freshness(user, chosen, now=now),
    )


def usage_csv(user: User, chosen: UsageFilter) -> Iterator[tuple[str, ...]]:
    """What the usage page shows, as rows of texts, the header first; GPU-hours are exact.

    Times are ISO 8601 with Z; an amount that has no meaning is empty.
    """
    yield (
        "start",
        "key",
        "name",
        *(f"{name}_gpu_seconds" for name in AMOUNTS),
        *(f"{name}_gpu_hours" for name in AMOUNTS),
    )
    for row in _rows(user, chosen):
        amounts = [getattr(row, name) for name in AMOUNTS]
        yield (
            f"{row.start:%Y-%m-%dT%H:%M:%SZ}",
            _plain(row.key),
            _plain(row.name),
            *("" if amount is None else str(amount) for amount in amounts),
            *("" if amount is None else gpu_hours(amount) for amount in amounts),
        )


def gpu_hours(gpu_seconds: int) -> str:
    """GPU-seconds as GPU-hours with four decimals, rounded half to even, without a float."""
    scaled = round(Fraction(gpu_seconds * 10_000, 3600))
    return f"{scaled // 10_000}.{scaled % 10_000:04d}"


def workload_usage(
    user: User, chosen: UsageFilter, *, limit: int = 200, after: int = 0
) -> list[WorkloadUsageRow]:
    """The workloads behind a usage table, the largest first. Three queries.

    Args:
        user: The viewer.
        chosen: Range, workspaces and flavors; step and split are ignored.
        limit: At most so many rows.
        after: How many of the largest to leave out.
    """
    found = list(
        _workload_facts(user, chosen)
        .order_by()
        .values("workspace__namespace", "cluster", "uid", "flavor")
        .annotate(
            used=Sum("committed_used"), over=Sum("burst"), first=Min("hour"), last=Max("hour")
        )
        .order_by((F("used") + F("over")).desc(), "uid", "cluster", "flavor")[after : after + limit]
    )
    names = dict(
        Interval.objects.filter(uid__in={row["uid"] for row in found})
        .order_by("uid", "-start")
        .values_list("uid", "workload")
    )
    return [
        WorkloadUsageRow(
            namespace=row["workspace__namespace"],
            cluster=row["cluster"],
            uid=row["uid"],
            workload=names.get(row["uid"], row["uid"]),
            flavor=row["flavor"],
            committed_used=row["used"],
            burst=row["over"],
            first=row["first"],
            last=row["last"],
        )
        for row in found
    ]


def freshness(
    user: User | None = None, chosen: UsageFilter | None = None, *, now: datetime | None = None
) -> Freshness:
    """Up to when every cluster's facts are complete, and whether a part is estimated."""
    instant = now or utc_now()
    clusters = dict(MeterState.objects.order_by("cluster").values_list("cluster", "complete_until"))
    known = [until for until in clusters.values() if until is not None]
    is_estimated = False
    if user is not None and chosen is not None:
        estimated = Interval.objects.filter(
            workspace__in=_workspaces(user, chosen).values("pk"),
            state=Interval.State.ESTIMATED,
            start__lt=chosen.end,
            end__gt=chosen.start,
        )
        if chosen.flavors:
            estimated = estimated.filter(flavor__in=chosen.flavors)
        is_estimated = estimated.exists()
    return Freshness(
        complete_until=min(known) if len(known) == len(clusters) and known else None,
        late_clusters=tuple(
            cluster
            for cluster, until in clusters.items()
            if until is None or until < instant - LATE_AFTER
        ),
        clusters=clusters,
        estimated=is_estimated,
    )


def _workspaces(user: User, chosen: UsageFilter) -> QuerySet[Any]:
    found = visible_workspaces(user, include_archived=True)
    return found.filter(namespace__in=chosen.workspaces) if chosen.workspaces else found


def _rows(user: User, chosen: UsageFilter) -> Iterator[UsageRow]:
    if chosen.split_by == "cluster":
        yield from _cluster_rows(user, chosen)
        return
    facts = UsageRecord.objects.filter(
        workspace__in=_workspaces(user, chosen).order_by().values("pk"),
        hour__gte=chosen.start,
        hour__lt=chosen.end,
    )
    if chosen.flavors:
        facts = facts.filter(flavor__slug__in=chosen.flavors)
    keys = {
        "none": (),
        "workspace": ("workspace__namespace", "workspace__name"),
        "flavor": ("flavor__slug", "flavor__name"),
    }[chosen.split_by]
    step = TruncDay("hour") if chosen.step == "day" else F("hour")
    grouped = facts.order_by().annotate(step=step).values("step", *keys)
    for row in grouped.annotate(**{f"sum_{name}": Sum(name) for name in AMOUNTS}).order_by(
        "step", *keys
    ):
        yield UsageRow(
            start=row["step"],
            key=row[keys[0]] if keys else "",
            name=row[keys[1]] if keys else "all",
            **{name: row[f"sum_{name}"] for name in AMOUNTS},
        )


def _cluster_rows(user: User, chosen: UsageFilter) -> Iterator[UsageRow]:
    step = TruncDay("hour") if chosen.step == "day" else F("hour")
    grouped = _workload_facts(user, chosen).order_by().annotate(step=step).values("step", "cluster")
    for row in grouped.annotate(used=Sum("committed_used"), over=Sum("burst")).order_by(
        "step", "cluster"
    ):
        yield UsageRow(
            start=row["step"],
            key=row["cluster"],
            name=row["cluster"],
            committed_used=row["used"],
            burst=row["over"],
            **dict.fromkeys(set(AMOUNTS) - set(HELD_AMOUNTS)),
        )


def _workload_facts(user: User, chosen: UsageFilter) -> QuerySet[WorkloadUsage]:
    facts = WorkloadUsage.objects.filter(
        workspace__in=_workspaces(user, chosen).order_by().values("pk"),
        hour__gte=chosen.start,
        hour__lt=chosen.end,
    )
    return facts.filter(flavor__in=chosen.flavors) if chosen.flavors else facts


def _plain(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
