"""What the jobs of a range cost, with what of it no job used; one job's cost over its months.

Source: spec money, section 3.4; issue 14, section 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from budgets.charging import JobKey, Rates, RowKind
from budgets.exports.datasets import label_column
from budgets.exports.table import decimal_text
from budgets.models import BillingPeriod, User, WorkloadUsage, Workspace
from budgets.selectors.billing.costs import fact_sums, tiered
from budgets.selectors.billing.jobs import (
    JobUse,
    Place,
    job_uses,
    parts_of,
    per_second,
)
from budgets.selectors.billing.months import unstored_month, zones_of
from budgets.selectors.billing.prices import price_book
from budgets.selectors.billing.rows import PlainLine
from budgets.selectors.fleet.places import facts_in, job_names
from budgets.selectors.roles import roles_of, workspaces_of
from budgets.selectors.usage.labels import kept_labels, values_by
from budgets.selectors.usage.scope import UsageFilter, UsageScope
from budgets.units import HOUR, Money, Period, time_text

MOST_MONTHS = 13
NAMES_AT_ONCE = 1_000
NO_PRICES = Rates((), currency="USD")
"""While no rate card is active everything costs nothing, and no currency is told."""


@dataclass(slots=True)
class JobSums:
    """What some jobs used and cost together; without a price amounts are 0."""

    committed_used: int = 0
    burst: int = 0
    committed_cost: Decimal = Decimal(0)
    burst_cost: Decimal = Decimal(0)

    @property
    def cost(self) -> Decimal:
        """Both classes together."""
        return self.committed_cost + self.burst_cost


@dataclass(slots=True, kw_only=True)
class JobCost(JobSums):
    """What one job used and cost on one cluster and flavor.

    ``first`` and ``last``: the hours in which it began and ended to use GPUs there.
    """

    namespace: str
    cluster: str
    uid: str
    flavor: str
    first: datetime
    last: datetime


@dataclass(slots=True)
class JobCosts:
    """Jobs with their costs; with ``unused`` they add up to ``charged``.

    Attributes:
        currency: Of the rate cards; empty while there are none.
        jobs: By what they cost, the dearest first.
        unused: Cost of the committed floor that no job used: it was idle or lent.
        unused_seconds: Its GPU-seconds.
        charged: The floor and burst lines, each rounded once.
        unpriced: Flavors that were used or committed in hours without a price.
    """

    currency: str = ""
    jobs: tuple[JobCost, ...] = ()
    unused: Decimal = Decimal(0)
    unused_seconds: int = 0
    charged: Decimal = Decimal(0)
    unpriced: frozenset[str] = field(default_factory=frozenset)


def job_costs(user: User, chosen: UsageFilter) -> JobCosts:
    """What the jobs of a range cost, as far as a user sees their workspaces.

    Args:
        user: The viewer.
        chosen: Range, workspaces and flavors; step and split are ignored.

    Returns:
        Every job. Lines are those of the range, month by month of each account's zone, at the
        prices of their month; of whole months they are the lines of the statements, before an
        exchange rate. Some twelve queries for each zone and month.
    """
    scope = UsageScope(user, chosen)
    spaces = list(scope.workspaces)
    zones = zones_of({row.account_id for row in spaces})
    months = {
        (zone, month.start): month
        for zone in set(zones.values())
        for month in _months(chosen.start, chosen.end, zone)
    }
    found = JobCosts()
    rows: dict[tuple[str, JobKey, str], JobCost] = {}
    for (zone, _), month in sorted(months.items()):
        window = Period(month.start, month.end)
        part = Period(max(month.start, chosen.start), min(month.end, chosen.end))
        book = price_book(window, accounts={key for key in zones if zones[key] == zone})
        found.currency = found.currency or book.currency
        for account in sorted(key for key in zones if zones[key] == zone):
            card = tiered(book.of(account) or NO_PRICES, account, window)
            members = [row for row in spaces if row.account_id == account]
            facts = WorkloadUsage.objects.filter(workspace__in=[row.pk for row in members])
            if chosen.flavors:
                facts = facts.filter(flavor__in=chosen.flavors)
            uses = job_uses(facts_in(facts, part), part, card=card, window=window)
            lines, unpriced = _lines_in(
                part, card=card, window=window, spaces=members, flavors=chosen.flavors
            )
            found.unpriced |= unpriced
            for line in lines:
                place = (line.workspace, line.flavor, line.kind)
                _collect(found, rows, line, uses.pop(place, {}), card.currency)
            for place, of_jobs in uses.items():
                # Facts of jobs without their hour's, which the meter writes together.
                seconds = sum(use.gpu_seconds for use in of_jobs.values())
                exact = sum((use.exact for use in of_jobs.values()), Fraction(0))
                line = _line(place, 0, seconds, exact, card)
                _collect(found, rows, line, of_jobs, card.currency)
    found.jobs = tuple(sorted(rows.values(), key=_dearest))
    return found


def add_up_jobs(rows: Iterable[JobCost]) -> JobSums:
    """The sum of some jobs."""
    found = list(rows)
    return JobSums(
        sum(row.committed_used for row in found),
        sum(row.burst for row in found),
        sum((row.committed_cost for row in found), Decimal(0)),
        sum((row.burst_cost for row in found), Decimal(0)),
    )


@dataclass(frozen=True, slots=True)
class JobGroup:
    """The rows of the jobs of one value of a label, the dearest first; empty: they say none."""

    value: str
    rows: tuple[JobCost, ...]

    @property
    def jobs(self) -> int:
        """How many jobs these are; one that ran on two clusters or flavors has two rows."""
        return len({(row.namespace, row.uid) for row in self.rows})

    @property
    def sums(self) -> JobSums:
        """What they used and cost together."""
        return add_up_jobs(self.rows)


def job_groups(costs: JobCosts, label: str) -> tuple[JobGroup, ...]:
    """The jobs of a range by what they say by a label, the dearest group first.

    A job is in one group with all its cents, so the groups add up to the jobs, and with what no
    job used to the charges of the range.

    Args:
        costs: As :func:`job_costs` gave them to a viewer.
        label: Key of one that is kept; by another no job says anything.
    """
    values = values_by([label], ((row.cluster, row.uid) for row in costs.jobs))
    members: dict[str, list[JobCost]] = {}
    for row in costs.jobs:
        value = values.get((row.cluster, row.uid), {}).get(label, "")
        members.setdefault(value, []).append(row)
    found = [JobGroup(value, tuple(rows)) for value, rows in members.items()]
    return tuple(sorted(found, key=lambda group: (-group.sums.cost, group.value)))


def job_group_csv(user: User, chosen: UsageFilter, label: str) -> Iterator[tuple[str, ...]]:
    """The groups of :func:`job_groups` as rows of texts, the header first; the last is no job's."""
    yield (
        *("label", "value", "jobs", "committed_gpu_seconds", "burst_gpu_seconds"),
        *("cost", "currency"),
    )
    found = job_costs(user, chosen)
    for group in job_groups(found, label):
        sums = group.sums
        yield (
            *(label, group.value, str(group.jobs), str(sums.committed_used), str(sums.burst)),
            decimal_text(sums.cost) if found.currency else "",
            found.currency,
        )
    if found.unused_seconds:
        cost = decimal_text(found.unused) if found.currency else ""
        yield (label, "", "0", str(found.unused_seconds), "0", cost, found.currency)


