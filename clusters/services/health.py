"""Health of clusters that no shift is looking at."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from datetime import timedelta

import structlog
from django.utils import timezone

from clusters.credentials import connection_to
from clusters.errors import ClusterError
from clusters.kube.client import KubeClient
from clusters.kube.shares import IN_TASKS
from clusters.models import Cluster, ShiftRun
from clusters.reconcile.health import Contact, record_contact
from clusters.reconcile.identity import OtherCluster, confirm_uid, uid_of
from clusters.selectors.fleet import health_of, is_fresh

log = structlog.stdlib.get_logger(__name__)

FRESH = timedelta(seconds=8)
AT_ONCE, TIMEOUT_S = 20, 3.0


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
    due = [
        cluster
        for cluster in Cluster.objects.registered().select_related("health").order_by("slug")
        if not (cluster.pk in busy and is_fresh(health_of(cluster), now, within=FRESH))
    ]
    # Beside one another, each written down as it comes: one that answers a byte at a time keeps no
    # other waiting.
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="health") as pool:
        asked = {pool.submit(_probe, cluster): cluster for cluster in due}
        return {asked[each].slug: _told(asked[each], each) for each in as_completed(asked)}


def confirmed(slug: str, contact: Contact, uid: str) -> Contact:
    """A finding about the cluster of this UID; that it is another one, where it is."""
    try:
        confirm_uid(slug, uid)
    except OtherCluster as error:
        return Contact(contact.at, error)
    return contact


def _told(cluster: Cluster, answer: Future[tuple[Contact, str]]) -> bool:
    """Write down what a cluster answered; whether it did."""
    try:
        contact, uid = answer.result()
        if contact.error is None:
            contact = confirmed(cluster.slug, contact, uid)
        record_contact(cluster.pk, contact)
    except Exception:  # whatever one cluster's answer does, the next is asked
        log.exception("health_not_checked", cluster=cluster.slug)
        return False
    return contact.probe is not None


def _probe(cluster: Cluster) -> tuple[Contact, str]:
    """What it answers, and its UID; in a thread of its own, which touches no database."""
    try:
        to, share = connection_to(cluster.kubeconfig_sealed), IN_TASKS.of(cluster.slug)
        with KubeClient.from_connection(to, read_timeout_s=TIMEOUT_S, share=share) as client:
            contact = Contact(timezone.now(), probe=client.probe(timeout_s=TIMEOUT_S))
            return contact, uid_of(client)
    except ClusterError as error:
        return Contact(timezone.now(), error), ""
