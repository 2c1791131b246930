"""The fleet: what there is, what is promised of it, what is used; and what is left to set up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Exists, Q, QuerySet

from budgets.errors import NotAllowed
from budgets.models import (
    Account,
    BudgetRevision,
    Capacity,
    Envelope,
    Flavor,
    Interval,
    MeasuredCapacity,
    Membership,
    PoolAllocation,
    Role,
    User,
    Workspace,
)
from budgets.plan import FleetLevel, capacity_at, levels_at
from budgets.records import record_of
from budgets.selectors.budget.timeline import (
    committed_at_places,
    fleet_timeline,
    gpus_at_places,
)
from budgets.selectors.clock import utc_now
from budgets.selectors.roles import roles_of


@dataclass(frozen=True, slots=True)
class FleetCell:
    """One flavor on one worker, whole GPUs.

    Attributes:
        capacity: What counts: stated by an admin, else measured.
        stated: An admin's number, None without one.
        measured: Ready GPUs of its nodes, None when never measured.
        committed: Floor that stands there.
        pools: Pool quota that stands there.
        in_use: By its nodes, else by open intervals.
        free: Capacity not in use, at least 0.
        broken: GPUs of nodes that are not ready.
        unmet: Promised there beyond capacity times factor.
    """

    capacity: int
    stated: int | None
    measured: int | None
    committed: int
    pools: int
    in_use: int
    free: int
    broken: int
    unmet: int


@dataclass(frozen=True, slots=True)
class FleetTotal:
    """One flavor over all workers; ``excess`` above 0 is shown red.

    ``unmet`` counts promised GPUs that stand on no worker or on one that became short.
    """

    capacity: int
    limit: int
    committed: int
    account_pools: int
    platform_pools: int
    promised: int
    excess: int
    in_use: int
    free: int
    broken: int
    unmet: int


@dataclass(frozen=True, slots=True)
class OverUse:
    """More GPUs in use on one worker than it has: one of both figures is wrong.

    Attributes:
        in_use: As :class:`FleetCell` has it.
        capacity: What counts there.
        since: From when on at the latest; what held GPUs then still does.
    """

    flavor: Flavor
    cluster: str
    in_use: int
    capacity: int
    since: datetime


@dataclass(frozen=True, slots=True)
class FleetGrid:
    """Flavor x worker."""

    flavors: tuple[Flavor, ...]
    clusters: tuple[str, ...]
    cells: Mapping[tuple[str, str], FleetCell]
    totals: Mapping[str, FleetTotal]
    over_use: tuple[OverUse, ...] = ()

    @property
    def short(self) -> tuple[Flavor, ...]:
        """Flavors of which more is promised than can be kept."""
        return tuple(
            flavor
            for flavor in self.flavors
            if self.totals[flavor.slug].excess > 0 or self.totals[flavor.slug].unmet > 0
        )


@dataclass(frozen=True, slots=True)
class SetupStep:
    """One step from an empty portal to the first bill."""

    key: str
    title: str
    text: str
    done: bool


def fleet_grid(user: User, *, now: datetime | None = None) -> FleetGrid:
    """Capacity against promises and use, per flavor and worker.

    Raises:
        NotAllowed: Only admin, finance and auditor see the fleet as a whole.
    """
    if not roles_of(user).sees_everything:
        raise NotAllowed("Only admins, finance and auditors can see the whole fleet.")
    instant = now or utc_now()
    flavors = tuple(Flavor.objects.filter(archived_at__isnull=True).order_by("position", "slug"))
    timeline = fleet_timeline(instant)
    capacity = capacity_at(timeline, instant)
    measured = {
        (row.cluster, row.flavor.slug): row
        for row in MeasuredCapacity.objects.select_related("flavor")
    }
    committed = committed_at_places()
    pools = gpus_at_places(PoolAllocation.objects.all(), "flavor__slug")
    # GPUs that are held on workers; a manager's own reservation holds none.
    held = Interval.objects.filter(end__isnull=True).exclude(kind=Interval.Kind.MANAGER_WAIT)
    used = gpus_at_places(held, "flavor")
    known = capacity.keys() | measured.keys() | committed.keys() | pools.keys() | used.keys()
    clusters = tuple(sorted({cluster for cluster, _ in known}))
    cells: dict[tuple[str, str], FleetCell] = {}
    for flavor in flavors:
        for cluster in clusters:
            key = (cluster, flavor.slug)
            if key in known:
                cells[flavor.slug, cluster] = _cell(
                    capacity.get(key, 0),
                    measured.get(key),
                    committed.get(key, 0),
                    pools.get(key, 0),
                    used.get(key, 0),
                    flavor,
                )
    levels = {level.flavor: level for level in levels_at(timeline, instant)}
    totals = {
        flavor.slug: _total(
            levels[flavor.slug],
            [cell for (slug, _), cell in cells.items() if slug == flavor.slug],
        )
        for flavor in flavors
    }
    return FleetGrid(
        flavors=flavors,
        clusters=clusters,
        cells=cells,
        totals=totals,
        over_use=tuple(_over_use(flavors, cells, measured, held)),
    )


def _over_use(
    flavors: Iterable[Flavor],
    cells: Mapping[tuple[str, str], FleetCell],
    measured: Mapping[tuple[str, str], MeasuredCapacity],
    held: QuerySet[Interval],
) -> Iterator[OverUse]:
    """Where use is above capacity. One query for each such place, none where figures agree."""
    by_slug = {flavor.slug: flavor for flavor in flavors}
    for (slug, cluster), cell in cells.items():
        if cell.in_use <= cell.capacity:
            continue
        sample = measured.get((cluster, slug))
        since = sample.measured_at if sample is not None else utc_now()
        total = 0
        rows = held.filter(cluster=cluster, flavor=slug).order_by("start")
        for start, gpus in rows.values_list("start", "gpus"):
            total += gpus
            if total > cell.capacity:
                since = start
                break
        yield OverUse(by_slug[slug], cluster, cell.in_use, cell.capacity, since)


def setup_steps(user: User) -> list[SetupStep]:
    """What an admin has to do on an empty portal, in order; nothing for other roles."""
    if not roles_of(user).is_admin:
        return []
    steps = (
        (
            "flavors",
            "Describe your GPUs",
            "Add one flavor for each kind of GPU node, with its labels and resource name.",
            Q(Exists(Flavor.objects.all())),
        ),
        (
            "capacity",
            "Register clusters and set capacity",
            "The nodes of a registered cluster are measured; you can also set a number yourself.",
            Q(Exists(Capacity.objects.all())) | Q(Exists(MeasuredCapacity.objects.all())),
        ),
        (
            "accounts",
            "Add an account",
            "An account is a customer. Accounts never share GPUs.",
            Q(Exists(Account.objects.all())),
        ),
        (
            "envelopes",
            "Give the account an envelope",
            "It says how much its owners may promise themselves without asking you.",
            Q(Exists(Envelope.objects.all())),
        ),
        (
            "workspaces",
            "Add a workspace",
            "It is one namespace with one queue, under one budget.",
            Q(Exists(Workspace.objects.all())),
        ),
        (
            "members",
            "Name an owner",
            "Name somebody who may change the workspace's budget.",
            Q(Exists(Membership.objects.filter(role=Role.OWNER))),
        ),
        (
            "budgets",
            "Promise the first GPUs",
            "Three fields: committed GPUs, burst limit, preferred flavor.",
            Q(Exists(BudgetRevision.objects.all())),
        ),
        (
            "finance",
            "Name who sets prices",
            "Two people in finance agree on prices; a new one can approve a day later. If you run "
            "everything alone, say so on Installation first, then give yourself the role.",
            Q(Exists(Membership.objects.filter(role=Role.FINANCE))),
        ),
    )
    # One question to the database, for each first page of an admin asks it.
    found = User.objects.filter(pk=user.pk).values(
        **{f"has_{key}": needed for key, _, _, needed in steps}
    )
    has: Mapping[str, Any] = found.get()
    return [SetupStep(key, title, text, bool(has[f"has_{key}"])) for key, title, text, _ in steps]


def _cell(
    capacity: int,
    measured: MeasuredCapacity | None,
    committed: int,
    pools: int,
    used: int,
    flavor: Flavor,
) -> FleetCell:
    ready = None if measured is None else measured.ready_gpus
    in_use = max(used, measured.used_gpus) if measured is not None else used
    return FleetCell(
        capacity=capacity,
        stated=None if capacity == ready else capacity,
        measured=ready,
        committed=committed,
        pools=pools,
        in_use=in_use,
        free=max(0, capacity - in_use),
        broken=0 if measured is None else measured.broken_gpus,
        unmet=max(0, committed + pools - int(capacity * flavor.oversubscription_factor)),
    )


def _total(level: FleetLevel, cells: list[FleetCell]) -> FleetTotal:
    placed = sum(cell.committed + cell.pools for cell in cells)
    sums = {
        name: sum(getattr(cell, name) for cell in cells)
        for name in ("in_use", "free", "broken", "unmet")
    }
    sums["unmet"] += max(0, level.promised - placed)
    return record_of(FleetTotal, level, **sums)
