"""Who covers an account's burst: its pool, then lenders in proportion, then the platform pool.

Between two edges everything is constant, so each part is a product of GPUs and seconds. A share
that is not whole is kept as numerators per denominator, exact and cheap, and made whole once
per UTC hour by largest remainder.

Source: spec money, sections 1.4 (5) and 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from budgets.metering.waterfall import Waterfall
from budgets.units import AccountName, WorkspaceName, apportion, whole_shares

Covered = tuple[int, int, int, int, int]
"""Burst of an account in an hour; of it from its pool, lent, from the platform, uncovered."""


@dataclass(slots=True, eq=False)
class ExactSum:
    """A sum of GPU-second shares: whole ones, and numerators by denominator."""

    whole: int = 0
    parts: dict[int, int] = field(default_factory=dict)

    def add(self, numerator: int, denominator: int) -> None:
        """Add numerator / denominator."""
        if denominator == 1:
            self.whole += numerator
        else:
            self.parts[denominator] = self.parts.get(denominator, 0) + numerator

    def over(self, common: int) -> int:
        """Return the sum as a numerator over a multiple of all its denominators."""
        total = self.whole * common
        for denominator, numerator in self.parts.items():
            total += numerator * (common // denominator)
        return total

    def clear(self) -> None:
        """Begin again at zero."""
        self.whole = 0
        self.parts.clear()


def common_denominator(sums: Iterable[ExactSum]) -> int:
    """Return the least common multiple of everything that the sums are over."""
    return math.lcm(*{denominator for row in sums for denominator in row.parts})


@dataclass(slots=True, eq=False)
class Desk:
    """One workspace and flavor: its floor, its waterfall, and what an hour has come to."""

    name: WorkspaceName
    account: Cover
    since: int
    waterfall: Waterfall = field(default_factory=Waterfall)
    limit: int | None = None
    burst_now: int = 0
    lendable_now: int = 0
    committed: int = 0
    used: int = 0
    burst: int = 0
    lent: ExactSum = field(default_factory=ExactSum)
    borrowed: ExactSum = field(default_factory=ExactSum)

    def accrue(self, now: int) -> None:
        """Count committed, used and burst up to ``now``."""
        passed = now - self.since
        if passed:
            floor = self.waterfall.floor
            self.committed += floor * passed
            self.used += (self.waterfall.used - self.burst_now) * passed
            self.burst += self.burst_now * passed
            self.since = now

    def settle(self) -> None:
        """Take over what the waterfall holds now; the account must have been counted up to now."""
        floor, used = self.waterfall.floor, self.waterfall.used
        burst = used - floor if used > floor else 0
        unused = floor - used if floor > used else 0
        lendable = unused if self.limit is None else min(unused, self.limit)
        account = self.account
        if burst != self.burst_now:
            account.over += burst - self.burst_now
            self.burst_now = burst
            if burst:
                account.bursting[self] = None
            else:
                del account.bursting[self]
        if lendable != self.lendable_now:
            account.lendable += lendable - self.lendable_now
            self.lendable_now = lendable
            if lendable:
                account.lenders[self] = None
            else:
                account.lenders.pop(self, None)
        account.settle()


@dataclass(slots=True, eq=False)
class Cover:
    """One account and flavor: what covers its burst now, and what an hour has come to."""

    name: AccountName
    platform: Platform | None
    since: int
    pool: int = 0
    over: int = 0
    lendable: int = 0
    taken: int = 0
    covered: int = 0
    left: int = 0
    bursting: dict[Desk, None] = field(default_factory=dict)
    lenders: dict[Desk, None] = field(default_factory=dict)
    burst: int = 0
    from_pool: int = 0
    left_seconds: int = 0
    from_platform: ExactSum = field(default_factory=ExactSum)

    def accrue(self, now: int) -> None:
        """Count what covered the burst up to ``now``."""
        passed = now - self.since
        self.since = now
        if not passed or not self.over:
            return
        self.burst += self.over * passed
        self.from_pool += self.taken * passed
        self.left_seconds += self.left * passed
        if self.covered:
            self._accrue_lending(passed)

    def _accrue_lending(self, passed: int) -> None:
        # The innermost loops of the meter: sums are added to in place.
        if self.covered == self.lendable:
            for desk in self.lenders:
                desk.lent.whole += passed * desk.lendable_now
        else:
            weight, total = passed * self.covered, self.lendable
            for desk in self.lenders:
                parts = desk.lent.parts
                parts[total] = parts.get(total, 0) + weight * desk.lendable_now
        if self.covered == self.over:
            for desk in self.bursting:
                desk.borrowed.whole += passed * desk.burst_now
        else:
            weight, total = passed * self.covered, self.over
            for desk in self.bursting:
                parts = desk.borrowed.parts
                parts[total] = parts.get(total, 0) + weight * desk.burst_now

    def settle(self) -> None:
        """Work out who covers the burst from now on."""
        self.taken = min(self.over, self.pool)
        self.covered = min(self.over - self.taken, self.lendable)
        left = self.over - self.taken - self.covered
        if left != self.left:
            if self.platform is not None:
                self.platform.set_left(self, left, now=self.since)
            self.left = left

    def close(self, desks: Sequence[Desk]) -> tuple[Covered, dict[Desk, tuple[int, int]]]:
        """Make the hour's shares whole and begin the next hour.

        Args:
            desks: The account's workspaces of this flavor, by name.

        Returns:
            What covered the burst, and desk → (lent, borrowed) of those that did.
        """
        lenders = [desk for desk in desks if desk.lent.whole or desk.lent.parts]
        sums = [desk.lent for desk in lenders]
        common = common_denominator([*sums, self.from_platform])
        platform = self.from_platform.over(common)
        shares = [
            self.from_pool * common,
            *(row.over(common) for row in sums),
            platform,
            self.left_seconds * common - platform,
        ]
        whole = whole_shares(shares, denominator=common, total=self.burst)
        lent = dict(zip(lenders, whole[1:-2], strict=True))
        covered = (self.burst, whole[0], sum(lent.values()), whole[-2], whole[-1])
        borrowed = self._borrowed(desks, covered[2])
        for desk in lenders:
            desk.lent.clear()
        for desk in borrowed:
            desk.borrowed.clear()
        self.from_platform.clear()
        self.burst = self.from_pool = self.left_seconds = 0
        parts = {desk: (lent.get(desk, 0), borrowed.get(desk, 0)) for desk in {**lent, **borrowed}}
        return covered, parts

    @staticmethod
    def _borrowed(desks: Sequence[Desk], lent: int) -> dict[Desk, int]:
        """Split what the account was lent by each workspace's burst at that instant."""
        borrowers = [desk for desk in desks if desk.borrowed.whole or desk.borrowed.parts]
        if not borrowers:
            return {}
        sums = [desk.borrowed for desk in borrowers]
        common = common_denominator(sums)
        parts = apportion(lent, weights=[row.over(common) for row in sums])
        return dict(zip(borrowers, parts, strict=True))


@dataclass(slots=True, eq=False)
class Platform:
    """A platform pool of one flavor, shared in proportion to what each account still lacks.

    A change of one account's lack moves every share while the pool is short, so it costs
    O(accounts that lack something); otherwise O(1) of them matter.
    """

    since: int
    gpus: int = 0
    lacking: dict[Cover, int] = field(default_factory=dict)
    total: int = 0

    def accrue(self, now: int) -> None:
        """Count every account's share up to ``now``."""
        passed = now - self.since
        self.since = now
        if not passed or not self.total or not self.gpus:
            return
        enough = self.total <= self.gpus
        weight, total = (passed, 1) if enough else (passed * self.gpus, self.total)
        for cover, left in self.lacking.items():
            cover.from_platform.add(weight * left, total)

    def set_left(self, cover: Cover, left: int, *, now: int) -> None:
        """From ``now`` on, ``cover`` lacks ``left`` GPUs."""
        self.accrue(now)
        self.total += left - self.lacking.pop(cover, 0)
        if left:
            self.lacking[cover] = left

    def set_gpus(self, gpus: int, *, now: int) -> None:
        """From ``now`` on, the pool has ``gpus``."""
        self.accrue(now)
        self.gpus = gpus
