"""What the meter and the interval builder need of the promises, in their own words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from budgets.intervals import ClockSettings, ClockStart
from budgets.metering import AccountPool, Floor, Held, PoolChange, Pools, Revision, SharedPool
from budgets.models import Flavor, FlavorClock, Interval, Pool, PoolAmount, PoolShare, Workspace
from budgets.models.reading import read_rows
from budgets.plan import DatedGpus, FleetTimeline, RevisionSpan, amounts_at, edges, in_force_at
from budgets.selectors.budget.timeline import live_revisions
from budgets.selectors.fleet.places import counted_intervals
from budgets.units import AccountName, FlavorName, Period, WorkspaceName

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def clock_settings() -> ClockSettings:
    """When each flavor's clock starts, with the dates of changes; the first holds for ever back."""
    starts: dict[FlavorName, list[tuple[datetime, ClockStart]]] = {}
    for row in FlavorClock.objects.select_related("flavor").order_by("valid_from", "pk"):
        of_flavor = starts.setdefault(FlavorName(row.flavor.slug), [])
        since = row.valid_from if of_flavor else LONG_AGO
        of_flavor.append((since, ClockStart(row.clock_start)))
    return ClockSettings(starts)


def held_intervals(window: Period, *, workspaces: Iterable[int] | None = None) -> Iterator[Held]:
    """Billable intervals that overlap a window, of flavors that the portal has. Two queries.

    Args:
        window: Open intervals overlap everything after their start.
        workspaces: Keys; None for all workspaces.
    """
    flavors = frozenset(Flavor.objects.values_list("slug", flat=True))
    rows = counted_intervals(
        window.start, window.end, kind=Interval.Kind.BILLABLE, workspace__isnull=False
    )
    if workspaces is not None:
        rows = rows.filter(workspace__in=list(workspaces))
    columns = rows.values_list(  # as Held has them
        "uid", "workspace__namespace", "flavor", "gpus", "admitted_at", "start", "end", "cluster"
    )
    return (Held(*row) for row in read_rows(columns) if row[2] in flavors)


def metered_revisions(
    window: Period, *, namespaces: Iterable[str] | None = None
) -> tuple[Revision, ...]:
    """Every workspace's floors in a window, as steps: a new row wherever they change.

    Args:
        window: Steps that begin in it, and what holds at its start.
        namespaces: Only of these workspaces; None for all.
    """
    by_workspace: dict[str, list[RevisionSpan]] = {}
    for span in live_revisions(window.start, namespaces=namespaces):
        if span.valid_from < window.end:
            by_workspace.setdefault(span.namespace, []).append(span)
    found: list[Revision] = []
    for namespace, spans in sorted(by_workspace.items()):
        steps = FleetTimeline({}, revisions=tuple(spans))
        for edge in edges(steps, start=window.start, end=window.end):
            current = in_force_at(spans, edge).get(namespace)
            floors = {
                FlavorName(line.flavor): Floor(line.committed, line.lendable)
                for line in (current.lines if current is not None else ())
            }
            found.append(Revision(WorkspaceName(namespace), edge, floors))
    return tuple(found)


def metered_pools(workspaces: Iterable[Workspace], window: Period) -> Pools:
    """Who belongs to which account, and every pool's amounts over a window, as steps."""
    spans: dict[int, list[DatedGpus]] = {}
    amounts = PoolAmount.objects.filter(valid_from__lt=window.end).select_related("pool", "flavor")
    for row in amounts.order_by("pk"):
        spans.setdefault(row.pool_id, []).append(
            DatedGpus(
                row.pool.slug, row.flavor.slug, row.gpus, row.valid_from, row.valid_until, row.pk
            )
        )
    accounts_of: dict[int, set[AccountName]] = {}
    for pool_id, slug in PoolShare.objects.values_list("pool_id", "account__slug"):
        accounts_of.setdefault(pool_id, set()).add(AccountName(slug))
    own: list[AccountPool] = []
    platform: list[SharedPool] = []
    for pool in Pool.objects.select_related("account").order_by("slug"):
        changes = _pool_changes(pool, spans.get(pool.pk, []), window)
        if pool.account is not None:
            own.append(AccountPool(AccountName(pool.account.slug), changes))
        elif accounts_of.get(pool.pk):
            platform.append(SharedPool(frozenset(accounts_of[pool.pk]), changes))
    return Pools(
        accounts={
            WorkspaceName(workspace.namespace): AccountName(workspace.account.slug)
            for workspace in workspaces
        },
        account_pools=tuple(own),
        platform_pools=tuple(platform),
    )


def _pool_changes(pool: Pool, spans: list[DatedGpus], window: Period) -> tuple[PoolChange, ...]:
    steps = FleetTimeline({}, pool_amounts=tuple(spans))
    cuts = {*edges(steps, start=window.start, end=window.end)}
    if pool.archived_at is not None and window.start < pool.archived_at < window.end:
        cuts.add(pool.archived_at)
    found = []
    for edge in sorted(cuts):
        is_archived = pool.archived_at is not None and pool.archived_at <= edge
        amounts: Mapping[tuple[str, str], int] = {} if is_archived else amounts_at(spans, edge)
        found.append(
            PoolChange(edge, {FlavorName(flavor): gpus for (_, flavor), gpus in amounts.items()})
        )
    return tuple(found)
