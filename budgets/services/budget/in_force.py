"""What is in force follows the windows: allocations are made, generations rise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from budgets.announcements import Work, announce
from budgets.models import (
    Account,
    Allocation,
    Budget,
    BudgetRevision,
    Flavor,
    Interval,
    Pool,
    PoolAllocation,
    Topology,
)
from budgets.plan import WorkspacePromise, changed_subjects
from budgets.selectors import flavor_terms, free_rooms, promises_in_force
from budgets.selectors.budget.future import pool_splits, split_for
from budgets.selectors.budget.timeline import pool_amounts_at
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit
from budgets.services.guards import lock_accounts, lock_flavors

logger = structlog.stdlib.get_logger(__name__)

DROPPED_FLAVOR_GRACE = timedelta(minutes=15)
"""A dropped flavor stays at least so long: what holds it may not have been observed yet."""


def raise_generations(subjects: Iterable[str]) -> None:
    """Raise the counters of these subjects, ``flavor:SLUG`` and the like, by 1."""
    keys: dict[str, list[str]] = {}
    for subject in sorted(subjects):
        kind, _, name = subject.partition(":")
        keys.setdefault(kind, []).append(name)
    if not keys:
        return
    raised = {"generation": F("generation") + 1}
    Flavor.objects.filter(slug__in=keys.get("flavor", [])).update(**raised)
    Topology.objects.filter(slug__in=keys.get("topology", [])).update(**raised)
    Account.objects.filter(slug__in=keys.get("account", [])).update(**raised)
    Pool.objects.filter(slug__in=keys.get("pool", [])).update(**raised)
    Budget.objects.filter(workspace__namespace__in=keys.get("budget", [])).update(**raised)
    announce(Work.SYNC)


@contextmanager
def generations_follow(*accounts: str) -> Iterator[None]:
    """Raise exactly the generations whose content the body changes.

    Args:
        accounts: Slugs of the accounts that the body may touch; flavors are always watched.
    """
    before = promises_in_force(accounts=accounts)
    yield
    raise_generations(changed_subjects(before, promises_in_force(accounts=accounts)))


def settle_budget(budget: Budget, *, now: datetime) -> bool:
    """Put the revision of this instant in force, with its allocations; False when it is already.

    The caller holds the locks of :func:`lock_budget`. A floor that finds no place now (a worker
    was lost since the check) is laid out as far as it goes; the gap is shown as unmet.
    """
    current = newest_at(BudgetRevision.objects.filter(budget=budget), now).first()
    if (None if current is None else current.pk) == budget.in_force_id:
        return False
    workspace = budget.workspace
    account = workspace.account.slug
    with generations_follow(account):
        promise = _promise_of(budget)
        dropped = {line.flavor for line in promise.lines}
        if current is not None:
            _allocate(current, promise, now=now)
            dropped -= set(current.lines.values_list("flavor__slug", flat=True))
        budget.held_flavors = sorted(dropped)
        budget.in_force = current
        budget.in_force_since = now
        budget.save(update_fields=["held_flavors", "in_force", "in_force_since"])
    budget.refresh_from_db(fields=["generation"])
    return True


def reallocate_budget(budget: Budget, *, now: datetime) -> dict[str, dict[str, int]]:
    """Lay the floor out afresh; the caller holds the locks. Returns flavor -> worker -> GPUs."""
    revision = budget.in_force
    if revision is None:
        return {}
    with generations_follow(budget.workspace.account.slug):
        _allocate(revision, _promise_of(budget), now=now, afresh=True)
    budget.refresh_from_db(fields=["generation"])
    return _parts_of(revision)


def settle_pool(pool: Pool, *, now: datetime) -> bool:
    """Put the amounts of this instant in force; False when they are. The caller holds the locks."""
    wanted = {
        flavor: gpus for (name, flavor), gpus in pool_amounts_at(now).items() if name == pool.slug
    }
    if wanted == pool.in_force:
        return False
    with generations_follow(*accounts_of(pool)):
        parts = pool.allocations.values_list("flavor__slug", "cluster", "gpus")
        stood = {(flavor, cluster): gpus for flavor, cluster, gpus in parts}
        splits = pool_splits(wanted, stood, now)
        ids = dict(Flavor.objects.filter(slug__in=wanted).values_list("slug", "pk"))
        pool.allocations.all().delete()
        for flavor, split in splits.items():
            PoolAllocation.objects.bulk_create(
                PoolAllocation(pool=pool, flavor_id=ids[flavor], cluster=cluster, gpus=part)
                for cluster, (part, _) in split.parts.items()
            )
        pool.in_force = wanted
        pool.save(update_fields=["in_force"])
    pool.refresh_from_db(fields=["generation"])
    return True


def lock_budget(budget_id: int, *, flavors: Iterable[str] = ()) -> Budget:
    """Lock account, flavors and budget, in the order that every writer keeps, and load it.

    Args:
        budget_id: Primary key.
        flavors: Slugs that the write is about, besides those of what is in force.
    """
    budget = Budget.objects.select_related("workspace__account").get(pk=budget_id)
    lock_accounts(budget.workspace.account)
    in_force = Flavor.objects.filter(
        pk__in=BudgetRevision.objects.filter(budget=budget_id).values("lines__flavor")
    ).values_list("slug", flat=True)
    lock_flavors({*flavors, *in_force})
    return (
        Budget.objects.select_for_update(of=("self",))
        .select_related("workspace__account", "in_force")
        .get(pk=budget_id)
    )


def advance_in_force(now: datetime | None = None) -> list[str]:
    """Let window edges take effect; called by beat, and safe to call at any time.

    Args:
        now: UTC; None for the present.

    Returns:
        Namespaces whose budget changed, sorted.

    Raises:
        ExceptionGroup: Some budgets or pools could not be settled; the others were.
    """
    instant = now or utc_now()
    errors: list[Exception] = []
    changed: list[str] = []
    for budget_id in _budgets_behind(instant):
        try:
            changed += _advance_budget(budget_id, instant)
        except Exception as error:  # noqa: BLE001, RUF100  collected and raised below: one never stops the rest
            logger.exception("budget.advance_failed", budget=budget_id)
            errors.append(error)
    for pool_id in Pool.objects.filter(archived_at__isnull=True).values_list("pk", flat=True):
        try:
            _advance_pool(pool_id, instant)
        except Exception as error:  # noqa: BLE001, RUF100  as above
            logger.exception("pool.advance_failed", pool=pool_id)
            errors.append(error)
    changed += _release_held_flavors(instant)
    if errors:
        raise ExceptionGroup("some promises could not be put in force", errors)
    return sorted(set(changed))


def newest_at(
    revisions: QuerySet[BudgetRevision], instant: datetime | OuterRef
) -> QuerySet[BudgetRevision]:
    """Live revisions whose window holds the instant, the one in force first."""
    return revisions.filter(
        Q(valid_until__isnull=True) | Q(valid_until__gt=instant),
        state=BudgetRevision.State.LIVE,
        valid_from__lte=instant,
    ).order_by("-valid_from", "-number")


def _budgets_behind(instant: datetime) -> list[int]:
    """Budgets whose recorded revision is not the one of this instant. One query."""
    newest = newest_at(BudgetRevision.objects.filter(budget=OuterRef("pk")), instant)
    return list(
        Budget.objects.annotate(
            wanted=Coalesce(Subquery(newest.values("pk")[:1]), 0),
            recorded=Coalesce(F("in_force_id"), 0),
        )
        .exclude(wanted=F("recorded"))
        .order_by("pk")
        .values_list("pk", flat=True)
    )


@transaction.atomic
def _advance_budget(budget_id: int, now: datetime) -> list[str]:
    budget = lock_budget(budget_id)
    if not settle_budget(budget, now=now):
        return []
    namespace = budget.namespace
    audit(
        None,
        "budget.in_force",
        budget,
        after={"revision": budget.in_force.number if budget.in_force else None},
    )
    logger.info("budget.in_force", workspace=namespace, generation=budget.generation)
    return [namespace]


@transaction.atomic
def _advance_pool(pool_id: int, now: datetime) -> None:
    pool = lock_pool(pool_id)
    if settle_pool(pool, now=now):
        audit(None, "pool.in_force", pool, after={"amounts": pool.in_force})


def lock_pool(pool_id: int, *, flavors: Iterable[str] = ()) -> Pool:
    """Lock account, flavors and pool, in the order that every writer keeps, and load it."""
    pool = Pool.objects.select_related("account").get(pk=pool_id)
    if pool.account is not None:
        lock_accounts(pool.account)
    known = Flavor.objects.filter(pk__in=pool.amounts.values("flavor")).values_list(
        "slug", flat=True
    )
    lock_flavors({*flavors, *known})
    return Pool.objects.select_for_update(of=("self",)).select_related("account").get(pk=pool_id)


def _release_held_flavors(now: datetime) -> list[str]:
    """Let go of dropped flavors that nothing holds any more."""
    released = []
    due = Budget.objects.exclude(held_flavors=[]).filter(
        in_force_since__lte=now - DROPPED_FLAVOR_GRACE
    )
    for budget_id in due.order_by("pk").values_list("pk", flat=True):
        with transaction.atomic():
            budget = lock_budget(budget_id)
            workspace = budget.workspace
            held = set(
                Interval.objects.filter(workspace=workspace, end__isnull=True).values_list(
                    "flavor", flat=True
                )
            )
            kept = [flavor for flavor in budget.held_flavors if flavor in held]
            if kept == budget.held_flavors:
                continue
            with generations_follow(workspace.account.slug):
                budget.held_flavors = kept
                budget.save(update_fields=["held_flavors"])
            released.append(workspace.namespace)
    return released


def _promise_of(budget: Budget) -> WorkspacePromise:
    workspace = budget.workspace
    promises = promises_in_force(accounts=[workspace.account.slug])
    for promise in promises.workspaces:
        if promise.namespace == workspace.namespace:
            return promise
    return WorkspacePromise(workspace.account.slug, workspace.slug, workspace.namespace, ())


def _allocate(
    revision: BudgetRevision, promise: WorkspacePromise, *, now: datetime, afresh: bool = False
) -> None:
    """Write the allocations of a revision's lines, from what the workspace stands on."""
    rows = {line.flavor.slug: line for line in revision.lines.select_related("flavor")}
    splits = split_for(
        promise,
        [line.as_plan() for line in rows.values()],
        rooms=free_rooms(now, flavors=rows),
        terms=flavor_terms(),
        afresh=afresh,
    )
    Allocation.objects.filter(line__revision=revision).delete()
    Allocation.objects.bulk_create(
        Allocation(line=rows[flavor], cluster=cluster, committed=committed, lendable=lendable)
        for flavor, split in splits.items()
        for cluster, (committed, lendable) in split.parts.items()
    )
    for flavor, split in splits.items():
        if split.unmet:
            logger.warning(
                "budget.unmet", workspace=promise.namespace, flavor=flavor, unmet_gpus=split.unmet
            )


def _parts_of(revision: BudgetRevision) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for flavor, cluster, gpus in Allocation.objects.filter(line__revision=revision).values_list(
        "line__flavor__slug", "cluster", "committed"
    ):
        found.setdefault(flavor, {})[cluster] = gpus
    return found


def accounts_of(pool: Pool) -> list[str]:
    """Slugs of the accounts that a pool is there for."""
    if pool.account is not None:
        return [pool.account.slug]
    return list(pool.shares.values_list("account__slug", flat=True))
