"""Why one job waits, as the reader may see it, with the forecast; and who may ask what if."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone

from budgets.models import User, Workspace
from budgets.selectors import roles_of, visible_workspaces
from clusters.explaining.findings import Explained, explained
from clusters.forecasting import StartForecast
from clusters.models import Cluster, PendingReason, Question, ShiftRun, WorkloadState
from clusters.selectors.fleet import visible_clusters
from clusters.selectors.forecasts import start_forecast
from clusters.selectors.names import every_name, reader_names
from clusters.selectors.reasons import (
    Reasons,
    is_waiting,
    lost_workers,
    own_reason,
    places_of,
    read_reasons,
    stored_reasons,
    told,
)
from clusters.selectors.workloads import visible_state

# The shifts that keep an engine warm: one of the two works on a cluster, by its mode.
ENGINE_ROLES: Final = (ShiftRun.Role.ADMISSION, ShiftRun.Role.SHADOW)


@dataclass(frozen=True, slots=True)
class PlaceWhy:
    """Why a job waits on one cluster.

    Attributes:
        cluster: Slug; empty for who does not see clusters.
        words: The sentence, as the end of another.
        detail: The evidence; None where the cluster cannot be reached.
    """

    cluster: str
    words: str
    detail: Explained | None


@dataclass(frozen=True, slots=True)
class WhyPending:
    """Why a job waits.

    Attributes:
        sentence: For people; empty when the engine has not told anything yet.
        cluster: Slug of the cluster whose engine said it.
        detail: The evidence; None when only ``places`` have some.
        places: A job with quota and without a worker: worker by worker.
        since: Since when it is this reason.
        forecast: When it is likely to start; None when nothing is known of why it waits.
        is_stale: Nobody keeps the reason up to date: the cluster's shift is not at work.
    """

    sentence: str
    cluster: str
    detail: Explained | None = None
    places: tuple[PlaceWhy, ...] = ()
    since: datetime | None = None
    forecast: StartForecast | None = None
    is_stale: bool = False


def why_pending(user: User, cluster: str, uid: str) -> WhyPending | None:
    """Why a job waits, seen on a cluster; None for one that does not. Seventeen queries at most.

    Names, ids and numbers of others are not told.

    Raises:
        WorkloadState.DoesNotExist: It is not there, or not for this user.
    """
    state = visible_state(user, cluster, uid)
    if not is_waiting(state):
        return None
    reasons = stored_reasons([state])
    names = reader_names(user)
    lost = lost_workers([state])
    places = places_of(state, reasons, lost, names)
    row = own_reason(state, reasons)
    now = timezone.now()
    forecast = None
    if row is not None and not places:
        forecast = start_forecast(state, row.evidence, names, now=now)
    return WhyPending(
        sentence=told(state, reasons, lost, names),
        cluster=state.cluster.slug,
        detail=explained(row.evidence, names) if row and not places else None,
        places=tuple(
            PlaceWhy(
                place.cluster,
                place.words,
                explained(place.evidence, names) if place.evidence is not None else None,
            )
            for place in places
        ),
        since=row.since if row is not None else None,
        forecast=forecast,
        is_stale=_is_stale(state, reasons, now=now),
    )


def _is_stale(state: WorkloadState, reasons: Reasons, *, now: datetime) -> bool:
    """Whether a cluster that told a reason has no shift at work. One query."""
    clusters = {state.cluster.slug, *reasons.get((state.namespace, state.name), {})}
    rows = ShiftRun.objects.filter(
        cluster__slug__in=clusters, role__in=ENGINE_ROLES
    ).select_related("cluster")
    return not clusters <= {row.cluster.slug for row in rows if row.is_alive(now=now)}


@dataclass(frozen=True, slots=True)
class StoredWhy:
    """What is stored of a waiting Workload on one cluster, with every name."""

    cluster: str
    key: str
    since: datetime
    detail: Explained
    forecast: StartForecast | None


def stored_why(namespace: str, name: str) -> list[StoredWhy]:
    """Why a Workload, or the Workload of a job of that name, waits, on every cluster.

    For an operator's command on the server: nothing is hidden. Empty when nothing is stored.
    """
    jobs = WorkloadState.objects.filter(namespace=namespace, job_name=name).values("name")
    rows = PendingReason.objects.filter(Q(name=name) | Q(name__in=jobs), namespace=namespace)
    names = every_name()
    found = []
    for row in read_reasons(rows):
        states = WorkloadState.objects.select_related("cluster")
        state = states.filter(cluster__slug=row.cluster, uid=row.uid).first()
        found.append(
            StoredWhy(
                cluster=row.cluster,
                key=f"{row.namespace}/{row.name}",
                since=row.since,
                detail=explained(row.evidence, names),
                forecast=start_forecast(state, row.evidence, names, now=timezone.now())
                if state is not None
                else None,
            )
        )
    return found


def first_start(user: User, workspace: Workspace) -> StartForecast | None:
    """When the first job of a workspace's queue is likely to start, with budgets as they are.

    None where no job waits, and where nothing can be said of its start. Nineteen queries at most.

    Args:
        user: The reader; numbers of others are not told.
        workspace: One that they may see.
    """
    names, now = reader_names(user), timezone.now()
    space = workspace.namespace
    first = PendingReason.objects.filter(
        namespace=space, evidence__clusterQueue=space, evidence__position=1
    )
    waiting = WorkloadState.objects.select_related("cluster").filter(
        phase=WorkloadState.Phase.PENDING, is_remote_copy=False
    )
    for row in read_reasons(first):
        state = waiting.filter(cluster__slug=row.cluster, uid=row.uid).first()
        if state is not None:
            found = start_forecast(state, row.evidence, names, now=now)
            if found.earliest is not None:
                return found
    return None


def askable_workspaces(user: User) -> QuerySet[Workspace]:
    """Workspaces whose budget a user may change, and so ask about. One query besides theirs."""
    roles = roles_of(user)
    found = visible_workspaces(user)
    if roles.is_admin:
        return found
    owned = found.filter(account_id__in=roles.owned_accounts)
    return owned | found.filter(pk__in=roles.owned_workspaces)


def askable_about_nodes(user: User) -> QuerySet[Cluster]:
    """Clusters whose nodes the portal follows: it decides there, and jobs run there."""
    found = visible_clusters(user).filter(state=Cluster.State.ACTIVE, mode=Cluster.Mode.PORTAL)
    return found.running_jobs()


def questions_for(user: User, keys: Sequence[UUID]) -> list[Question]:
    """Questions of a user, any for an admin, in the order in which they are named.

    Who does not see clusters gets all that were asked together with one of them.

    Raises:
        Question.DoesNotExist: One is not there (they are kept for a day), or is somebody else's.
    """
    found = Question.objects.filter(kind=Question.Kind.WHAT_IF)
    if not roles_of(user).is_admin:
        found = found.filter(asked_by=user)
    rows = found.in_bulk(list(keys))
    if any(key not in rows for key in keys):
        raise Question.DoesNotExist
    if not roles_of(user).sees_everything:
        together = found.filter(created_at__in=[row.created_at for row in rows.values()])
        return list(together.order_by("created_at", "pk"))
    return [rows[key] for key in keys]
