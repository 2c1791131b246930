"""Where the capacity went: what was held of each flavor on each cluster, and what was not.

Of the identity of spec money 1.4, committed used + burst + race + outside budgets + free + down
= capacity, the ledger knows what was held and, where an admin states it with dates, the capacity.
Free, down and unexplained stand together as what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Q, Sum, Value
from django.db.models.functions import Coalesce, Greatest, Least

from budgets.amounts import HELD
from budgets.errors import NotAllowed
from budgets.models import User
from budgets.plan import FleetTimeline, amounts_at, edges
from budgets.selectors.budget.timeline import stated_capacities
from budgets.selectors.fleet.places import counted_intervals
from budgets.selectors.roles import roles_of
from budgets.selectors.usage.scope import HELD_SUMS, UsageFilter, UsageScope, amounts_of
from budgets.selectors.usage.table import freshness
from budgets.units import HOUR_S, utc_hour

KINDS = ("race", "reserved", "undecided", "outside")
ALL_HELD = (*HELD, *KINDS)


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """GPU-seconds of one flavor on one cluster, or a sum of such rows.

    Attributes:
        capacity: What an admin states, with its dates; None where nothing is stated.
        race: Held by copies of a job that lost the race between workers.
        reserved: Quota reserved, the clock not started.
        undecided: Held by copies of which none was chosen yet.
        outside: Held in queues that belong to no workspace.
    """

    cluster: str
    flavor: str
    capacity: int | None
    committed_used: int = 0
    burst: int = 0
    race: int = 0
    reserved: int = 0
    undecided: int = 0
    outside: int = 0

    @property
    def held(self) -> int:
        """All that was held."""
        return sum(getattr(self, name) for name in ALL_HELD)

    @property
    def not_held(self) -> int | None:
        """Free, down and unexplained; below zero where more was held than is stated."""
        return None if self.capacity is None else self.capacity - self.held


@dataclass(frozen=True, slots=True)
class CapacityUse:
    """Rows by flavor and cluster, and their sum, of [start, end): complete on every cluster.

    The capacity of ``total`` is None when a row has none.
    """

    rows: tuple[CapacityRow, ...]
    total: CapacityRow
    start: datetime
    end: datetime


def capacity_use(user: User, chosen: UsageFilter, *, now: datetime) -> CapacityUse | None:
    """Account for the stated capacity of a range, for people who see the whole platform.

    Args:
        user: Admin, finance or auditor.
        chosen: Range and flavors; workspaces, step and split are ignored.
        now: UTC; nothing counts beyond the last whole hour that is complete on every cluster.

    Returns:
        None when no hour of the range is complete.

    Raises:
        NotAllowed: The user does not see the whole platform.
    """
    if not roles_of(user).sees_everything:
        raise NotAllowed("Only admins, finance and auditors can see the use of the whole capacity.")
    start, end = _whole_hours(chosen, now)
    if end <= start:
        return None
    whole = replace(chosen, start=start, end=end, workspaces=())
    capacity = _stated(whole)
    held = _held(UsageScope(user, whole))
    rows = tuple(
        CapacityRow(
            cluster, flavor, capacity.get((cluster, flavor)), **held.get((cluster, flavor), {})
        )
        for flavor, cluster in sorted({(key[1], key[0]) for key in {*capacity, *held}})
    )
    return CapacityUse(rows=rows, total=_add_up(rows), start=start, end=end)


def _whole_hours(chosen: UsageFilter, now: datetime) -> tuple[datetime, datetime]:
    """The hours that begin and end in the range, up to the last that every cluster has told."""
    complete = freshness().complete_until
    last = min(chosen.end, now if complete is None else complete).replace(microsecond=0)
    return utc_hour(chosen.start + timedelta(seconds=HOUR_S - 1)), utc_hour(last)


def _stated(chosen: UsageFilter) -> dict[tuple[str, str], int]:
    """(cluster, flavor) → GPU-seconds of what is stated; nothing before the first statement."""
    spans = stated_capacities(
        Q(valid_until__isnull=True) | Q(valid_until__gt=chosen.start),
        Q(flavor__slug__in=chosen.flavors) if chosen.flavors else Q(),
        valid_from__lt=chosen.end,
    )
    cuts = edges(FleetTimeline({}, capacities=spans), start=chosen.start, end=chosen.end)
    sums: dict[tuple[str, str], int] = {}
    for start, end in pairwise((*cuts, chosen.end)):
        for key, gpus in amounts_at(spans, start).items():
            sums[key] = sums.get(key, 0) + gpus * ((end - start) // timedelta(seconds=1))
    return sums


def _held(scope: UsageScope) -> dict[tuple[str, str], dict[str, int]]:
    """(cluster, flavor) → class or kind → GPU-seconds."""
    chosen = scope.chosen
    found: dict[tuple[str, str], dict[str, int]] = {}
    used = scope.on_clusters().values("cluster", "flavor")
    for row in used.annotate(**HELD_SUMS):
        place = found.setdefault((row["cluster"], row["flavor"]), {})
        place |= amounts_of(row)
    for cluster, flavor, kind, seconds in _unbilled(chosen):
        place = found.setdefault((cluster, flavor), {})
        place[kind] = place.get(kind, 0) + seconds
    return found


def _unbilled(chosen: UsageFilter) -> Iterable[tuple[str, str, str, int]]:
    """Intervals that are nobody's, cut to the range; summed by the database per GPU count."""
    end = Value(chosen.end, output_field=DateTimeField())
    start = Value(chosen.start, output_field=DateTimeField())
    rows = counted_intervals(chosen.start, chosen.end, kind__in=KINDS)
    if chosen.flavors:
        rows = rows.filter(flavor__in=chosen.flavors)
    length = ExpressionWrapper(
        Least(Coalesce(F("end"), end), end) - Greatest(F("start"), start),
        output_field=DurationField(),
    )
    sums: Any = rows.order_by().values("cluster", "flavor", "kind", "gpus")
    for row in sums.annotate(length=Sum(length)):
        seconds = row["length"] // timedelta(seconds=1)
        yield row["cluster"], row["flavor"], row["kind"], row["gpus"] * seconds


def _add_up(rows: Iterable[CapacityRow]) -> CapacityRow:
    listed = list(rows)
    capacities = [row.capacity for row in listed]
    known = [capacity for capacity in capacities if capacity is not None]
    return CapacityRow(
        "",
        "",
        sum(known) if len(known) == len(capacities) else None,
        **{name: sum(getattr(row, name) for row in listed) for name in ALL_HELD},
    )
