"""Promises in, quota of one cluster out. Source: ARCHITECTURE, "What a budget becomes"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from budgets.plan.words import (
    HOST_FLAVOR,
    MAINTENANCE_TAINT,
    POOL_PREFIX,
    AccountPromise,
    ClusterPlace,
    CohortPlan,
    FlavorPromise,
    Line,
    PoolPromise,
    Promises,
    QueuePlan,
    QueueQuota,
    QuotaPlan,
    Spill,
    WorkspacePromise,
    strongest_stop,
)


def plan_quota(promises: Promises, place: ClusterPlace) -> QuotaPlan:
    """Plan every Cohort and ClusterQueue of one cluster.

    Args:
        promises: Everything in force.
        place: The manager, which carries whole lines, or a cluster where jobs run, which carries
            its part.

    Returns:
        Parts sorted by name, platform pools before accounts, so that limits are there before
        the queues. A worker has every queue, also with 0.
    """
    parents = {account: pool for pool in promises.pools for account in pool.shares}
    below = defaultdict[str, set[str]](set)
    for workspace in promises.workspaces:
        below[workspace.account].update(line.flavor for line in workspace.lines)
    cohorts = [
        _pool_cohort(pool, place) for pool in sorted(promises.pools, key=lambda pool: pool.name)
    ]
    for account in sorted(promises.accounts, key=lambda account: account.name):
        flavors = below[account.name].union(account.pool)
        cohorts.append(_account_cohort(account, flavors, parents.get(account.name), place))
    queues = [
        _queue(workspace, place)
        for workspace in sorted(promises.workspaces, key=lambda item: item.namespace)
    ]
    return QuotaPlan(
        place=place,
        flavors=tuple(
            _flavor(spec, place) for spec in sorted(promises.flavors, key=lambda spec: spec.name)
        ),
        cohorts=tuple(cohorts),
        queues=tuple(queues),
        topologies=tuple(sorted(promises.topologies, key=lambda item: item.name)),
    )


def trying_order(workspace: WorkspacePromise) -> tuple[str, ...]:
    """Flavors of a workspace as its jobs try them: the preference, then the order of lines."""
    of_lines = [line.flavor for line in workspace.lines]
    preferred = [flavor for flavor in workspace.preference if flavor in of_lines]
    return tuple(dict.fromkeys(preferred + of_lines))


def share_of(pool: PoolPromise, account: str, flavor: str) -> int:
    """Most GPUs of a flavor that an account may draw from a platform pool, over all clusters."""
    amount = pool.amounts.get(flavor, 0)
    limits = pool.shares.get(account)
    if limits is None:
        return 0
    return min(amount, limits.get(flavor, amount))


def changed_subjects(before: Promises, after: Promises) -> frozenset[str]:
    """Name what differs in force: ``flavor:``, ``topology:``, ``pool:``, ``account:``, ``budget:``.

    Compares contents and ignores generations: it decides which generations rise. Subjects that
    came or went are named too. O(workspaces x lines).
    """
    old, new = _contents(before), _contents(after)
    return frozenset(
        subject for subject in old.keys() | new.keys() if old.get(subject) != new.get(subject)
    )


def _contents(promises: Promises) -> Mapping[str, object]:
    """Subject -> everything that it becomes on any cluster, without its generation."""
    manager = plan_quota(promises, ClusterPlace(name="", is_manager=True))
    contents: dict[str, object] = {
        f"flavor:{spec.name}": (
            spec.resource,
            spec.node_labels,
            spec.node_taints,
            spec.tolerations,
            spec.gpus_per_node,
            spec.topology,
        )
        for spec in promises.flavors
    }
    contents |= {f"topology:{item.name}": item.levels for item in promises.topologies}
    splits: dict[str, Mapping[tuple[str, str], object]] = {
        **{f"budget:{row.namespace}": row.split for row in promises.workspaces},
        **{f"account:{row.name}": row.pool_split for row in promises.accounts},
        **{f"pool:{row.name}": row.split for row in promises.pools},
    }
    for cohort in manager.cohorts:
        contents[cohort.subject] = (cohort.parent, dict(cohort.quotas), cohort.fair_weight)
    placed = {spec.name for spec in promises.flavors if spec.topology}
    for queue in manager.queues:
        contents[queue.subject] = (
            queue.cohort,
            queue.flavors,
            dict(queue.quotas),
            queue.try_next_flavor_before_borrowing,
            queue.stop_policy,
            queue.checks_spend,
            queue.fair_weight,
            not placed.isdisjoint(queue.flavors),
        )
    return {
        subject: (content, _held_parts(splits.get(subject, {})))
        for subject, content in contents.items()
    }


def _held_parts(split: Mapping[tuple[str, str], object]) -> frozenset[object]:
    """Parts of a split that are not nothing: 0 and absent mean the same."""
    return frozenset((key, part) for key, part in split.items() if part not in (0, (0, 0)))


def _flavor(spec: FlavorPromise, place: ClusterPlace) -> FlavorPromise:
    """A cordoned flavor keeps its quota, and so every sum, but takes nothing new."""
    if spec.name not in place.cordoned_flavors:
        return spec
    return replace(spec, node_taints=(*spec.node_taints, MAINTENANCE_TAINT))


def _pool_cohort(pool: PoolPromise, place: ClusterPlace) -> CohortPlan:
    """A root Cohort with the pool's own quota; limits mean nothing at a root."""
    quotas = {
        flavor: QueueQuota(_held(gpus, pool.split, flavor, place), None, None)
        for flavor, gpus in sorted(pool.amounts.items())
    }
    return CohortPlan(
        name=POOL_PREFIX + pool.name,
        parent=None,
        quotas=quotas,
        subject=f"pool:{pool.name}",
        generation=pool.generation,
    )


