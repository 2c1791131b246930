"""A year of 100,000 jobs: revisions, rate changes, clock changes, outages, late data.

Seeded, so that it repeats. Every identity holds in every month of the local calendar, the months
sum to the year, the charges add up to the cent, and what turned up late is exactly what a
correction books.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from budgets.charging import Charges, Rate, Rates, RowKind, charge
from budgets.metering import (
    AccountPool,
    Floor,
    Held,
    HourFact,
    PoolChange,
    Pools,
    Revision,
    SharedPool,
    Usage,
    identity_faults,
    meter,
)
from budgets.units import (
    AccountName,
    ClusterName,
    FlavorName,
    GpuSeconds,
    Money,
    Period,
    WorkloadUid,
    WorkspaceName,
    month_period,
)

ZONE = ZoneInfo("Europe/Berlin")
FLAVORS = tuple(FlavorName(name) for name in ("h100", "h100-spot", "a100", "l4"))
SPACES = tuple(WorkspaceName(f"a{n % 4}-w{n}") for n in range(16))
AMOUNTS = ("committed", "committed_used", "burst", "borrowed", "lent", "idle")
JOBS = 100_000
SEED = 20261


@dataclass(frozen=True)
class Year:
    """What was promised and what ran; ``late`` became known only after its month was closed."""

    held: tuple[Held, ...]
    late: frozenset[Held]
    revisions: tuple[Revision, ...]
    pools: Pools
    card: Rates


def year_of(seed: int, jobs: int) -> Year:
    dice = random.Random(seed)
    begin = datetime(2025, 12, 31, 23, tzinfo=UTC)
    accounts = {space: AccountName(space.partition("-")[0]) for space in SPACES}
    revisions = [
        Revision(space, begin + timedelta(seconds=dice.randrange(0, 360 * 86400)), floors(dice))
        for space in SPACES
        for _ in range(8)
    ] + [Revision(space, begin, floors(dice)) for space in SPACES]
    pools = Pools(
        accounts,
        (AccountPool(AccountName("a0"), (PoolChange(None, {FLAVORS[0]: 12}),)),),
        (
            SharedPool(
                frozenset(AccountName(name) for name in ("a1", "a2")),
                (PoolChange(begin + timedelta(days=40, seconds=7), {FLAVORS[1]: 40}),),
            ),
        ),
    )
    rates = [
        Rate(
            flavor,
            begin + timedelta(hours=hours),
            Decimal(dice.randrange(10**6, 3 * 10**8)) / 10**8,
            Decimal(dice.randrange(10**6, 5 * 10**8)) / 10**8,
            Decimal(dice.choice(("0", "0.333333", "0.5"))),
        )
        for flavor in FLAVORS
        for hours in sorted({0, *(dice.randrange(8700) for _ in range(5))})
    ]
    held = tuple(job(dice, number, begin) for number in range(jobs))
    late = frozenset(row for row in held if dice.random() < 0.01)
    return Year(held, late, tuple(revisions), pools, Rates(rates, currency="EUR"))


def floors(dice: random.Random) -> dict[FlavorName, Floor]:
    return {
        flavor: Floor(dice.randrange(0, 33, 4), dice.choice((None, 0, 8)))
        for flavor in FLAVORS
        if dice.random() < 0.6
    }


def job(dice: random.Random, number: int, begin: datetime) -> Held:
    start = begin + timedelta(seconds=dice.randrange(365 * 86400))
    end: datetime | None = start + timedelta(seconds=int(dice.lognormvariate(8.5, 1.2)) + 1)
    if dice.random() < 0.002:  # an outage: the end was never seen, the last sign of life counts
        end = start + timedelta(seconds=dice.randrange(1, 60))
    return Held(
        WorkloadUid(f"u{number}"),
        dice.choice(SPACES),
        dice.choice(FLAVORS),
        dice.choice((1, 1, 2, 4, 8, 8)),
        start - timedelta(seconds=dice.randrange(30)),
        start,
        end,
        ClusterName(f"worker-{dice.randrange(3)}"),
    )


def months() -> list[Period]:
    return [month_period(2026, month, zone=ZONE) for month in range(1, 13)]


def metered(year: Year, window: Period, held: Iterable[Held]) -> Usage:
    touching = [
        row
        for row in held
        if row.start < window.end and (row.end is None or row.end > window.start)
    ]
    return meter(touching, year.revisions, year.pools, window)


def charged(year: Year, usage: Usage) -> Charges:
    return charge(usage, year.card, workspaces=SPACES)


def difference(after: Usage, before: Usage) -> Usage:
    """Hour facts that a correction books: what is, less what was closed."""
    facts: dict[tuple[datetime, datetime, str, str], Counter[str]] = {}
    for usage, sign in ((after, 1), (before, -1)):
        for row in usage.hours:
            key = (row.hour, row.start, row.workspace, row.flavor)
            amounts = facts.setdefault(key, Counter())
            for name in AMOUNTS:
                amounts[name] += sign * getattr(row, name)
    rows = tuple(
        HourFact(
            hour=hour,
            start=start,
            workspace=WorkspaceName(workspace),
            flavor=FlavorName(flavor),
            **{name: GpuSeconds(amounts[name]) for name in AMOUNTS},
        )
        for (hour, start, workspace, flavor), amounts in sorted(facts.items())
        if any(amounts.values())
    )
    return replace(after, hours=rows, accounts=(), workloads=())


def exact(charges: Charges) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in charges.lines:
        found[line.workspace] += line.exact
    return Counter({name: amount for name, amount in found.items() if amount})


def assert_books_balance(charges: Charges) -> None:
    credit = sum(
        (row.exact for row in charges.lines if row.kind is RowKind.LENDING_CREDIT), Fraction(0)
    )
    assert charges.platform_funding == Money.rounded(-credit, currency="EUR")
    for total in charges.totals:
        lines = [line for line in charges.lines if line.workspace == total.workspace]
        rounded = sum((line.amount.amount for line in lines), Decimal(0))
        assert total.payable.amount == rounded + total.rounding.amount
        assert abs(total.rounding.amount) <= Decimal("0.005") * (len(lines) + 1)


def held_seconds(held: Iterable[Held], window: Period) -> int:
    """Counted without the meter: GPUs times the seconds inside the window."""
    total = 0
    for row in held:
        begin, end = max(row.start, window.start), min(row.end or window.end, window.end)
        if end > begin:
            total += row.gpus * int((end - begin).total_seconds())
    return total


def check_month(year: Year, window: Period, on_time: list[Held]) -> Usage:
    """The month as it was closed, as it is now, and the correction between the two."""
    first, whole = metered(year, window, on_time), metered(year, window, year.held)
    for usage, held in ((first, on_time), (whole, year.held)):
        assert identity_faults(usage, pools=year.pools) == ()
        seconds = sum(row.committed_used + row.burst for row in usage.hours)
        assert seconds == held_seconds(held, window)
        assert_books_balance(charged(year, usage))
    sums = exact(charged(year, first))
    for name, amount in exact(charged(year, difference(whole, first))).items():
        sums[name] += amount
    assert {n: a for n, a in sums.items() if a} == dict(exact(charged(year, whole)))
    return whole


def check_year(year: Year, windows: list[Period]) -> None:
    on_time = [row for row in year.held if row not in year.late]
    sums: Counter[str] = Counter()
    used = 0
    for window in windows:
        used += held_seconds(year.held, window)
        for row in check_month(year, window, on_time).hours:
            for name in AMOUNTS:
                sums[name] += getattr(row, name)
    assert sums["committed_used"] + sums["burst"] == used > 0
    assert sums["committed_used"] + sums["lent"] + sums["idle"] == sums["committed"]
    assert sums["borrowed"] == sums["lent"] > 0


def test_months_have_the_hours_of_the_local_clock():
    lengths = [(window.end - window.start) // timedelta(hours=1) for window in months()]
    assert (lengths[2], lengths[9]) == (743, 745)
    assert sum(lengths) == 365 * 24


def test_the_months_of_the_clock_changes_add_up():
    check_year(year_of(SEED, 300), [months()[2], months()[9]])


@pytest.mark.slow
def test_a_year_of_a_hundred_thousand_jobs_adds_up():
    check_year(year_of(SEED, JOBS), months())
