"""Rotation of the keys that seal credentials."""

from __future__ import annotations

from django.db import transaction

from budgets import services as promises
from budgets.models import User
from budgets.services.guards import require_admin
from clusters.models import Cluster
from clusters.vault import reseal


@transaction.atomic
def reseal_credentials(actor: User | None) -> int:
    """Seal every stored credential with the newest key; all of them or none.

    Returns:
        How many clusters were resealed. After it, older keys can be taken away.

    Raises:
        NotAllowed: for everybody but an admin.
        SealBroken: one cannot be opened with any key.
    """
    require_admin(actor)
    count = 0
    for cluster in Cluster.objects.select_for_update().order_by("pk"):
        if not cluster.kubeconfig_sealed:
            continue
        cluster.kubeconfig_sealed = reseal(cluster.kubeconfig_sealed)
        if cluster.multikueue_kubeconfig_sealed:
            cluster.multikueue_kubeconfig_sealed = reseal(cluster.multikueue_kubeconfig_sealed)
        cluster.save(update_fields=["kubeconfig_sealed", "multikueue_kubeconfig_sealed"])
        count += 1
    promises.audit(actor, action="credentials.reseal", subject="clusters", after={"count": count})
    return count
