"""The sweep of one flavor over all its edges: starts, ends, revisions, pools, UTC hours.

Source: spec money, sections 1.4 (3), 3.2 and 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from budgets.metering.lending import Cover, Desk, Platform
from budgets.metering.model import AccountFact, Floor, Held, HourFact, WorkloadFact
from budgets.metering.waterfall import HeldShare, Key
from budgets.units import (
    HOUR_S,
    AccountName,
    ClusterName,
    FlavorName,
    GpuSeconds,
    WorkloadUid,
    WorkspaceName,
    from_seconds,
    to_seconds,
)

Change = Callable[..., None]
"""What happens at a time, which it is given as ``now``."""


class FlavorSweep:
    """Counts one flavor in [start, end), both in seconds since 1970; O(edges · log n)."""

    def __init__(self, flavor: FlavorName, *, start: int, end: int) -> None:
        self.flavor = flavor
        self.start = start
        self.end = end
        self.desks: dict[WorkspaceName, Desk] = {}
        self.covers: dict[AccountName, Cover] = {}
        self.platforms: list[Platform] = []
        self.hours: list[HourFact] = []
        self.accounts: list[AccountFact] = []
        self.workloads: list[WorkloadFact] = []
        self._running: dict[int, HeldShare] = {}
        self._ended: list[HeldShare] = []
        self._by_account: list[tuple[Cover, list[Desk]]] = []

    def set_floor(self, desk: Desk, floor: Floor, *, now: int) -> None:
        """From ``now`` on, this is promised, and this much of it may be lent."""
        desk.accrue(now)
        desk.account.accrue(now)
        desk.limit = floor.lendable
        desk.waterfall.set_floor(floor.committed, now=now)
        desk.settle()

    def set_pool(self, cover: Cover, gpus: int, *, now: int) -> None:
        """From ``now`` on, the account's own pool has ``gpus``."""
        cover.accrue(now)
        cover.pool = gpus
        cover.settle()

    def run(self, held: Sequence[Held], changes: Iterable[tuple[int, Change]]) -> None:
        """Sweep over everything; the facts are in ``hours``, ``accounts`` and ``workloads``.

        Args:
            held: Of this flavor, of workspaces that have a desk; overlapping the window.
            changes: (when, what to do at that time): floors and pools. What lies before the
                window's start counts from there, in order of time.
        """
        self._by_account = self._families()
        steps: list[Change] = []
        edges: list[tuple[int, int, int]] = []
        for when, change in sorted(changes, key=lambda pair: pair[0]):
            if when < self.end:
                edges.append((max(when, self.start), 0, len(steps)))
                steps.append(change)
        keys: list[Key] = []
        for at, row in enumerate(held):
            keys.append((to_seconds(row.admitted), row.uid, row.cluster, at))
            start = max(to_seconds(row.start), self.start)
            end = self.end if row.end is None else min(to_seconds(row.end), self.end)
            if start < end and row.gpus:
                edges.append((start, 2, at))
                edges.append((end, 1, at))
        edges.sort()
        self._walk(edges, steps, held, keys)

    def _walk(
        self,
        edges: Sequence[tuple[int, int, int]],
        steps: Sequence[Change],
        held: Sequence[Held],
        keys: Sequence[Key],
    ) -> None:
        begun = self.start
        closing = min(begun - begun % HOUR_S + HOUR_S, self.end)
        for now, kind, at in edges:
            while now >= closing and closing < self.end:
                self._close_hour(begun, closing)
                begun, closing = closing, min(closing + HOUR_S, self.end)
            if kind == 0:
                steps[at](now=now)
                continue
            row = held[at]
            desk = self.desks[row.workspace]
            desk.accrue(now)
            desk.account.accrue(now)
            if kind == 1:
                desk.waterfall.remove(keys[at], now=now)
                self._ended.append(self._running.pop(at))
            else:
                share = self._running[at] = HeldShare(row, keys[at], now, row.gpus)
                desk.waterfall.add(share, now=now)
            desk.settle()
        while begun < self.end:
            self._close_hour(begun, closing)
            begun, closing = closing, min(closing + HOUR_S, self.end)

    def _families(self) -> list[tuple[Cover, list[Desk]]]:
        families: dict[Cover, list[Desk]] = {cover: [] for cover in self.covers.values()}
        for _, desk in sorted(self.desks.items()):
            families[desk.account].append(desk)
        return sorted(families.items(), key=lambda family: family[0].name)

    def _close_hour(self, begun: int, now: int) -> None:
        parts: tuple[Desk | Cover | Platform, ...] = (
            *self.desks.values(),
            *self.covers.values(),
            *self.platforms,
        )
        for part in parts:
            part.accrue(now)
        hour, start = from_seconds(begun - begun % HOUR_S), from_seconds(begun)
        for cover, desks in self._by_account:
            lending: dict[Desk, tuple[int, int]] = {}
            if cover.burst:
                covered, lending = cover.close(desks)
                amounts = map(GpuSeconds, covered)
                self.accounts.append(AccountFact(hour, start, cover.name, self.flavor, *amounts))
            for desk in desks:
                if desk.committed or desk.burst:
                    lent, borrowed = lending.get(desk, (0, 0))
                    idle = desk.committed - desk.used - lent
                    seconds = (desk.committed, desk.used, lent, idle, desk.burst, borrowed)
                    amounts = map(GpuSeconds, seconds)
                    self.hours.append(HourFact(hour, start, desk.name, self.flavor, *amounts))
                    desk.committed = desk.used = desk.burst = 0
        self._close_workloads(begun, now)

    def _close_workloads(self, begun: int, now: int) -> None:
        sums: dict[tuple[WorkspaceName, ClusterName, WorkloadUid], list[int]] = {}
        for share in self._running.values():
            share.accrue(now)
        for share in (*self._ended, *self._running.values()):
            if share.committed or share.burst:
                held = share.held
                total = sums.setdefault((held.workspace, held.cluster, held.uid), [0, 0])
                total[0] += share.committed
                total[1] += share.burst
                share.committed = share.burst = 0
        self._ended.clear()
        hour, start = from_seconds(begun - begun % HOUR_S), from_seconds(begun)
        self.workloads.extend(
            WorkloadFact(hour, start, workspace, self.flavor, cluster, uid, *map(GpuSeconds, total))
            for (workspace, cluster, uid), total in sorted(sums.items())
        )
