"""What GPUs there are as admins state them; ``measured`` beside it has what nodes say."""

from __future__ import annotations

from datetime import datetime

from django.core.exceptions import ValidationError
from django.db.models import Q

from budgets.errors import Fault
from budgets.models import Capacity, CapacityWatch, Discrepancy, Flavor, MeasuredCapacity, User
from budgets.models.base import dns_label
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit, state_of
from budgets.services.billing.discrepancies import end_discrepancies
from budgets.services.guards import by_admin, lock_flavors, require_reason, save_checked


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
        Fault(name, "not_whole_seconds", "Give a time with its zone, in whole seconds.")
        for name, instant in (("valid_from", valid_from), ("valid_until", valid_until))
        if instant is not None and (instant.tzinfo is None or instant.microsecond)
    ]
    if faults:
        return faults
    if valid_from is not None and valid_from < now and not is_portal:
        words = "The beginning is in the past; leave it empty."
        faults.append(Fault("valid_from", "valid_from_past", words))
    if valid_until is not None and valid_until <= (valid_from or now):
        faults.append(Fault("valid_until", "empty_window", "The end is not after the beginning."))
    return faults
