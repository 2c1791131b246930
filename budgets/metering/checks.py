"""What must hold of every metering, and plain sums per hour; and what Kueue says is used
on a worker's queues against what the ledger holds.

Source: spec money, sections 1.4 (cross-check each minute), 3.3 and 3.5.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from budgets.metering.model import HourFact, Pools, Usage
from budgets.units import HOUR_S, GpuSeconds, Period, from_seconds, to_seconds


@dataclass(frozen=True, slots=True)
class KeyedSpan:
    """``gpus`` devices for something called ``key`` in [start, end); end None: still."""

    key: str
    gpus: int
    start: datetime
    end: datetime | None


def seconds_by_hour(
    spans: Iterable[KeyedSpan], window: Period
) -> dict[tuple[datetime, str], GpuSeconds]:
    """Sum GPU-seconds that are shown and never billed: pending, race, reserved.

    Returns:
        (start of the whole UTC hour, key) → GPU-seconds within the window.
    """
    first, last = to_seconds(window.start), to_seconds(window.end)
    sums: dict[tuple[int, str], int] = defaultdict(int)
    for span in spans:
        start = max(to_seconds(span.start), first)
        end = last if span.end is None else min(to_seconds(span.end), last)
        while start < end:
            hour = start - start % HOUR_S
            until = min(hour + HOUR_S, end)
            sums[hour, span.key] += span.gpus * (until - start)
            start = until
    hours = {hour: from_seconds(hour) for hour in {hour for hour, _ in sums}}
    return {(hours[hour], key): GpuSeconds(seconds) for (hour, key), seconds in sums.items()}


def identity_faults(usage: Usage, *, pools: Pools | None = None) -> tuple[str, ...]:
    """Return every identity that does not hold, in words; empty when the books add up.

    Args:
        usage: What the meter came to.
        pools: When given, hours are also compared with their accounts.
    """
    faults: list[str] = []
    classes: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0, 0])
    for fact in usage.hours:
        if fact.committed_used + fact.lent + fact.idle != fact.committed:
            faults.append(f"{_place(fact)}: used + lent + idle is not committed")
        if min(fact.committed_used, fact.lent, fact.idle, fact.burst, fact.borrowed) < 0:
            faults.append(f"{_place(fact)}: a class is below zero")
        total = classes[fact.workspace, fact.flavor, fact.hour, fact.start]
        total[0] += fact.committed_used
        total[1] += fact.burst
    for row in usage.workloads:
        total = classes[row.workspace, row.flavor, row.hour, row.start]
        total[0] -= row.committed_used
        total[1] -= row.burst
    faults += [
        f"{key[0]}/{key[1]} at {key[3]}: workloads do not add up to the hour by {rest}"
        for key, rest in classes.items()
        if rest != [0, 0]
    ]
    for cover in usage.accounts:
        if cover.burst != cover.from_pool + cover.lent + cover.from_platform + cover.uncovered:
            faults.append(
                f"account {cover.account}/{cover.flavor} at {cover.start.isoformat()}: "
                "burst is not what covered it"
            )
    return tuple(faults) + (_account_faults(usage, pools) if pools is not None else ())


def _place(fact: HourFact) -> str:
    return f"{fact.workspace}/{fact.flavor} at {fact.start.isoformat()}"


def _account_faults(usage: Usage, pools: Pools) -> tuple[str, ...]:
    """Compare Σ burst, Σ lent and Σ borrowed of an account's workspaces with its own fact."""
    rest: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for fact in usage.hours:
        total = rest[pools.accounts[fact.workspace], fact.flavor, fact.start]
        total[0] += fact.burst
        total[1] += fact.lent
        total[2] += fact.borrowed
    for cover in usage.accounts:
        total = rest[cover.account, cover.flavor, cover.start]
        total[0] -= cover.burst
        total[1] -= cover.lent
        total[2] -= cover.lent
    return tuple(
        f"account {key[0]}/{key[1]} at {key[2]}: burst, lent, borrowed are off by {off}"
        for key, off in rest.items()
        if off != [0, 0, 0]
    )


MOST_SAMPLES = 3
"""A mismatch of more samples than these in a row is a discrepancy; fewer are lag."""


@dataclass(frozen=True, slots=True)
class QueueSample:
    """What ``status`` of one ClusterQueue said of one flavor at an instant, in GPUs.

    Attributes:
        at: UTC, whole seconds, by the cluster's clock.
        total: ``flavorsUsage[].resources[].total``, or of ``flavorsReservation`` where the
            clock starts before or after the admission.
        borrowed: ``borrowed`` beside it.
        nominal: The quota of the queue as it stood on the cluster: the applied floor.
    """

    at: datetime
    total: int
    borrowed: int
    nominal: int

    def is_matched(self, held: int) -> bool:
        """Whether open intervals of ``held`` GPUs come to the same use and the same borrowing."""
        return held == self.total and max(0, held - self.nominal) == self.borrowed


def lasting_mismatch(
    samples: Iterable[QueueSample], held_at: Callable[[datetime], int]
) -> Sequence[QueueSample]:
    """The longest run of mismatches in a row when it is longer than lag explains.

    Args:
        samples: In the order of time, each one sampling after the other.
        held_at: GPUs of the intervals of that queue and flavor that were open at an instant.

    Returns:
        The samples of the run; empty when none is longer than :data:`MOST_SAMPLES`.
    """
    longest: list[QueueSample] = []
    run: list[QueueSample] = []
    for sample in samples:
        run = [] if sample.is_matched(held_at(sample.at)) else [*run, sample]
        if len(run) > len(longest):
            longest = run
    return longest if len(longest) > MOST_SAMPLES else ()
