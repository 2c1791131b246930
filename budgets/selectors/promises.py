"""What is promised: as the generations know it, and as it will be at an instant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import F, Prefetch, Q

from budgets.models import (
    Account,
    Allocation,
    BudgetLine,
    Flavor,
    Pool,
    PoolAllocation,
    PoolShare,
    Workspace,
)
from budgets.plan import (
    AccountPromise,
    FlavorSpec,
    Line,
    PlatformPool,
    Promises,
    Spill,
    StopPolicy,
    WorkspacePromise,
)


@dataclass(frozen=True, slots=True)
class _Scope:
    """Some accounts by slug, or all of them."""

    accounts: tuple[str, ...] | None

    def __call__(self, path: str) -> Q:
        return Q() if self.accounts is None else Q(**{f"{path}__in": self.accounts})


def promises_in_force(*, accounts: Iterable[str] | None = None) -> Promises:
    """Everything that generations speak of: recorded revisions, allocations and pool amounts.

    This is what quota sync applies. A window edge that has passed is in it as soon as
    ``services.advance_in_force`` has recorded it.

    Args:
        accounts: Account slugs; None for all. Platform pools are always all there.

    Returns:
        Promises; a bounded number of queries, whatever the size of the fleet.
    """
    scope = _Scope(None if accounts is None else tuple(accounts))
    workspaces = _workspace_promises(scope)
    named = {workspace.account for workspace in workspaces}
    pools = list(
        Pool.objects.filter(archived_at__isnull=True)
        .select_related("account")
        .prefetch_related(
            Prefetch("allocations", PoolAllocation.objects.select_related("flavor")),
            Prefetch("shares", PoolShare.objects.select_related("account")),
        )
        .order_by("slug")
    )
    return Promises(
        flavors=_flavor_specs(workspaces, pools),
        accounts=tuple(
            _account_promise(account, pools)
            for account in Account.objects.filter(scope("slug")).order_by("slug")
            if account.archived_at is None or account.slug in named
        ),
        pools=tuple(_platform_pool(pool) for pool in pools if pool.is_platform),
        workspaces=tuple(workspaces),
    )


def _workspace_promises(scope: _Scope) -> list[WorkspacePromise]:
    rows = list(
        Workspace.objects.filter(scope("account__slug"), budget__isnull=False)
        .filter(Q(archived_at__isnull=True) | ~Q(budget__held_flavors=[]))
        .select_related("account", "budget", "budget__in_force")
        .order_by("namespace")
    )
    current = Q(revision__budget__in_force=F("revision"))
    lines: dict[int, list[Line]] = {}
    for revision, flavor, committed, ceiling, lendable in (
        BudgetLine.objects.filter(current, scope("revision__budget__workspace__account__slug"))
        .order_by("revision_id", "position")
        .values_list("revision_id", "flavor__slug", "committed", "ceiling", "lendable")
    ):
        lines.setdefault(revision, []).append(Line(flavor, committed, ceiling, lendable))
    splits: dict[int, dict[tuple[str, str], tuple[int, int]]] = {}
    for revision, flavor, cluster, committed, lendable in (
        Allocation.objects.filter(
            scope("line__revision__budget__workspace__account__slug"),
            line__revision__budget__in_force=F("line__revision"),
        )
        .order_by("line_id", "cluster")
        .values_list("line__revision_id", "line__flavor__slug", "cluster", "committed", "lendable")
    ):
        splits.setdefault(revision, {})[flavor, cluster] = (committed, lendable)
    return [_workspace_promise(row, lines, splits) for row in rows]


def _workspace_promise(
    row: Workspace,
    lines: Mapping[int, list[Line]],
    splits: Mapping[int, dict[tuple[str, str], tuple[int, int]]],
) -> WorkspacePromise:
    budget = row.budget
    revision = budget.in_force
    own = tuple(lines.get(revision.pk, ())) if revision is not None else ()
    is_archived = row.archived_at is not None
    return WorkspacePromise(
        account=row.account.slug,
        workspace=row.slug,
        namespace=row.namespace,
        lines=with_held(own, budget.held_flavors),
        preference=tuple(revision.preference) if revision is not None else (),
        spill=Spill(revision.spill) if revision is not None else Spill.NEXT_FLAVOR_FIRST,
        split=splits.get(revision.pk, {}) if revision is not None else {},
        stop_policy=(
            StopPolicy.HOLD
            if is_archived and budget.stop_policy == StopPolicy.NONE
            else StopPolicy(budget.stop_policy)
        ),
        generation=budget.generation,
    )


def with_held(lines: tuple[Line, ...], held: Iterable[str]) -> tuple[Line, ...]:
    """A flavor that was dropped but is still held stays as 0/0/0."""
    present = {line.flavor for line in lines}
    return lines + tuple(Line(flavor, 0, 0, 0) for flavor in held if flavor not in present)


def _flavor_specs(
    workspaces: Iterable[WorkspacePromise], pools: Iterable[Pool]
) -> tuple[FlavorSpec, ...]:
    used = {line.flavor for workspace in workspaces for line in workspace.lines}
    used |= {flavor for pool in pools for flavor in pool.in_force}
    return tuple(
        FlavorSpec(
            name=row.slug,
            resource=row.resource_name,
            node_labels=_pairs(row.node_labels),
            node_taints=tuple(_pairs(taint) for taint in row.node_taints),
            tolerations=tuple(_pairs(toleration) for toleration in row.tolerations),
            gpus_per_node=row.gpus_per_node,
            generation=row.generation,
        )
        for row in Flavor.objects.order_by("slug")
        if row.archived_at is None or row.slug in used
    )


def _pairs(mapping: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, str(value)) for key, value in mapping.items()))


def _account_promise(account: Account, pools: Iterable[Pool]) -> AccountPromise:
    own = next((pool for pool in pools if pool.account_id == account.pk), None)
    return AccountPromise(
        name=account.slug,
        generation=account.generation,
        pool=dict(own.in_force) if own is not None else {},
        pool_split=_pool_parts(own) if own is not None else {},
    )


def _platform_pool(pool: Pool) -> PlatformPool:
    return PlatformPool(
        name=pool.slug,
        generation=pool.generation,
        amounts=dict(pool.in_force),
        split=_pool_parts(pool),
        shares={share.account.slug: dict(share.limits) for share in pool.shares.all()},
    )


def _pool_parts(pool: Pool) -> dict[tuple[str, str], int]:
    return {(part.flavor.slug, part.cluster): part.gpus for part in pool.allocations.all()}
