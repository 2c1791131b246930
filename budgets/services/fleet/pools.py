"""What GPUs there are, as admins state them, and quota that is nobody's alone: pools.

Pools are those of accounts and of the platform; ``measured`` has what nodes say there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q

from budgets.announcements import Work, announce
from budgets.errors import Fault, NotAllowed
from budgets.models import (
    Account,
    Capacity,
    CapacityWatch,
    Discrepancy,
    Flavor,
    MeasuredCapacity,
    Pool,
    PoolAmount,
    PoolShare,
    User,
)
from budgets.models.base import dns_label
from budgets.plan import (
    MOST_GPUS,
    DatedGpus,
    check_fleet,
    check_pool_envelope,
    is_whole_gpus,
)
from budgets.selectors import fleet_timeline, told_to
from budgets.selectors.budget.future import pool_splits
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit, state_of
from budgets.services.billing.discrepancies import end_discrepancies
from budgets.services.budget.in_force import accounts_of, generations_follow, lock_pool, settle_pool
from budgets.services.guards import by_admin, lock_flavors, require_reason, roles_for, save_checked


@by_admin
def set_capacity(
    actor: User | None,
    *,
    cluster: str,
    flavor: Flavor,
    gpus: int,
    valid_from: datetime | None = None,
    valid_until: datetime | None = None,
    reason: str = "",
) -> Capacity:
    """State the GPUs of a flavor on a worker; wins over the measured number while it holds.

    A number below what is promised is accepted: it is a fact, and the fleet page shows it.

    Args:
        actor: Only the portal itself may date back.
        cluster: Worker slug.
        flavor: The flavor.
        gpus: Whole GPUs, at least 0.
        valid_from: UTC; None for now, never in the past but for the portal itself.
        valid_until: UTC, exclusive, such as the end of a maintenance; None for no end.
        reason: Why, kept with the row.
    """
    lock_flavors([flavor.slug])
    now = utc_now()
    faults = window_faults(valid_from, valid_until, now=now, is_portal=actor is None)
    try:
        dns_label(cluster)
    except ValidationError as error:
        faults.append(Fault("cluster", "invalid", " ".join(error.messages)))
    row = Capacity(
        cluster=cluster,
        flavor=flavor,
        gpus=gpus,
        valid_from=valid_from or now,
        valid_until=valid_until,
        reason=reason[:200],
    )
    save_checked(row, also=faults)
    audit(
        actor,
        "capacity.set",
        flavor,
        cluster=cluster,
        reason=reason,
        after=state_of(row, "gpus", "valid_from"),
    )
    return row


@by_admin
def retire_capacity(actor: User | None, *, cluster: str, reason: str) -> int:
    """End everything stated for a cluster and forget what was measured there.

    Returns:
        How many stated rows were ended.
    """
    require_reason(reason)
    now = utc_now()
    open_rows = Capacity.objects.filter(
        Q(valid_until__isnull=True) | Q(valid_until__gt=now), cluster=cluster
    )
    ended = open_rows.filter(valid_from__lt=now).update(valid_until=now)
    scheduled, _ = Capacity.objects.filter(cluster=cluster, valid_from__gte=now).delete()
    MeasuredCapacity.objects.filter(cluster=cluster).delete()
    CapacityWatch.objects.filter(cluster=cluster).delete()
    # Nobody looks there any more, so nothing of it can be said to go on.
    end_discrepancies(Discrepancy.objects.filter(cluster=cluster), at=now)
    audit(
        actor,
        "capacity.retire",
        f"cluster:{cluster}",
        cluster=cluster,
        reason=reason,
        after={"rows": ended + scheduled},
    )
    return ended + scheduled


def window_faults(
    valid_from: datetime | None,
    valid_until: datetime | None,
    *,
    now: datetime,
    is_portal: bool = False,
) -> list[Fault]:
    """What is wrong with the window of a stated number or a pool's amount.

    Only the portal itself may date back: what it imports was so before it was told.
    """
    faults = [
        Fault(name, "not_whole_seconds", "Give a time with its time zone, in whole seconds.")
        for name, instant in (("valid_from", valid_from), ("valid_until", valid_until))
        if instant is not None and (instant.tzinfo is None or instant.microsecond)
    ]
    if faults:
        return faults
    if valid_from is not None and valid_from < now and not is_portal:
        words = "The start is in the past; leave it empty to start now."
        faults.append(Fault("valid_from", "valid_from_past", words))
    if valid_until is not None and valid_until <= (valid_from or now):
        faults.append(Fault("valid_until", "empty_window", "The end has to be after the start."))
    return faults


NEWEST = 2**62


@by_admin
def create_pool(
    actor: User | None, *, slug: str, name: str, account: Account | None = None
) -> Pool:
    """Add an account's own pool, or a platform pool that several accounts draw on."""
    pool = Pool(slug=slug, name=name, account=account)
    faults = []
    if account is not None and account.archived_at is not None:
        faults.append(Fault("account", "archived_account", "The account is archived."))
    save_checked(pool, also=faults)
    announce(Work.SYNC)
    audit(actor, "pool.create", pool)
    return pool