def job_cost_csv(user: User, chosen: UsageFilter) -> Iterator[tuple[str, ...]]:
    """What :func:`job_costs` has, as rows of texts, the header first; the last one is no job's.

    Names are read for some at a time; the rows add up to the use and the charges of the range.
    Each label that is kept has a column at the end.
    """
    labels = tuple(kept_labels())
    yield (
        *("workspace", "job", "job_kind", "cluster", "uid", "workload", "flavor", "start", "end"),
        *("committed_gpu_seconds", "burst_gpu_seconds"),
        *("committed_cost", "burst_cost", "cost", "currency"),
        *(label_column(key).name for key in labels),
    )
    found = job_costs(user, chosen)
    for at in range(0, len(found.jobs), NAMES_AT_ONCE):
        rows = found.jobs[at : at + NAMES_AT_ONCE]
        names = job_names((row.cluster, row.uid) for row in rows)
        said = values_by(labels, ((row.cluster, row.uid) for row in rows))
        for row in rows:
            kind, job, workload = names.get((row.cluster, row.uid), ("", "", ""))
            costs = (row.committed_cost, row.burst_cost, row.cost)
            yield (
                row.namespace,
                job or workload or row.uid,
                kind,
                row.cluster,
                row.uid,
                workload,
                row.flavor,
                time_text(row.first),
                time_text(row.last + HOUR),
                str(row.committed_used),
                str(row.burst),
                *(decimal_text(cost) if found.currency else "" for cost in costs),
                found.currency,
                *(said.get((row.cluster, row.uid), {}).get(key, "") for key in labels),
            )
    if found.unused_seconds:
        cost = decimal_text(found.unused) if found.currency else ""
        rest = (cost, "", cost, found.currency)
        yield (*("",) * 9, str(found.unused_seconds), "0", *rest, *("" for _ in labels))


