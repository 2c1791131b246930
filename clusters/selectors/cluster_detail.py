"""One cluster with all that is on it: objects, drifts, preflight, shifts, what would be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
import yaml
from django.core.paginator import Page, Paginator
from django.utils import timezone

from budgets.models import Operation, User
from budgets.records import record_of
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.models import Cluster, ObjectState, ShiftRun
from clusters.selectors.bars import HOLDING
from clusters.selectors.fleet import ClusterRow, rows_of, visible_clusters
from clusters.selectors.forecasts import ForecastsHeld, forecasts_held
from clusters.selectors.guard import IncidentRow, NominationRow, incidents_on, nomination_of
from clusters.selectors.previews import ManifestChange

DRIFTS_SHOWN = 50
OBJECTS_SHOWN = 100
_GROUPS = {
    "cluster": "Cluster",
    "topology": "Topology",
    "flavor": "Flavor",
    "pool": "Platform pool",
    "account": "Account",
    "budget": "Budget",
}
_TROUBLE = {ObjectState.State.DRIFTED, ObjectState.State.FAILED, ObjectState.State.FOREIGN}


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
class PreflightRow:
    """One thing that was looked at: ``state`` is ok, warn or fault; and what to do about it."""

    name: str
    state: str
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class StoredPreflight:
    """The last preflight; ``checked_at`` None when none has run."""

    checked_at: datetime | None = None
    rows: tuple[PreflightRow, ...] = ()
    modes_on_offer: tuple[str, ...] = ()
    kueue_crds: str = ""


@dataclass(frozen=True, slots=True)
class Leaving:
    """What still stands on a cluster that is being drained, and what keeps it there."""

    objects: int
    jobs: int
    trouble: str


@dataclass(frozen=True, slots=True)
class ShiftRow:
    """Who works on one role of a cluster, and what it has set aside: how many, and the newest."""

    role: str
    holder: str
    heartbeat_at: datetime
    is_alive: bool
    outcome: str
    parked: int = 0
    parked_says: str = ""

    @property
    def failure(self) -> str:
        """Why the last one ended that did not end well; empty while somebody works."""
        word, _, why = self.outcome.partition(": ")
        return why if word == "failed" and not self.is_alive else ""


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
    operators: Sequence[str]
    gpu_namespaces: Sequence[str] | None
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
    leaving: Leaving | None = None
    own_queue: str = ""
    forecasts: ForecastsHeld | None = None

    @property
    def is_own(self) -> bool:
        """Whether the portal signs in by its own service account: no credential is stored."""
        return self.user_kind == Cluster.OWN_ACCOUNT


def cluster_detail(user: User, slug: str, *, with_tree: bool = True) -> ClusterDetail:
    """One cluster with its objects, drifts, preflight and shifts. A bounded number of queries.

    Args:
        user: Who asks.
        slug: Of the cluster.
        with_tree: Its objects too, all of them; :func:`objects_of` has them page by page.

    Raises:
        Cluster.DoesNotExist: it is not there, or not for this user.
    """
    cluster = visible_clusters(user).without_secrets().select_related("health").get(slug=slug)
    states = cluster.object_states.all()
    row = rows_of([cluster])[0]
    return record_of(
        ClusterDetail,
        cluster,
        row=row,
        dispatch=_dispatch(cluster),
        tree=_tree(sorted(states, key=lambda row: _rank(row.subject))) if with_tree else (),
        drifts=tuple(_drifts(cluster)),
        preflight=msgspec.convert(cluster.preflight, StoredPreflight),
        shifts=tuple(shift_rows(cluster.shifts.order_by("role"))),
        planned=() if cluster.writes_enabled else tuple(_planned(states.exclude(would=None))),
        under_way=tuple(
            Operation.objects.filter(
                subject=f"cluster:{cluster.slug}", state=Operation.State.RUNNING
            ).order_by("created_at")
        ),
        nomination=nomination_of(cluster),
        incidents=incidents_on(cluster),
        forecasts=forecasts_held(cluster.slug),
        leaving=_leaving(cluster, row) if row.state == Cluster.State.DRAINING else None,
    )


def _leaving(cluster: Cluster, row: ClusterRow) -> Leaving:
    failed = cluster.object_states.filter(state=ObjectState.State.FAILED).order_by("-changed_at")
    trouble = failed.first() if row.is_reachable else None
    return Leaving(
        cluster.object_states.exclude(kind="Namespace").count(),  # namespaces stay for good
        cluster.workloads.filter(phase__in=HOLDING).count(),
        row.message if trouble is None else f"{trouble.kind} {trouble.path}: {trouble.message}",
    )


def _dispatch(cluster: Cluster) -> DispatchSettings | None:
    """How a manager dispatches; None on workers, and where what is stored cannot be read."""
    if not cluster.is_manager:
        return None
    try:
        return DispatchSettings.from_document(cluster.kueue_configuration)
    except ValueError:
        return None


def objects_of(user: User, slug: str, *, page: Any) -> Page[Any]:
    """A page of the tree of a cluster's objects; what needs a look comes first. Two queries.

    Args:
        user: Who asks; nothing is there for who does not see the cluster.
        slug: Of the cluster.
        page: Its number as it was typed; the first where that is none.

    Returns:
        A page of objects, whose list is the :class:`TreeGroup` that they are in; a group that does
        not fit goes on with the next page.
    """
    states = ObjectState.objects.filter(cluster__slug=slug, cluster__in=visible_clusters(user))
    keys = list(states.values_list("subject", "state", "pk"))
    troubled = {subject for subject, state, _ in keys if state in _TROUBLE}
    keys.sort(key=lambda key: (key[0] not in troubled, _rank(key[0])))
    ordered: Sequence[Any] = [pk for _, _, pk in keys]
    shown = Paginator(ordered, OBJECTS_SHOWN).get_page(page)
    found = states.in_bulk(shown.object_list)
    shown.object_list = _tree(found[pk] for pk in shown.object_list if pk in found)
    return shown


def _tree(states: Iterable[ObjectState]) -> tuple[TreeGroup, ...]:
    """The groups of objects, each where its first object is."""
    groups: dict[str, list[ObjectRow]] = {}
    for state in states:
        groups.setdefault(state.subject, []).append(record_of(ObjectRow, state))
    return tuple(
        TreeGroup(_title(subject), subject, tuple(rows)) for subject, rows in groups.items()
    )


def _rank(subject: str) -> tuple[int, str]:
    order = list(_GROUPS)
    kind = subject.partition(":")[0]
    return order.index(kind) if kind in _GROUPS else len(order), subject


def _title(subject: str) -> str:
    kind, _, name = subject.partition(":")
    return f"{_GROUPS[kind]} {name}" if kind in _GROUPS else subject or "Other"


def _drifts(cluster: Cluster) -> Iterable[DriftRow]:
    """Those that stand first, then the newest of the others."""
    rows = list(cluster.drifts.all()[:DRIFTS_SHOWN])
    for row in sorted(rows, key=lambda drift: drift.resolved_at is not None):
        yield record_of(DriftRow, row, field=row.field or "the whole object")


def shift_rows(runs: Iterable[ShiftRun]) -> Iterable[ShiftRow]:
    """One row each, in their order; the caller has asked whether they may be seen."""
    now = timezone.now()
    for run in runs:
        is_alive = run.is_alive(now=now)
        parked = (run.parked, run.parked_says) if is_alive else (0, "")
        yield ShiftRow(run.role, run.holder, run.heartbeat_at, is_alive, run.outcome, *parked)


def _planned(states: Iterable[ObjectState]) -> Iterable[ManifestChange]:
    for state in states:
        would: Any = state.would
        changes = "; ".join(
            f"{change['field'] or 'the object'}: {change['found']} → {change['wanted']}"
            for change in would["changes"]
        )
        document = would.get("document")
        yield ManifestChange(
            kind=state.kind,
            name=state.path,
            words=f"{would['action']} {changes}".strip(),
            yaml=yaml.safe_dump(document, sort_keys=False) if document else "",
        )
