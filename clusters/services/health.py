"""Health of clusters that no shift is looking at."""

from __future__ import annotations

from datetime import timedelta

import structlog
from django.utils import timezone

from clusters.errors import ClusterError
from clusters.kube.client import KubeClient
from clusters.models import Cluster, ShiftRun
from clusters.reconcile.health import Contact, record_contact
from clusters.reconcile.identity import confirm
from clusters.vault import SealBroken, unseal

log = structlog.stdlib.get_logger(__name__)

FRESH = timedelta(seconds=8)


def check_health() -> dict[str, bool]:
    """Probe the clusters whose health nobody has written lately.

    Returns:
        Slug → whether it answered, of those that were asked.
    """
    now = timezone.now()
    busy = {
        run.cluster_id
        for run in ShiftRun.objects.filter(role=ShiftRun.Role.QUOTA, ended_at__isnull=True)
        if run.is_alive(now=now)
    }
    asked: dict[str, bool] = {}
    rows = Cluster.objects.registered().select_related("health")
    for cluster in rows.order_by("slug"):
        health = getattr(cluster, "health", None)
        checked = None if health is None else health.checked_at
        if cluster.pk in busy and checked is not None and now - checked < FRESH:
            continue
        try:
            asked[cluster.slug] = _probe(cluster)
        except Exception:  # whatever one cluster's answer does, the next is asked
            log.exception("health_not_checked", cluster=cluster.slug)
            asked[cluster.slug] = False
    return asked


def _probe(cluster: Cluster) -> bool:
    try:
        with KubeClient.from_kubeconfig(unseal(cluster.kubeconfig_sealed)) as client:
            contact = Contact(timezone.now(), probe=client.probe(timeout_s=3.0))
            confirm(cluster.slug, client)
    except ClusterError as error:
        contact = Contact(timezone.now(), error)
    except SealBroken as error:
        contact = Contact(timezone.now(), ClusterError(str(error)))
    record_contact(cluster.pk, contact)
    return contact.probe is not None
