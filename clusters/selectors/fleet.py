"""Clusters for pages and API: health in one row each, and one cluster with all that is on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import yaml
from django.db.models import Count, QuerySet
from django.utils import timezone

from budgets.errors import NotAllowed
from budgets.models import Operation, User
from budgets.selectors import roles_of
from clusters.kueue.multikueue_settings import DispatchSettings
from clusters.models import Cluster, ClusterHealth, Drift, ObjectState, ShiftRun
from clusters.selectors.guard import IncidentRow, NominationRow, incidents_on, nomination_of
from clusters.selectors.previews import ManifestChange

LOST_AFTER = timedelta(seconds=20)
"""Health that nobody wrote for so long says nothing about now."""
DRIFTS_SHOWN = 50
_GROUPS = {
    "cluster": "Cluster",
    "flavor": "Flavor",
    "pool": "Platform pool",
    "account": "Account",
    "budget": "Budget",
}
_TROUBLE = {ObjectState.State.DRIFTED, ObjectState.State.FAILED, ObjectState.State.FOREIGN}


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


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """One object of the tree."""

    kind: str
    namespace: str
    name: str
    state: str
    message: str
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class TreeGroup:
    """The objects that one subject becomes."""

    title: str
    subject: str
    objects: tuple[ObjectRow, ...]

    @property
    def has_trouble(self) -> bool:
        """Whether one of them needs a look."""
        return any(row.state in _TROUBLE for row in self.objects)


@dataclass(frozen=True, slots=True)
class DriftRow:
    """One field that somebody else changed."""

    kind: str
    namespace: str
    name: str
    field: str
    wanted: Any
    found: Any
    manager: str
    noticed_at: datetime
    resolved_at: datetime | None
    resolution: str


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One line of the last preflight: ``state`` is ok, warn or fault."""

    name: str
    state: str
    found: str
    advice: str


@dataclass(frozen=True, slots=True)
class StoredPreflight:
    """The last preflight; ``checked_at`` None when none has run."""

    checked_at: datetime | None
    rows: tuple[StoredRow, ...]
    modes_on_offer: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShiftRow:
    """Who works on one role of a cluster."""

    role: str
    holder: str
    heartbeat_at: datetime
    is_alive: bool
    outcome: str


@dataclass(frozen=True, slots=True)
class ClusterDetail:
    """One cluster; nothing of its credential but what may be seen."""

    row: ClusterRow
    server: str
    context: str
    user_kind: str
    ca_fingerprint: str
    drift_policy: str
    guard: str
    allows_local_jobs: bool
    multikueue_token_expires_at: datetime | None
    kueue_configuration: Mapping[str, Any]
    dispatch: DispatchSettings | None
    tree: tuple[TreeGroup, ...]
    drifts: tuple[DriftRow, ...]
    preflight: StoredPreflight
    shifts: tuple[ShiftRow, ...]
    planned: tuple[ManifestChange, ...] = field(default=())
    under_way: tuple[Operation, ...] = field(default=())
    nomination: NominationRow | None = None
    incidents: tuple[IncidentRow, ...] = field(default=())


def visible_clusters(user: User) -> QuerySet[Cluster]:
    """Registered clusters, for people who see the platform; nothing for others."""
    found = Cluster.objects.exclude(state=Cluster.State.REMOVED).order_by(
        "role", "position", "slug"
    )
    return found if roles_of(user).sees_everything else found.none()


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
    if not roles_of(user).sees_everything:
        raise NotAllowed("Clusters are shown to platform roles.")
    rows = visible_clusters(user).defer("kubeconfig_sealed", "multikueue_kubeconfig_sealed")
    return _rows(rows.select_related("health"))


def cluster_detail(user: User, slug: str) -> ClusterDetail:
    """One cluster with its objects, drifts, preflight and shifts. A bounded number of queries.

    Raises:
        Cluster.DoesNotExist: it is not there, or not for this user.
    """
    cluster = (
        visible_clusters(user)
        .defer("kubeconfig_sealed", "multikueue_kubeconfig_sealed")
        .select_related("health")
        .get(slug=slug)
    )
    states = list(cluster.object_states.all())
    return ClusterDetail(
        row=_rows([cluster])[0],
        server=cluster.server,
        context=cluster.context,
        user_kind=cluster.user_kind,
        ca_fingerprint=cluster.ca_fingerprint,
        drift_policy=cluster.drift_policy,
        guard=cluster.guard,
        allows_local_jobs=cluster.allows_local_jobs,
        multikueue_token_expires_at=cluster.multikueue_token_expires_at,
        kueue_configuration=cluster.kueue_configuration,
        dispatch=_dispatch(cluster),
        tree=_tree(states),
        drifts=tuple(_drifts(cluster)),
        preflight=_preflight(cluster.preflight),
        shifts=tuple(_shifts(cluster)),
        planned=() if cluster.writes_enabled else tuple(_planned(states)),
        under_way=tuple(
            Operation.objects.filter(
                subject=f"cluster:{cluster.slug}", state=Operation.State.RUNNING
            ).order_by("created_at")
        ),
        nomination=nomination_of(cluster),
        incidents=incidents_on(cluster),
    )


