"""What budgets come to at this moment, in whole GPUs, from what was last seen on the clusters.

Never the meter: bars are for the eye, follow within a second, and are not billed.
Source: spec money, sections 3.2 and 3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.db.models import Case, Count, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone

from budgets.models import BudgetLine, Flavor, MonthOutlook, Pool, Workspace
from budgets.units import apportion
from clusters.documents.queues import FLEET_QUEUE
from clusters.models import Cluster, WorkloadState

Phase = WorkloadState.Phase
HOLDING = (Phase.RESERVED, Phase.RUNNING, Phase.EVICTED)
DEACTIVATED = "Deactivated"
IS_WAITING = Q(phase=Phase.PENDING) & ~Q(reason=DEACTIVATED)
IS_HELD = Q(phase__in=HOLDING)
"""Of rows that stand for a job each: which wait, and which hold GPUs or are about to."""
_NONE = BudgetLine(committed=0, ceiling=0, lendable=0)


@dataclass(frozen=True, slots=True)
class BudgetBar:
    """One flavor of one budget now; whole GPUs.

    Attributes:
        used: Held by jobs, ``committed_used + burst``.
        lent: Of the floor, what others of the account hold at this moment.
        pending: Asked for by jobs that wait; under the home flavor.
        cap: A limit below the ceiling, where one is in force.
        on_workers: Worker slug → GPUs held there.
    """

    flavor: str
    flavor_name: str
    committed: int
    ceiling: int
    used: int = 0
    committed_used: int = 0
    burst: int = 0
    lent: int = 0
    pending: int = 0
    cap: int | None = None
    on_workers: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Holdings:
    """(namespace, flavor) → worker → GPUs held, and namespace → GPUs waited for."""

    held: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    pending: Counter[str] = field(default_factory=Counter)

    def hold(self, namespace: str, worker: str, gpus: Mapping[str, int]) -> None:
        for flavor, count in gpus.items():
            if flavor and count:
                self.held.setdefault((namespace, flavor), Counter())[worker] += count

    def on_workers(self, namespace: str, flavor: str) -> Counter[str]:
        return self.held.get((namespace, flavor), Counter())


_Lines = Mapping[str, Sequence[BudgetLine]]


def bars_now(workspaces: Iterable[Workspace]) -> dict[int, list[BudgetBar]]:
    """Bars of some workspaces, by primary key; five queries however many there are.

    Args:
        workspaces: Those to show; whether the viewer may see them was decided by who asks.

    Returns:
        One bar per line in force, in the order of the revision, then flavors that are held, or
        waited for, without a line.
    """
    shown = list(workspaces)
    if not shown:
        return {}
    accounts = sorted({row.account_id for row in shown})
    siblings = dict(
        Workspace.objects.filter(account_id__in=accounts).values_list("namespace", "account_id")
    )
    lines = _lines(accounts)
    holdings = _holdings(siblings)
    lent = _lent(siblings, lines, holdings)
    flavors = list(Flavor.objects.order_by().values_list("pk", "slug", "name"))
    homes = {key: slug for key, slug, _ in flavors}
    names = {slug: name for _, slug, name in flavors}
    return {
        row.pk: _bars(row.namespace, homes[row.home_flavor_id], lines, holdings, lent, names)
        for row in shown
    }


SORTS = ("name", "-name", "spent", "-spent", "running", "-running", "waiting", "-waiting")


def sorted_workspaces(found: QuerySet[Workspace], sort: str) -> QuerySet[Workspace]:
    """Workspaces in one of the orders :data:`SORTS`; equals by their namespace.

    Args:
        found: Those that the viewer may see.
        sort: What is no order of ours leaves them as they are.
    """
    column, sign = sort.removeprefix("-"), "-" if sort.startswith("-") else ""
    if sort not in SORTS:
        return found
    if column == "name":
        return found.order_by(f"{sign}name", "namespace")
    if column == "spent":
        now = timezone.now()
        months = MonthOutlook.objects.filter(
            workspace=OuterRef("pk"), month_start__lte=now, month_end__gt=now
        )
        figure: Any = Coalesce(Subquery(months.values("spent")[:1]), Value(Decimal(0)))
    else:
        wanted = IS_WAITING if column == "waiting" else IS_HELD
        jobs = WorkloadState.objects.filter(
            wanted, namespace=OuterRef("namespace"), is_remote_copy=False
        )
        counted = jobs.order_by().values("namespace").annotate(count=Count("pk"))
        figure = Coalesce(Subquery(counted.values("count")), 0)
    return found.annotate(figure=figure).order_by(f"{sign}figure", "namespace")


def workload_counts(workspaces: Iterable[Workspace]) -> dict[str, tuple[int, int]]:
    """Jobs that wait and jobs that run (or are about to), by namespace. One query.

    A job is counted once: copies that a manager made are left out.
    """
    found = (
        WorkloadState.objects.filter(
            namespace__in=[row.namespace for row in workspaces], is_remote_copy=False
        )
        .order_by()
        .values_list("namespace")
        .annotate(
            waiting=Count("pk", filter=IS_WAITING),
            running=Count("pk", filter=IS_HELD),
        )
    )
    return {namespace: (waiting, running) for namespace, waiting, running in found}


def _lines(accounts: Collection[int]) -> _Lines:
    """Namespace → lines in force."""
    found: dict[str, list[BudgetLine]] = {}
    rows = (
        BudgetLine.objects.filter(
            revision__budget__in_force=F("revision"),
            revision__budget__workspace__account_id__in=accounts,
        )
        .select_related("flavor")
        .annotate(namespace=F("revision__budget__workspace__namespace"))
        .order_by("revision", "position")
    )
    for row in rows:
        found.setdefault(row.namespace, []).append(row)
    return found


def _holdings(namespaces: Collection[str]) -> _Holdings:
    """What jobs hold on workers and what they wait for.

    Of the copies of a dispatched job only that on the worker that the manager names counts; until
    it names one the job waits, whatever its copies have reserved in the race.
    """
    rows = list(
        WorkloadState.objects.filter(
            namespace__in=namespaces, phase__in=(Phase.PENDING, *HOLDING)
        ).values_list(
            "namespace",
            "name",
            "phase",
            "reason",
            "gpus",
            "gpu_total",
            "worker",
            "is_remote_copy",
            "cluster__slug",
            # A manager's Workload that runs there itself is one of any cluster of its own.
            Case(
                When(
                    ~Q(cluster__own_queue=Cluster.OwnQueue.NONE) & ~Q(queue=FLEET_QUEUE),
                    then=Value(Cluster.Role.SINGLE),
                ),
                default=F("cluster__role"),
            ),
        )
    )
    chosen = {
        (namespace, name): worker
        for namespace, name, _, _, _, _, worker, is_copy, _, role in rows
        if role == Cluster.Role.MANAGER and not is_copy
    }
    found = _Holdings()
    for namespace, name, phase, reason, gpus, total, worker, is_copy, cluster, role in rows:
        is_held = phase != Phase.PENDING
        if role == Cluster.Role.MANAGER:
            if reason != DEACTIVATED and not worker:
                found.pending[namespace] += total
        elif is_copy:
            if is_held and chosen.get((namespace, name), cluster) == cluster:
                found.hold(namespace, cluster, gpus)
        elif is_held:
            found.hold(namespace, cluster, gpus)
        elif reason != DEACTIVATED:
            found.pending[namespace] += total
    return found


def _lent(
    siblings: Mapping[str, int], lines: _Lines, holdings: _Holdings
) -> dict[tuple[str, str], int]:
    """(namespace, flavor) → GPUs of the floor that others of the account hold now.

    What an account's own pool covers is nobody's floor. The rest is lent in proportion to what
    each lender has to lend, made whole by largest remainder in the order of the names.
    """
    pools = dict(
        Pool.objects.filter(
            account_id__in=set(siblings.values()), archived_at__isnull=True
        ).values_list("account_id", "in_force")
    )
    flavors = {flavor for _, flavor in holdings.held}
    found: dict[tuple[str, str], int] = {}
    for account_id in sorted(set(siblings.values())):
        members = sorted(name for name, account in siblings.items() if account == account_id)
        for flavor in sorted(flavors):
            over, room = 0, {}
            for name in members:
                line = _by_flavor(lines, name).get(flavor, _NONE)
                used = holdings.on_workers(name, flavor).total()
                over += max(0, used - line.committed)
                room[name] = min(max(0, line.committed - used), line.lendable)
            left = over - min(over, pools.get(account_id, {}).get(flavor, 0))
            covered = min(left, sum(room.values()))
            shares = apportion(covered, weights=list(room.values()))
            found |= {(name, flavor): gpus for name, gpus in zip(room, shares, strict=True)}
    return found


def _by_flavor(lines: _Lines, namespace: str) -> dict[str, BudgetLine]:
    return {row.flavor.slug: row for row in lines.get(namespace, ())}


def _bars(
    namespace: str,
    home: str,
    lines: _Lines,
    holdings: _Holdings,
    lent: Mapping[tuple[str, str], int],
    names: Mapping[str, str],
) -> list[BudgetBar]:
    """The bars of one workspace."""
    promised = _by_flavor(lines, namespace)
    pending = holdings.pending[namespace]
    extra = {flavor for owner, flavor in holdings.held if owner == namespace}
    if pending:
        extra.add(home)
    bars = []
    for flavor in [*promised, *sorted(extra - set(promised))]:
        line = promised.get(flavor, _NONE)
        on_workers = holdings.on_workers(namespace, flavor)
        used = on_workers.total()
        bars.append(
            BudgetBar(
                flavor=flavor,
                flavor_name=names.get(flavor, flavor),
                committed=line.committed,
                ceiling=line.ceiling,
                used=used,
                committed_used=min(used, line.committed),
                burst=max(0, used - line.committed),
                lent=lent.get((namespace, flavor), 0),
                pending=pending if flavor == home else 0,
                on_workers=dict(sorted(on_workers.items())),
            )
        )
    return bars