@transaction.atomic
def set_pool_amount(
    actor: User | None,
    *,
    pool: Pool,
    flavor: Flavor,
    gpus: int,
    valid_from: datetime | None = None,
    valid_until: datetime | None = None,
) -> PoolAmount:
    """Say how many GPUs of a flavor a pool holds, from now or later.

    An account's owner may do it within the account's envelope, a platform pool is an admin's.

    Raises:
        Rejected: Beyond the envelope or the fleet at some instant, or nowhere to stand now.
    """
    roles = roles_for(actor)
    if not roles.is_admin and pool.account_id not in roles.owned_accounts:
        raise NotAllowed("Only an admin, or the owner of the pool's account, can change a pool.")
    row = lock_pool(pool.pk, flavors=[flavor.slug])
    now = utc_now()
    faults = window_faults(valid_from, valid_until, now=now, is_portal=actor is None)
    amount = PoolAmount(
        pool=row, flavor=flavor, gpus=gpus, valid_from=valid_from or now, valid_until=valid_until
    )
    if not faults and isinstance(gpus, int) and gpus >= 0:
        faults += told_to(roles, _fit_faults(row, flavor, amount, now=now))
    save_checked(amount, also=faults)
    settle_pool(row, now=now)
    audit(
        actor,
        "pool.set_amount",
        row,
        after={"flavor": flavor.slug, **state_of(amount, "gpus", "valid_from")},
    )
    return amount


@by_admin
def set_pool_share(
    actor: User | None, *, pool: Pool, account: Account, limits: Mapping[str, int]
) -> PoolShare:
    """Let an account draw on a platform pool.

    Args:
        actor: Who allows it.
        pool: A platform pool.
        account: Draws on one platform pool at most; this moves it.
        limits: flavor slug -> most GPUs; an absent flavor means all of it.
    """
    faults = []
    if not pool.is_platform:
        faults.append(Fault("pool", "not_platform", "An account's own pool cannot be shared."))
    known = set(Flavor.objects.values_list("slug", flat=True))
    for flavor, gpus in limits.items():
        if flavor not in known:
            words = f"There is no flavor {flavor!r}."
            faults.append(Fault(f"limits.{flavor}", "unknown_flavor", words))
        elif not is_whole_gpus(gpus):
            words = f"The limit of {flavor} is not a number of whole GPUs from 0 to {MOST_GPUS:,}."
            faults.append(Fault(f"limits.{flavor}", "not_whole_gpus", words))
    lock_pool(pool.pk)
    share = PoolShare.objects.select_for_update().filter(account=account).first()
    before = {} if share is None else {"pool": share.pool.slug, "limits": share.limits}
    with generations_follow(account.slug):
        share = share or PoolShare(account=account)
        share.pool, share.limits = pool, dict(limits)
        save_checked(share, also=faults)
    audit(
        actor,
        "pool.set_share",
        pool,
        account=account,
        before=before,
        after={"limits": dict(limits)},
    )
    return share


@by_admin
def remove_pool_share(actor: User | None, *, share: PoolShare) -> None:
    """Take an account away from its platform pool; what runs there goes on."""
    with generations_follow(share.account.slug):
        PoolShare.objects.filter(pk=share.pk).delete()
    audit(
        actor,
        "pool.remove_share",
        share.pool,
        account=share.account,
        before={"limits": share.limits},
    )


@by_admin
def archive_pool(actor: User | None, *, pool: Pool, reason: str) -> Pool:
    """Put a pool away; its quota is gone from now on and its accounts draw on nothing."""
    require_reason(reason)
    row = lock_pool(pool.pk)
    with generations_follow(*accounts_of(row)):
        row.shares.all().delete()
        row.allocations.all().delete()
        row.in_force = {}
        row.archived_at = utc_now()
        row.save(update_fields=["in_force", "archived_at"])
    audit(actor, "pool.archive", row, reason=reason)
    return row


def _fit_faults(pool: Pool, flavor: Flavor, amount: PoolAmount, *, now: datetime) -> list[Fault]:
    """Envelope, fleet at every instant, and room on the workers when it begins now."""
    before = fleet_timeline(now, flavors=[flavor.slug])
    after = replace(
        before,
        pool_amounts=(
            *before.pool_amounts,
            DatedGpus(
                pool.slug, flavor.slug, amount.gpus, amount.valid_from, amount.valid_until, NEWEST
            ),
        ),
        pool_accounts={
            **before.pool_accounts,
            pool.slug: pool.account.slug if pool.account is not None else None,
        },
    )
    start, end, fields = amount.valid_from, amount.valid_until, {flavor.slug: "gpus"}
    faults = [*check_fleet(after, start=start, end=end, before=before, fields=fields)]
    stood = pool.in_force.get(flavor.slug, 0)
    if pool.account is not None and amount.gpus > stood:
        faults += check_pool_envelope(
            after, account=pool.account.slug, flavor=flavor.slug, gpus=amount.gpus, field="gpus"
        )
    if not faults and amount.valid_from <= now:
        parts = pool.allocations.filter(flavor=flavor).values_list("cluster", "gpus")
        stood_on = {(flavor.slug, cluster): gpus for cluster, gpus in parts}
        splits = pool_splits({flavor.slug: amount.gpus}, stood_on, now, field="gpus")
        faults += [split.fault for split in splits.values() if split.fault is not None]
    return faults
