"""Clusters for pages and API: which of them a person sees, and the health of each in one row."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Count, Exists, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Concat
from django.utils import timezone

from budgets.errors import NotAllowed
from budgets.models import MeterState, User
from budgets.records import record_of
from budgets.selectors import roles_of
from budgets.selectors.approvals import open_proposals
from clusters.credentials import ENDS_SOON
from clusters.kube.own_account import OwnAccountUnusable
from clusters.models import Cluster, ClusterHealth, Drift, ObjectState, ShiftRun, WorkloadState
from clusters.models.cluster import ClusterQuerySet
from clusters.vault import SealBroken

TAKE_BACK = "cluster.take_back"
LOST_AFTER = timedelta(seconds=20)
"""Health that nobody wrote for so long says nothing about now."""


_UNREADABLE: Final = {
    SealBroken.default_reason: "no key opens its credential",
    OwnAccountUnusable.default_reason: "the portal's own service account cannot be used",
}


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One cluster in one line; ages are the page's to compute."""

    slug: str
    name: str
    role: str
    mode: str
    mode_label: str
    state: str
    is_reachable: bool
    reason: str
    message: str
    last_contact_at: datetime | None
    lost_since: datetime | None
    kubernetes_version: str
    kueue_version: str
    latency_ms: int | None
    clock_skew_s: int | None
    drift_count: int
    object_count: int
    synced_count: int
    failed_count: int
    certificate_expires_at: datetime | None
    multikueue_active: str
    multikueue_message: str
    watch_age_s: int | None
    writes_enabled: bool
    blocked_reason: str
    runs_jobs: bool = True

    @property
    def unreadable(self) -> str:
        """Why it cannot be asked for want of a credential, for people; empty where it can."""
        return "" if self.is_reachable else _UNREADABLE.get(self.reason, "")

    @property
    def is_credential_ending(self) -> bool:
        """Whether people have to renew its credential now, or should have."""
        ends = self.certificate_expires_at
        return ends is not None and ends - timezone.now() < ENDS_SOON


def require_platform(user: User, what: str) -> None:
    """Let only people with a role for the whole platform see something.

    Raises:
        NotAllowed: for others.
    """
    if not roles_of(user).sees_everything:
        raise NotAllowed(f"Only people with a role for the whole platform can see {what}.")


def visible_clusters(user: User) -> ClusterQuerySet:
    """Registered clusters, for people who see the platform; nothing for others."""
    found = Cluster.objects.registered()
    return found if roles_of(user).sees_everything else found.none()


def removed_clusters(user: User) -> QuerySet[Cluster]:
    """Clusters that are registered no more and of which something is left; for platform admins.

    But for those that are or were managers, by whose words the use on workers is billed: none is
    ever taken back. Each has ``proposal``, the key of the one that waits to take it back, or None.
    """
    states = WorkloadState.objects.filter(cluster=OuterRef("pk"))
    meters = MeterState.objects.filter(cluster=OuterRef("slug"))
    found = Cluster.objects.filter(Exists(states) | Exists(meters), state=Cluster.State.REMOVED)
    subject = Concat(Value("cluster:"), OuterRef("slug"))
    waits = open_proposals().filter(deed=TAKE_BACK, subject=subject).values("pk")[:1]
    found = found.exclude(role=Cluster.Role.MANAGER)
    found = found.filter(own_queue=Cluster.OwnQueue.NONE).annotate(proposal=Subquery(waits))
    return found if roles_of(user).is_admin else found.none()


def lost_clusters(user: User) -> list[str]:
    """Slugs of visible clusters that do not answer, or that nobody asked lately. One query."""
    now = timezone.now()
    found = visible_clusters(user).without_secrets().select_related("health")
    return [row.slug for row in found if not answers(health_of(row), now)]


def cluster_names() -> dict[str, str]:
    """Slug → name, also of clusters that are registered no more. One query."""
    return dict(Cluster.objects.order_by().values_list("slug", "name"))


def cluster_for(user: User, slug: str) -> Cluster:
    """One visible cluster.

    Raises:
        Cluster.DoesNotExist: it is not there, or not for this user.
    """
    return visible_clusters(user).get(slug=slug)


def cluster_rows(user: User) -> list[ClusterRow]:
    """All clusters, manager first. A bounded number of queries.

    Raises:
        NotAllowed: for people who do not see the platform.
    """
    require_platform(user, "clusters")
    return rows_of(visible_clusters(user).without_secrets().select_related("health"))


def rows_of(clusters: Iterable[Cluster]) -> list[ClusterRow]:
    """One row each, in their order; the caller has asked whether they may be seen."""
    found = list(clusters)
    keys = [cluster.pk for cluster in found]
    states: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for cluster_id, state, count in (
        ObjectState.objects.filter(cluster__in=keys)
        .order_by()
        .values_list("cluster", "state")
        .annotate(count=Count("pk"))
    ):
        states[cluster_id][state] = count
    drifts = dict(
        Drift.objects.filter(cluster__in=keys, resolved_at=None)
        .order_by()
        .values_list("cluster")
        .annotate(count=Count("pk"))
    )
    ages = dict(
        ShiftRun.objects.filter(
            cluster__in=keys, role=ShiftRun.Role.QUOTA, ended_at=None
        ).values_list("cluster", "watch_age_s")
    )
    now = timezone.now()
    return [_row(cluster, states[cluster.pk], drifts, ages, now) for cluster in found]


def _row(
    cluster: Cluster,
    states: Counter[str],
    drifts: Mapping[int, int],
    ages: Mapping[int, int | None],
    now: datetime,
) -> ClusterRow:
    health = health_of(cluster)
    message = health.message
    if not is_fresh(health, now):
        message = (
            "The portal has not asked this cluster lately. Check that a worker of the portal is "
            "running."
        )
    return record_of(
        ClusterRow,
        cluster,
        health,
        mode_label=cluster.get_mode_display(),
        is_reachable=answers(health, now),
        message=message,
        drift_count=drifts.get(cluster.pk, 0),
        object_count=sum(states.values()),
        synced_count=states[ObjectState.State.SYNCED],
        failed_count=states[ObjectState.State.FAILED] + states[ObjectState.State.FOREIGN],
        watch_age_s=ages.get(cluster.pk),
    )


def health_of(cluster: Cluster) -> ClusterHealth:
    """What its last contact showed; nothing yet where there was none."""
    return getattr(cluster, "health", None) or ClusterHealth(cluster=cluster)


def is_fresh(health: ClusterHealth, now: datetime, *, within: timedelta = LOST_AFTER) -> bool:
    """Whether somebody asked it so short a time ago."""
    return health.checked_at is not None and now - health.checked_at < within


def answers(health: ClusterHealth, now: datetime) -> bool:
    """Whether it answered when somebody asked lately."""
    return health.reachable and is_fresh(health, now)
