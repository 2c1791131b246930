"""Hour facts of some windows: out of what they are worked out, and how they are stored.

Working out is pure and is done a window ahead in a thread beside, while the database is busy with
the rows of the window before; only the caller's thread speaks with the database.

Totals of the facts are kept in the transaction that writes the facts, and are rebuildable from
them. They are added up from what stands in the tables of facts, never from what a writer meant to
write, so they are right whatever kept a fact from being changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from operator import attrgetter
from typing import Any

from django.db import transaction
from django.db.models import F, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import TruncDate

from budgets import metering
from budgets.amounts import COVER, HELD, METERED, STORED
from budgets.errors import PortalError
from budgets.models import (
    AccountHour,
    AccountUsage,
    ClusterHour,
    Flavor,
    MeterState,
    PendingSpan,
    PlatformHour,
    UsageRecord,
    WorkloadUsage,
    Workspace,
    WorkspaceDay,
)
from budgets.models.reading import read_rows
from budgets.selectors.usage.metered import held_intervals, metered_pools, metered_revisions
from budgets.services.billing.corrections import FactWriter
from budgets.services.usage.rows import rewrite_from
from budgets.units import HOUR, Period, utc_hour

ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class _Total:
    """One table of totals.

    Attributes:
        facts: Table that is added up.
        totals: Table of the sums.
        key: Column of the totals → where it comes from in a fact.
        amounts: What is added up.
        time: The column of the totals that says when.
    """

    facts: Any
    totals: Any
    key: dict[str, Any]
    amounts: tuple[str, ...]
    time: str = "hour"


def _same(*names: str) -> dict[str, Any]:
    return {name: F(name) for name in names}


TOTALS = (
    _Total(facts=UsageRecord, totals=PlatformHour, key=_same("hour", "flavor_id"), amounts=STORED),
    _Total(
        facts=UsageRecord,
        totals=AccountHour,
        key=_same("hour", "flavor_id") | {"account_id": F("workspace__account_id")},
        amounts=STORED,
    ),
    _Total(
        facts=UsageRecord,
        totals=WorkspaceDay,
        key=_same("workspace_id", "flavor_id") | {"day": TruncDate("hour", tzinfo=UTC)},
        amounts=STORED,
        time="day",
    ),
    _Total(
        facts=WorkloadUsage,
        totals=ClusterHour,
        key=_same("hour", "cluster", "flavor") | {"account_id": F("workspace__account_id")},
        amounts=HELD,
    ),
)


def rewrite_totals(window: Period) -> int:
    """Make the totals of a window's hours, and of the UTC days that it touches, true.

    Args:
        window: The facts that may have changed.

    Returns:
        Rows written or deleted. Cost: O(facts of the days touched), by the database.
    """
    return sum(_rewrite(total, window) for total in TOTALS)


def rebuild_totals() -> int:
    """Add up every total anew, a day at a time, with the meter kept out; rows that differed."""
    return _over_all_days(rewrite_totals)


def count_wrong_totals() -> int:
    """Rows of totals that are not the sum of their facts; 0 when everything adds up."""
    return _over_all_days(lambda window: sum(_differences(total, window) for total in TOTALS))


@transaction.atomic
def _over_all_days(work: Callable[[Period], int]) -> int:
    list(MeterState.objects.select_for_update().order_by("pk"))
    return sum(work(window) for window in _days())


def _days() -> Iterator[Period]:
    """Every UTC day of which there is a fact or a total."""
    edges: list[datetime] = []
    for total in TOTALS:
        for table, column in ((total.facts, "hour"), (total.totals, total.time)):
            span = table.objects.aggregate(first=Min(column), last=Max(column))
            for edge in (span["first"], span["last"]):
                if edge is not None:
                    day = edge.astimezone(UTC).date() if isinstance(edge, datetime) else edge
                    edges.append(datetime.combine(day, time.min, tzinfo=UTC))
    if not edges:
        return
    day = min(edges)
    while day <= max(edges):
        yield Period(day, day + ONE_DAY)
        day += ONE_DAY


def _rewrite(total: _Total, window: Period) -> int:
    written, removed = rewrite_from(
        _stored(total, window),
        _sums(total, window),
        key={name: f"key_{name}" for name in total.key},
        amounts={name: f"sum_{name}" for name in total.amounts},
    )
    return written + removed


def _differences(total: _Total, window: Period) -> int:
    stored, wanted = (
        {tuple(row[: len(total.key)]): tuple(row[len(total.key) :]) for row in rows}
        for rows in (
            _stored(total, window).values_list(*total.key, *total.amounts),
            _sums(total, window),
        )
    )
    return sum(stored.get(key) != wanted.get(key) for key in {*stored, *wanted})


def _sums(total: _Total, window: Period) -> QuerySet[Any]:
    """What the totals of a window have to be: values of the key, then of the amounts."""
    period = _whole(total, window)
    names = {f"key_{name}": source for name, source in total.key.items()}
    rows: QuerySet[Any] = (
        total.facts.objects.filter(hour__gte=period.start, hour__lt=period.end)
        .order_by()
        .values(**names)
        .annotate(**{f"sum_{name}": Sum(name) for name in total.amounts})
        .values_list(*names, *(f"sum_{name}" for name in total.amounts))
    )
    return rows


def _stored(total: _Total, window: Period) -> QuerySet[Any]:
    period = _whole(total, window)
    start, end = period.start, period.end
    first, last = (start.date(), end.date()) if total.time == "day" else (start, end)
    in_time = {f"{total.time}__gte": first, f"{total.time}__lt": last}
    return total.totals.objects.filter(**in_time).order_by()  # type: ignore[no-any-return]  # the tables are of several types


def _whole(total: _Total, window: Period) -> Period:
    """The UTC days, or hours, of a table that a window touches."""
    start = utc_hour(window.start)
    if total.time != "day":
        return Period(start, max(window.end, start + HOUR))
    last = (window.end - timedelta(seconds=1)).replace(hour=0, minute=0, second=0)
    return Period(start.replace(hour=0), last + ONE_DAY)


_PLACED = attrgetter("cluster", "uid", "flavor", "hour", "start")
_METERED = attrgetter(*METERED)
_COVERED = attrgetter(*COVER)
_USED = attrgetter(*HELD)

Rows = Mapping[tuple[Any, ...], tuple[int, ...]]


class MeterError(PortalError):
    """The facts of a window do not add up; nothing of it was written."""


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """What the tables of facts have to say of a window: natural key → amounts."""

    window: Period
    hours: Rows
    accounts: Rows
    workloads: Rows


class FactSource:
    """Everything that the facts of a span of time are worked out from, read once.

    Args:
        span: All windows that are asked for later lie in it.
    """

    def __init__(self, span: Period) -> None:
        workspaces = list(Workspace.objects.select_related("account"))
        self._keys = {row.namespace: row.pk for row in workspaces}
        self._homes = {row.pk: row.home_flavor_id for row in workspaces}
        self._accounts = {row.account.slug: row.account_id for row in workspaces}
        self._flavors = dict(Flavor.objects.values_list("slug", "pk"))
        self._pools = metered_pools(workspaces, span)
        self._revisions = metered_revisions(span)
        self._held = list(held_intervals(span))
        self._waiting = [
            metering.KeyedSpan(key=str(workspace), gpus=gpus, start=start, end=end)
            for workspace, gpus, start, end in read_rows(
                PendingSpan.objects.filter(
                    Q(end__isnull=True) | Q(end__gt=span.start),
                    start__lt=span.end,
                    workspace__isnull=False,
                ).values_list("workspace_id", "gpus", "start", "end")
            )
        ]

    def in_turn(self, windows: Sequence[Period]) -> Iterator[WindowFacts]:
        """Yield the facts of every window; the next one's are worked out meanwhile.

        Raises:
            MeterError: When it is the turn of a window for which the core's identities do not
                hold; MeteringError when its input contradicts itself.
        """
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="facts") as beside:
            coming = beside.submit(self.facts_of, windows[0])
            for following in windows[1:]:
                facts, coming = coming.result(), beside.submit(self.facts_of, following)
                yield facts
            yield coming.result()

    def facts_of(self, window: Period) -> WindowFacts:
        """Work out the facts of one window; asks the database nothing.

        Raises:
            MeterError: The core's identities do not hold.
            MeteringError: The input contradicts itself.
        """
        held = [row for row in self._held if _overlaps(row, window)]
        usage = metering.meter(held, self._revisions, self._pools, window)
        faults = metering.identity_faults(usage)
        if faults:
            raise MeterError(f"{window.start:%Y-%m-%dT%H}: " + "; ".join(faults))
        keys, flavors, accounts = self._keys, self._flavors, self._accounts
        return WindowFacts(
            window=window,
            hours=self._hour_rows(usage, window),
            accounts={
                (accounts[fact.account], flavors[fact.flavor], fact.hour, fact.start): (
                    _COVERED(fact)
                )
                for fact in usage.accounts
            },
            workloads={
                (keys[fact.workspace], *_PLACED(fact)): _USED(fact) for fact in usage.workloads
            },
        )

    def _hour_rows(self, usage: metering.Usage, window: Period) -> Rows:
        """Facts of workspaces with what waited; waiting counts on the home flavor, for a job that
        waits has none yet.
        """
        waiting = self._waiting_by_hour(window)
        keys, flavors = self._keys, self._flavors
        found: dict[tuple[Any, ...], tuple[int, ...]] = {}
        for fact in usage.hours:
            key = (keys[fact.workspace], flavors[fact.flavor], fact.hour, fact.start)
            found[key] = (*_METERED(fact), waiting.pop(key, 0))
        for key, seconds in waiting.items():
            found[key] = (*(0,) * len(METERED), seconds)
        return found

    def _waiting_by_hour(self, window: Period) -> dict[tuple[Any, ...], int]:
        spans = [span for span in self._waiting if _overlaps(span, window)]
        return {
            (int(key), self._homes[int(key)], hour, max(hour, window.start)): seconds
            for (hour, key), seconds in metering.seconds_by_hour(spans, window).items()
            if seconds
        }


def _overlaps(row: metering.Held | metering.KeyedSpan, window: Period) -> bool:
    return row.start < window.end and (row.end is None or row.end > window.start)


def write_facts(facts: WindowFacts) -> tuple[int, int]:
    """Write what differs from what stands, or of closed months corrections; totals with it.

    Returns:
        Rows of facts written, and deleted.
    """
    window = facts.window
    writer = FactWriter(window)
    tables: tuple[tuple[Any, tuple[str, ...], tuple[str, ...], Rows], ...] = (
        (UsageRecord, ("workspace_id", "flavor_id"), STORED, facts.hours),
        (AccountUsage, ("account_id", "flavor_id"), COVER, facts.accounts),
        (WorkloadUsage, ("workspace_id", "cluster", "uid", "flavor"), HELD, facts.workloads),
    )
    counts = [
        writer.rewrite(
            table.objects.filter(hour__gte=window.start, hour__lt=window.end),
            key=(*owner, "hour", "start"),
            amounts=amounts,
            wanted=wanted,
        )
        for table, owner, amounts, wanted in tables
    ]
    rewrite_totals(window)
    return sum(count[0] for count in counts), sum(count[1] for count in counts)