def _dispatch(cluster: Cluster) -> DispatchSettings | None:
    """How a manager dispatches; None on workers, and where what is stored cannot be read."""
    if not cluster.is_manager:
        return None
    try:
        return DispatchSettings.from_document(cluster.kueue_configuration)
    except ValueError:
        return None


def _rows(clusters: Iterable[Cluster]) -> list[ClusterRow]:
    found = list(clusters)
    keys = [cluster.pk for cluster in found]
    states: dict[int, Counter[str]] = {}
    for cluster_id, state, count in (
        ObjectState.objects.filter(cluster__in=keys)
        .order_by()
        .values_list("cluster", "state")
        .annotate(count=Count("pk"))
    ):
        states.setdefault(cluster_id, Counter())[state] = count
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
    return [
        _row(cluster, states.get(cluster.pk, Counter()), drifts, ages, now) for cluster in found
    ]


def _row(
    cluster: Cluster,
    states: Counter[str],
    drifts: Mapping[int, int],
    ages: Mapping[int, int | None],
    now: datetime,
) -> ClusterRow:
    health = getattr(cluster, "health", None) or ClusterHealth(cluster=cluster)
    is_fresh = health.checked_at is not None and now - health.checked_at < LOST_AFTER
    message = health.message
    if not is_fresh:
        message = "Nobody has asked this cluster lately: is a worker of the portal running?"
    return ClusterRow(
        slug=cluster.slug,
        name=cluster.name,
        role=cluster.role,
        mode=cluster.mode,
        mode_label=cluster.get_mode_display(),
        state=cluster.state,
        is_reachable=health.reachable and is_fresh,
        message=message,
        last_contact_at=health.last_contact_at,
        lost_since=health.lost_since,
        kubernetes_version=health.kubernetes_version,
        kueue_version=health.kueue_version,
        latency_ms=health.latency_ms,
        clock_skew_s=health.clock_skew_s,
        drift_count=drifts.get(cluster.pk, 0),
        object_count=sum(states.values()),
        synced_count=states[ObjectState.State.SYNCED],
        failed_count=states[ObjectState.State.FAILED] + states[ObjectState.State.FOREIGN],
        certificate_expires_at=cluster.certificate_expires_at,
        multikueue_active=health.multikueue_active,
        multikueue_message=health.multikueue_message,
        watch_age_s=ages.get(cluster.pk),
        writes_enabled=cluster.writes_enabled,
        blocked_reason=cluster.blocked_reason,
    )


def _tree(states: Iterable[ObjectState]) -> tuple[TreeGroup, ...]:
    groups: dict[str, list[ObjectRow]] = {}
    for state in states:
        row = ObjectRow(
            state.kind, state.namespace, state.name, state.state, state.message, state.changed_at
        )
        groups.setdefault(state.subject, []).append(row)
    order = list(_GROUPS)

    def rank(subject: str) -> tuple[int, str]:
        kind = subject.partition(":")[0]
        return order.index(kind) if kind in _GROUPS else len(order), subject

    return tuple(
        TreeGroup(_title(subject), subject, tuple(groups[subject]))
        for subject in sorted(groups, key=rank)
    )


def _title(subject: str) -> str:
    kind, _, name = subject.partition(":")
    return f"{_GROUPS[kind]} {name}" if kind in _GROUPS else subject or "Other"


def _drifts(cluster: Cluster) -> Iterable[DriftRow]:
    """Those that stand first, then the newest of the others."""
    rows = list(cluster.drifts.all()[:DRIFTS_SHOWN])
    for row in sorted(rows, key=lambda drift: drift.resolved_at is not None):
        yield DriftRow(
            kind=row.kind,
            namespace=row.namespace,
            name=row.name,
            field=row.field or "the whole object",
            wanted=row.wanted,
            found=row.found,
            manager=row.manager,
            noticed_at=row.noticed_at,
            resolved_at=row.resolved_at,
            resolution=row.resolution,
        )


def _preflight(stored: Mapping[str, Any]) -> StoredPreflight:
    if not stored:
        return StoredPreflight(None, (), ())
    return StoredPreflight(
        checked_at=datetime.fromisoformat(stored["checked_at"]),
        rows=tuple(StoredRow(**row) for row in stored["rows"]),
        modes_on_offer=tuple(stored["modes_on_offer"]),
    )


def _shifts(cluster: Cluster) -> Iterable[ShiftRow]:
    now = timezone.now()
    for run in cluster.shifts.order_by("role"):
        yield ShiftRow(run.role, run.holder, run.heartbeat_at, run.is_alive(now=now), run.outcome)


def _planned(states: Iterable[ObjectState]) -> Iterable[ManifestChange]:
    for state in states:
        if state.would is None:
            continue
        changes = "; ".join(
            f"{change['field'] or 'the object'}: {change['found']} → {change['wanted']}"
            for change in state.would["changes"]
        )
        document = state.would.get("document")
        yield ManifestChange(
            kind=state.kind,
            name=f"{state.namespace}/{state.name}" if state.namespace else state.name,
            words=f"{state.would['action']} {changes}".strip(),
            yaml=yaml.safe_dump(document, sort_keys=False) if document else "",
        )
