"""A line shared out among the jobs whose GPU-seconds it charges for; what no job used stays over.

Pure: no Django, no clock, no I/O. A committed floor is paid, used or not: a job carries the
GPU-seconds that it used of it, and the idle and the lent rest stands on a part without a job. The
line was rounded once; its cents are shared out by largest remainder, so that the parts add up to
it: each part is rounded down, and the cents that are missing then go one by one to the parts that
lost most, of equals first to the one whose cluster and UID sort first, and last to no job.

Source: spec money, section 3.4; issue 14, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import lcm

from budgets.units import Money, currency_digits

JobKey = tuple[str, str]
"""Cluster slug and UID of a Workload."""


@dataclass(frozen=True, slots=True)
class JobPart:
    """What one job has of a line; ``key`` None: what no job used.

    ``exact``: GPU-seconds × price / 3600; ``amount`` that, in whole cents that add up to the line.
    """

    key: JobKey | None
    gpu_seconds: int
    exact: Fraction
    amount: Decimal


def share_out(
    jobs: Mapping[JobKey, tuple[int, Fraction]], *, gpu_seconds: int, exact: Fraction, amount: Money
) -> list[JobPart]:
    """Share a line out among its jobs.

    Args:
        jobs: GPU-seconds and exact amount of each.
        gpu_seconds: Of the line.
        exact: Of the line.
        amount: ``exact``, rounded once to the digits of its currency.

    Returns:
        By cluster and UID, then what no job used where something is left; without jobs that is
        the line as it is. GPU-seconds, exact and rounded amounts each add up to the line's.
        O(jobs × log jobs).
    """
    if not jobs:
        return [JobPart(None, gpu_seconds, exact, amount.amount)]
    parts = [(key, *jobs[key]) for key in sorted(jobs)]
    left = gpu_seconds - sum(part[1] for part in parts)
    unused = exact - sum((part[2] for part in parts), Fraction(0))
    rows: list[tuple[JobKey | None, int, Fraction]] = [*parts]
    if left or unused:
        rows.append((None, left, unused))
    digits = currency_digits(amount.currency)
    units = _whole([row[2] for row in rows], int(amount.amount.scaleb(digits)), 10**digits)
    quantum = Decimal(1).scaleb(-digits)
    return [JobPart(*row, unit * quantum) for row, unit in zip(rows, units, strict=True)]


def _whole(shares: Sequence[Fraction], total: int, scale: int) -> list[int]:
    """Whole numbers that add up to ``total``, each its share × scale rounded down, or one more.

    ``total`` is the rounded sum, so fewer are missing than there are shares, or as many.
    """
    common = lcm(*(share.denominator for share in shares))
    parts = [
        divmod(share.numerator * (common // share.denominator) * scale, common) for share in shares
    ]
    whole = [part[0] for part in parts]
    missing = total - sum(whole)
    for at in sorted(range(len(parts)), key=lambda at: -parts[at][1])[:missing]:
        whole[at] += 1
    assert sum(whole) == total, (missing, len(whole))
    return whole
