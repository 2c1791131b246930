"""Capacity as admins state it, where the fleet allows it: a flavor stands in one place."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from budgets import services as promises
from budgets.errors import Rejected
from budgets.models import Capacity, Flavor, User
from budgets.services.guards import lock_flavors, require_admin
from clusters.models import Cluster
from clusters.selectors.places import flavors_elsewhere


@transaction.atomic
def state_capacity(actor: User | None, *, cluster: str, flavor: Flavor, **window: Any) -> Capacity:
    """State the GPUs of a flavor on a cluster; see ``set_capacity`` for what else is given.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: the flavor stands in the fleet, or on another single cluster.
    """
    require_admin(actor)
    lock_flavors([flavor.slug])
    rows = Cluster.objects.active().only("slug", "name", "role", "own_queue")
    if flavor.slug in flavors_elsewhere(rows).get(cluster, ()):
        name = next((row.name for row in rows if row.slug == cluster), cluster)
        message = (
            f"{flavor.name} has GPUs elsewhere already, and {name} is not part of that fleet, so a "
            "budget's burst limit would count twice. Make another flavor for the GPUs here, with "
            "the same labels."
        )
        raise Rejected.because("flavor", "stands_elsewhere", message)
    return promises.set_capacity(actor, cluster=cluster, flavor=flavor, **window)
