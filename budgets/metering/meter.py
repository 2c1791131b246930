"""The meter: who used what of whose floor, per UTC hour, flavor and class.

Pure. It knows workspaces, accounts and pools by name only; no prices.

Source: spec money, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import TypeVar

from budgets.metering.lending import Cover, Desk, Platform
from budgets.metering.model import (
    AccountFact,
    Floor,
    Held,
    HourFact,
    PoolChange,
    Pools,
    Revision,
    Usage,
    WorkloadFact,
)
from budgets.metering.sweep import Change, FlavorSweep
from budgets.units import AccountName, FlavorName, Period, UnitsError, WorkspaceName, to_seconds

NO_FLOOR = Floor(0, 0)
_HOUR_KEY = attrgetter("start", "workspace", "flavor")
_ACCOUNT_KEY = attrgetter("start", "account", "flavor")
_WORKLOAD_KEY = attrgetter("start", "workspace", "flavor", "cluster", "uid")
Fact = TypeVar("Fact", HourFact, AccountFact, WorkloadFact)


class MeteringError(UnitsError):
    """The input contradicts itself, so that no use of it could be billed."""


def meter(
    held: Iterable[Held],
    revisions: Iterable[Revision],
    pools: Pools,
    window: Period,
) -> Usage:
    """Split every GPU-second of a window into committed and burst, and say who covered it.

    Args:
        held: Any order; one still running counts up to the window's end. No order or grouping
            of intervals that cover the same time changes the result.
        revisions: Any order. Of a workspace the newest at or before an instant is in force, of
            two with the same start the later in this order.
        pools: Every workspace of ``held`` and ``revisions`` has its account here.
        window: Metering it equals metering its hour-aligned parts.

    Returns:
        Facts per UTC hour, sorted.

    Raises:
        MeteringError: A workspace has no account, an account is in two platform pools, a count
            is negative, or an interval ends before it starts.
    """
    held_rows = list(held)
    revision_rows = list(revisions)
    _check(held_rows, revision_rows, pools)
    start, end = to_seconds(window.start), to_seconds(window.end)
    by_flavor: dict[FlavorName, list[Held]] = {}
    for row in held_rows:
        if row.start < window.end and (row.end is None or row.end > window.start):
            by_flavor.setdefault(row.flavor, []).append(row)
    floors = _floor_changes(revision_rows, window)
    sweeps = []
    for flavor in sorted({*by_flavor, *floors}):
        sweep = FlavorSweep(flavor, start=start, end=end)
        changes = _set_up(sweep, by_flavor.get(flavor, ()), floors.get(flavor, {}), pools)
        sweep.run(by_flavor.get(flavor, ()), changes)
        sweeps.append(sweep)
    return Usage(
        window=window,
        hours=_sorted((sweep.hours for sweep in sweeps), by=_HOUR_KEY),
        accounts=_sorted((sweep.accounts for sweep in sweeps), by=_ACCOUNT_KEY),
        workloads=_sorted((sweep.workloads for sweep in sweeps), by=_WORKLOAD_KEY),
    )


def _sorted(
    parts: Iterable[Sequence[Fact]], *, by: Callable[[Fact], tuple[object, ...]]
) -> tuple[Fact, ...]:
    # A key is built once per fact, and each part is nearly sorted: far from n · log n compares.
    return tuple(sorted((fact for part in parts for fact in part), key=by))


FloorChanges = dict[WorkspaceName, list[tuple[int, Floor]]]


def _floor_changes(revisions: Sequence[Revision], window: Period) -> dict[FlavorName, FloorChanges]:
    """Flavor → workspace → (from, floor), of what is in force at some time of the window."""
    by_workspace: dict[WorkspaceName, list[Revision]] = {}
    for row in revisions:
        if row.start < window.end:
            by_workspace.setdefault(row.workspace, []).append(row)
    found: dict[FlavorName, FloorChanges] = {}
    for workspace, rows in by_workspace.items():
        rows.sort(key=lambda row: row.start)
        first = max((at for at, row in enumerate(rows) if row.start <= window.start), default=0)
        rows = rows[first:]
        for flavor in {flavor for row in rows for flavor in row.floors}:
            found.setdefault(flavor, {})[workspace] = [
                (to_seconds(row.start), row.floors.get(flavor, NO_FLOOR)) for row in rows
            ]
    return found


def _set_up(
    sweep: FlavorSweep, held: Sequence[Held], floors: FloorChanges, pools: Pools
) -> list[tuple[int, Change]]:
    """Give the sweep its workspaces, accounts and pools; return the dated changes of them."""
    changes: list[tuple[int, Change]] = []
    names = {row.workspace for row in held} | floors.keys()
    accounts = {pools.accounts[name] for name in names}
    platform_of: dict[AccountName, Platform] = {}
    for shared in pools.platform_pools:
        if shared.accounts & accounts:
            platform = Platform(since=sweep.start)
            sweep.platforms.append(platform)
            platform_of.update(dict.fromkeys(shared.accounts, platform))
            for when, gpus in _pool_steps(shared.changes, sweep):
                changes.append((when, partial(platform.set_gpus, gpus)))
    for account in sorted(accounts):
        sweep.covers[account] = Cover(account, platform=platform_of.get(account), since=sweep.start)
    for own in pools.account_pools:
        cover = sweep.covers.get(own.account)
        if cover is not None:
            for when, gpus in _pool_steps(own.changes, sweep):
                changes.append((when, partial(sweep.set_pool, cover, gpus)))
    for name in sorted(names):
        desk = Desk(name, account=sweep.covers[pools.accounts[name]], since=sweep.start)
        sweep.desks[name] = desk
        for when, floor in floors.get(name, ()):
            changes.append((when, partial(sweep.set_floor, desk, floor)))
    return changes


def _pool_steps(changes: Sequence[PoolChange], sweep: FlavorSweep) -> list[tuple[int, int]]:
    steps = [(sweep.start if row.start is None else to_seconds(row.start), row) for row in changes]
    # A change with no start is the oldest of all, whatever the window.
    steps.sort(key=lambda step: (step[1].start is not None, step[0]))
    first = max((at for at, step in enumerate(steps) if step[0] <= sweep.start), default=0)
    return [(when, row.gpus.get(sweep.flavor, 0)) for when, row in steps[first:]]


def _check(held: Sequence[Held], revisions: Sequence[Revision], pools: Pools) -> None:
    for name in {row.workspace for row in held} | {row.workspace for row in revisions}:
        if name not in pools.accounts:
            raise MeteringError(f"workspace {name} has no account in pools.accounts")
    for row in held:
        if row.gpus < 0:
            raise MeteringError(f"workload {row.uid} holds {row.gpus} GPUs")
        if row.end is not None and row.end < row.start:
            raise MeteringError(
                f"workload {row.uid} ends {row.end.isoformat()}, "
                f"before its start {row.start.isoformat()}"
            )
    for revision in revisions:
        for flavor, floor in revision.floors.items():
            if floor.committed < 0 or (floor.lendable is not None and floor.lendable < 0):
                raise MeteringError(f"workspace {revision.workspace} promises less than 0 {flavor}")
    seen: set[AccountName] = set()
    for shared in pools.platform_pools:
        both = seen & shared.accounts
        if both:
            raise MeteringError(f"account {min(both)} is in two platform pools")
        seen |= shared.accounts
