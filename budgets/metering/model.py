"""What goes into and comes out of the meter: plain values, no behaviour.

Source: spec money, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct

from budgets.units import (
    AccountName,
    ClusterName,
    FlavorName,
    GpuSeconds,
    Period,
    WorkloadUid,
    WorkspaceName,
)

NO_CLUSTER = ClusterName("")


class Held(Struct, frozen=True):
    """A workload of a workspace held ``gpus`` of a flavor in [start, end); end None: still does.

    ``admitted`` orders the waterfall; ``cluster`` may stay empty where uids are unique anyway.
    """

    uid: WorkloadUid
    workspace: WorkspaceName
    flavor: FlavorName
    gpus: int
    admitted: datetime
    start: datetime
    end: datetime | None
    cluster: ClusterName = NO_CLUSTER


@dataclass(frozen=True, slots=True)
class Floor:
    """What a revision promises of one flavor: committed GPUs, and how many may be lent.

    ``lendable`` None: no limit. The ceiling limits admission only, so the meter ignores it.
    """

    committed: int
    lendable: int | None = None


@dataclass(frozen=True, slots=True)
class Revision:
    """A workspace's whole budget from ``start`` on; a flavor it does not name has no floor."""

    workspace: WorkspaceName
    start: datetime
    floors: Mapping[FlavorName, Floor]


@dataclass(frozen=True, slots=True)
class PoolChange:
    """From ``start`` on (None: always) an account pool or platform pool has these GPUs, whole."""

    start: datetime | None
    gpus: Mapping[FlavorName, int]


@dataclass(frozen=True, slots=True)
class AccountPool:
    """The quota on an account's own Cohort, over time."""

    account: AccountName
    changes: tuple[PoolChange, ...]


@dataclass(frozen=True, slots=True)
class SharedPool:
    """Quota that several accounts draw on; an account is in one at most."""

    accounts: frozenset[AccountName]
    changes: tuple[PoolChange, ...]


@dataclass(frozen=True, slots=True)
class Pools:
    """Who belongs together: every workspace's account, and the pools above them."""

    accounts: Mapping[WorkspaceName, AccountName]
    account_pools: tuple[AccountPool, ...] = ()
    platform_pools: tuple[SharedPool, ...] = ()


class HourFact(Struct, frozen=True, order=True):
    """GPU-seconds of a workspace and flavor in one UTC hour, or the part of it in the window.

    ``hour`` is the start of the whole hour, ``start`` that of the part. committed_used + lent +
    idle = committed. ``borrowed`` is the workspace's part of what its account was lent.
    """

    hour: datetime
    start: datetime
    workspace: WorkspaceName
    flavor: FlavorName
    committed: GpuSeconds
    committed_used: GpuSeconds
    lent: GpuSeconds
    idle: GpuSeconds
    burst: GpuSeconds
    borrowed: GpuSeconds


class AccountFact(Struct, frozen=True, order=True):
    """What covered an account's burst of a flavor in one UTC hour.

    burst = from_pool + lent + from_platform + uncovered.
    """

    hour: datetime
    start: datetime
    account: AccountName
    flavor: FlavorName
    burst: GpuSeconds
    from_pool: GpuSeconds
    lent: GpuSeconds
    from_platform: GpuSeconds
    uncovered: GpuSeconds


class WorkloadFact(Struct, frozen=True, order=True):
    """GPU-seconds of one workload on one flavor in one UTC hour, by class."""

    hour: datetime
    start: datetime
    workspace: WorkspaceName
    flavor: FlavorName
    cluster: ClusterName
    uid: WorkloadUid
    committed_used: GpuSeconds
    burst: GpuSeconds


@dataclass(frozen=True, slots=True)
class Usage:
    """What a window comes to; every tuple sorted, rows without GPU-seconds left out."""

    window: Period
    hours: tuple[HourFact, ...]
    accounts: tuple[AccountFact, ...]
    workloads: tuple[WorkloadFact, ...] = ()