def cost_of_job(
    user: User,
    places: Collection[JobKey],
    *,
    namespace: str,
    flavors: Collection[str],
    first: datetime,
    last: datetime,
) -> JobCosts:
    """What one job cost, in whole months: as the rows by job of its statements say.

    Args:
        user: The viewer; of a workspace that they do not see there is nothing.
        places: Where it ran.
        namespace: Of its workspace.
        flavors: That it used.
        first: Hour of its first use.
        last: Hour of its last.

    Returns:
        The rows of the job alone, of the newest ``MOST_MONTHS`` months.
    """
    space = workspaces_of(roles_of(user)).filter(namespace=namespace).first()
    if space is None:
        return JobCosts()
    zone = zones_of([space.account_id])[space.account_id]
    months = list(_months(first, last + HOUR, zone))[-MOST_MONTHS:]
    chosen = UsageFilter(months[0].start, months[-1].end, (namespace,), tuple(flavors))
    found = job_costs(user, chosen)
    jobs = tuple(row for row in found.jobs if (row.cluster, row.uid) in places)
    return replace(found, jobs=jobs)


def _lines_in(
    part: Period,
    *,
    card: Rates,
    window: Period,
    spaces: Sequence[Workspace],
    flavors: Collection[str],
) -> tuple[list[PlainLine], set[str]]:
    """Floor and burst lines of a part of a month, and flavors without a price for some hours."""
    sums: dict[Place, list[Any]] = {}
    unpriced = set()
    for key, fact in fact_sums(part, edges=card.edges(part), workspaces=spaces):
        if flavors and fact.flavor not in flavors:
            continue
        if card.rate_at(fact.flavor, fact.hour) is None:
            unpriced.add(str(fact.flavor))
        for kind, seconds in ((RowKind.FLOOR, fact.committed), (RowKind.BURST, fact.burst)):
            if seconds:
                row = sums.setdefault((fact.workspace, fact.flavor, kind), [key, 0, Fraction(0)])
                row[1] += seconds
                row[2] += per_second(card, fact.flavor, fact.hour, kind, window) * seconds
    lines = [
        _line(place, key, seconds, exact, card)
        for place, (key, seconds, exact) in sorted(sums.items())
    ]
    return lines, unpriced


def _line(place: Place, key: int, seconds: int, exact: Fraction, card: Rates) -> PlainLine:
    namespace, flavor, kind = place
    amount = Money.rounded(exact, currency=card.currency).amount
    return PlainLine(key, namespace, kind, exact, amount, flavor, gpu_seconds=seconds)


def _collect(
    found: JobCosts,
    rows: dict[tuple[str, JobKey, str], JobCost],
    line: PlainLine,
    uses: Mapping[JobKey, JobUse],
    currency: str,
) -> None:
    """Add what each job has of a line to its row, and what none has to the rest."""
    found.charged += line.amount
    for part in parts_of(line, uses, currency=currency):
        if part.key is None:
            found.unused += part.amount
            found.unused_seconds += part.gpu_seconds
            continue
        use = uses[part.key]
        row = rows.setdefault(
            (line.workspace, part.key, line.flavor),
            JobCost(
                namespace=line.workspace,
                cluster=part.key[0],
                uid=part.key[1],
                flavor=line.flavor,
                first=use.first,
                last=use.last,
            ),
        )
        if line.kind is RowKind.FLOOR:
            row.committed_used += part.gpu_seconds
            row.committed_cost += part.amount
        else:
            row.burst += part.gpu_seconds
            row.burst_cost += part.amount
        row.first, row.last = min(row.first, use.first), max(row.last, use.last)


def _dearest(row: JobCost) -> tuple[Any, ...]:
    used = row.committed_used + row.burst
    return (-row.cost, -used, row.uid, row.cluster, row.flavor)


def _months(start: datetime, end: datetime, zone: str) -> Iterator[BillingPeriod]:
    """The months of a zone that a range lies in, in order; not as they are stored."""
    while start < end:
        month = unstored_month(start, zone)
        yield month
        start = month.end