def _account_cohort(
    account: AccountPromise, flavors: set[str], parent: PoolPromise | None, place: ClusterPlace
) -> CohortPlan:
    """The account's Cohort; it lists every pair below it, for an unlisted pair lends everything."""
    quotas: dict[str, QueueQuota] = {}
    for flavor in [*sorted(flavors), HOST_FLAVOR]:
        nominal = _held(account.pool.get(flavor, 0), account.pool_split, flavor, place)
        if parent is None:
            quotas[flavor] = QueueQuota(nominal, None, None)
        else:
            quotas[flavor] = QueueQuota(nominal, share_of(parent, account.name, flavor), 0)
    return CohortPlan(
        name=account.name,
        parent=None if parent is None else POOL_PREFIX + parent.name,
        quotas=quotas,
        subject=f"account:{account.name}",
        generation=account.generation,
        fair_weight=account.fair_weight,
    )


def _held(
    whole: int, split: Mapping[tuple[str, str], int], flavor: str, place: ClusterPlace
) -> int:
    """GPUs of a pool in a place: all of them on the manager of the fleet where the flavor is."""
    if flavor in place.elsewhere:
        return 0
    return whole if place.is_manager else split.get((flavor, place.name), 0)


def _queue(workspace: WorkspacePromise, place: ClusterPlace) -> QueuePlan:
    return QueuePlan(
        name=workspace.namespace,
        cohort=workspace.account,
        flavors=trying_order(workspace),
        quotas={line.flavor: _line_quota(workspace, line, place) for line in workspace.lines},
        try_next_flavor_before_borrowing=workspace.spill is Spill.NEXT_FLAVOR_FIRST,
        stop_policy=strongest_stop(workspace.stop_policy, place.stop_policy),
        subject=f"budget:{workspace.namespace}",
        generation=workspace.generation,
        # The manager dispatches nothing that has not passed it, so workers need none.
        checks_spend=place.takes_jobs and workspace.checks_spend,
        fair_weight=workspace.fair_weight,
    )


def _line_quota(workspace: WorkspacePromise, line: Line, place: ClusterPlace) -> QueueQuota:
    """Always three numbers: an unset borrowing limit is no limit, an unset lending limit lends all.

    On a worker the limit is B - C_w, so that the whole ceiling can be reached on one worker;
    the manager keeps the sum. Where B = C nothing may be borrowed anywhere. A flavor that stands
    in another fleet, or on a single cluster, is nothing here: there alone its ceiling counts.
    """
    if line.flavor in place.elsewhere:
        return QueueQuota(0, 0, 0)
    if place.is_manager:
        return QueueQuota(line.committed, line.ceiling - line.committed, line.lendable)
    committed, lendable = workspace.part_on(line.flavor, place.name)
    borrowing = 0 if line.ceiling == line.committed else line.ceiling - committed
    return QueueQuota(committed, borrowing, lendable)
