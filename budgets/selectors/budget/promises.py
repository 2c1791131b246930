"""What is promised: as the generations know it, and as it will be at an instant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from django.db.models import Exists, F, OuterRef, Prefetch, Q, QuerySet

from budgets.models import (
    Account,
    Allocation,
    BudgetLine,
    BudgetRevision,
    Flavor,
    Pool,
    PoolAllocation,
    PoolShare,
    SpendEffect,
    SpendRule,
    Topology,
    Workspace,
)
from budgets.plan import (
    AccountPromise,
    FlavorPromise,
    Line,
    PoolPromise,
    Promises,
    Spill,
    StopPolicy,
    TopologyPromise,
    WorkspacePromise,
    strongest_stop,
)
from budgets.selectors.budget.timeline import lines_by_revision
from budgets.spending import HARD_ACTIONS


def promises_in_force(*, accounts: Iterable[str] | None = None) -> Promises:
    """Everything that generations speak of: recorded revisions, allocations and pool amounts.

    This is what quota sync applies. A window edge that has passed is in it as soon as
    ``services.advance_in_force`` has recorded it.

    Args:
        accounts: Account slugs; None for all. Platform pools are always all there.

    Returns:
        Promises; a bounded number of queries, whatever the size of the fleet.
    """
    slugs = None if accounts is None else tuple(accounts)

    def scope(path: str) -> Q:
        return Q() if slugs is None else Q(**{f"{path}__in": slugs})

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
    flavors = _flavor_specs(workspaces, pools)
    named_topologies = {spec.topology for spec in flavors}
    return Promises(
        flavors=flavors,
        accounts=tuple(
            _account_promise(account, pools)
            for account in Account.objects.filter(scope("slug")).order_by("slug")
            if account.archived_at is None or account.slug in named
        ),
        pools=tuple(_platform_pool(pool) for pool in pools if pool.is_platform),
        workspaces=tuple(workspaces),
        topologies=tuple(
            TopologyPromise(row.slug, tuple(row.levels), row.generation)
            for row in Topology.objects.order_by("slug")
            if row.archived_at is None or row.slug in named_topologies
        ),
    )


def _workspace_promises(scope: Callable[[str], Q]) -> list[WorkspacePromise]:
    rows = list(
        Workspace.objects.filter(scope("account__slug"), budget__isnull=False)
        .filter(Q(archived_at__isnull=True) | ~Q(budget__held_flavors=[]))
        .select_related("account", "budget", "budget__in_force", "budget__spend_effect")
        .annotate(checks_spend=Exists(_hard_rules()))
        .order_by("namespace")
    )
    current = Q(revision__budget__in_force=F("revision"))
    lines = lines_by_revision(
        BudgetLine.objects.filter(current, scope("revision__budget__workspace__account__slug"))
    )
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


def _hard_rules() -> QuerySet[SpendRule]:
    """Rules of a workspace's budget that hold jobs back when they are reached."""
    return SpendRule.objects.filter(
        budget__workspace=OuterRef("pk"),
        removed_at=None,
        action__in=[action.value for action in HARD_ACTIONS],
    )


def _workspace_promise(
    row: Workspace,
    lines: Mapping[int, list[Line]],
    splits: Mapping[int, dict[tuple[str, str], tuple[int, int]]],
) -> WorkspacePromise:
    budget = row.budget
    revision = budget.in_force or BudgetRevision()
    own = tuple(lines.get(revision.pk, ()))
    # Rules of an archived workspace mean nothing any more.
    effect = getattr(budget, "spend_effect", None) if row.archived_at is None else None
    return WorkspacePromise(
        account=row.account.slug,
        workspace=row.slug,
        namespace=row.namespace,
        lines=with_held(_under(effect, own), budget.held_flavors),
        preference=tuple(revision.preference),
        spill=Spill(revision.spill),
        split=splits.get(revision.pk, {}),
        stop_policy=_stop_policy(row, effect),
        generation=budget.generation,
        checks_spend=row.archived_at is None and getattr(row, "checks_spend", False),
        fair_weight=row.fair_weight,
    )


def _stop_policy(row: Workspace, effect: SpendEffect | None) -> StopPolicy:
    """All reasons to stop a queue, each kept where it belongs; the strongest is applied."""
    return strongest_stop(
        StopPolicy(row.budget.stop_policy),
        StopPolicy.HOLD if row.archived_at is not None else StopPolicy.NONE,
        StopPolicy(effect.stop_policy) if effect is not None else StopPolicy.NONE,
    )


def _under(effect: SpendEffect | None, lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Lines as they are applied: a soft cap that is reached makes the floor the ceiling."""
    if effect is None or not effect.floor_only:
        return lines
    return tuple(Line(line.flavor, line.committed, line.committed, line.lendable) for line in lines)


def with_held(lines: tuple[Line, ...], held: Iterable[str]) -> tuple[Line, ...]:
    """A flavor that was dropped but is still held stays as 0/0/0."""
    present = {line.flavor for line in lines}
    return lines + tuple(Line(flavor, 0, 0, 0) for flavor in held if flavor not in present)


def _flavor_specs(
    workspaces: Iterable[WorkspacePromise], pools: Iterable[Pool]
) -> tuple[FlavorPromise, ...]:
    used = {line.flavor for workspace in workspaces for line in workspace.lines}
    used |= {flavor for pool in pools for flavor in pool.in_force}
    return tuple(
        FlavorPromise(
            name=row.slug,
            resource=row.resource_name,
            node_labels=_pairs(row.node_labels),
            node_taints=tuple(_pairs(taint) for taint in row.node_taints),
            tolerations=tuple(_pairs(toleration) for toleration in row.tolerations),
            gpus_per_node=row.gpus_per_node,
            generation=row.generation,
            topology=row.topology.slug if row.topology is not None else "",
        )
        for row in Flavor.objects.select_related("topology").order_by("slug")
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
        fair_weight=account.fair_weight,
    )


def _platform_pool(pool: Pool) -> PoolPromise:
    return PoolPromise(
        name=pool.slug,
        generation=pool.generation,
        amounts=dict(pool.in_force),
        split=_pool_parts(pool),
        shares={share.account.slug: dict(share.limits) for share in pool.shares.all()},
    )


def _pool_parts(pool: Pool) -> dict[tuple[str, str], int]:
    return {(part.flavor.slug, part.cluster): part.gpus for part in pool.allocations.all()}
