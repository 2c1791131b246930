"""Windows of maintenance: what they cover, which floors stand there, what was not given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, F, Prefetch, Q, QuerySet, Sum

from budgets.models import Allocation, Flavor, User, Workspace
from budgets.selectors import free_rooms, roles_of, utc_now
from budgets.selectors.roles import workspaces_of
from clusters.models import Cluster, MaintenanceFloor, MaintenanceWindow, WorkloadState
from clusters.selectors.bars import HOLDING

State = MaintenanceWindow.State
OPEN = (State.SCHEDULED, State.ACTIVE)
# How long a window stays in lists after its end, and how early an owner is told of one.
SHOWN_AFTER = timedelta(days=30)
TOLD_BEFORE = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class FloorAtStake:
    """What of one workspace's floor stands where a window is.

    Attributes:
        gpus: Of the floor, in the covered places; whole GPUs.
        committed: The whole floor of the flavor.
        gpu_seconds: ``gpus`` for the length of the window: what cannot be delivered there.
        jobs: That run in the covered places now.
        job_gpus: GPUs that they hold.
    """

    workspace: Workspace
    flavor: Flavor
    gpus: int
    committed: int
    gpu_seconds: int
    jobs: int
    job_gpus: int


@dataclass(frozen=True, slots=True)
class WindowPreview:
    """What a window would mean, before it is saved.

    Attributes:
        rows: By workspace and flavor.
        elsewhere: Flavor slug → GPUs on other workers that are promised to nobody.
        overlapping: Open windows that cover some of the same places at the same time.
        jobs: That run there now, with a floor there or without.
    """

    rows: tuple[FloorAtStake, ...]
    elsewhere: dict[str, int]
    overlapping: tuple[MaintenanceWindow, ...]
    jobs: int

    @property
    def overlapping_ids(self) -> list[int]:
        """Keys of the windows that overlap."""
        return [window.pk for window in self.overlapping]

    @property
    def gpu_seconds(self) -> int:
        """Of the floor, that cannot be delivered there."""
        return sum(row.gpu_seconds for row in self.rows)


@dataclass(frozen=True, slots=True)
class WorkerAtStake:
    """What stands and runs on one worker now.

    Attributes:
        floor: Committed GPUs that stand there.
        workspaces: That they are promised to.
        jobs: That hold GPUs there.
        job_gpus: GPUs that they hold.
    """

    floor: int
    workspaces: int
    jobs: int
    job_gpus: int


def worker_at_stake(slug: str) -> WorkerAtStake:
    """What goes when a worker goes; for admins. Five queries."""
    floors = floors_at_stake((slug,), None, seconds=0)
    jobs = WorkloadState.objects.filter(cluster__slug=slug, phase__in=HOLDING, gpu_total__gt=0)
    held = jobs.aggregate(jobs=Count("pk"), gpus=Sum("gpu_total"))
    return WorkerAtStake(
        floor=sum(row.gpus for row in floors),
        workspaces=len({row.workspace.pk for row in floors}),
        jobs=held["jobs"],
        job_gpus=held["gpus"] or 0,
    )


def covered_workers(cluster: Cluster | None) -> tuple[str, ...]:
    """Slugs of the clusters that a window covers, of those where jobs run."""
    if cluster is not None:
        return (cluster.slug,)
    rows = Cluster.objects.active().running_jobs().order_by("position", "slug")
    return tuple(rows.values_list("slug", flat=True))


def preview_window(
    *, cluster: Cluster | None, flavor: Flavor | None, starts_at: datetime, ends_at: datetime
) -> WindowPreview:
    """What a window over a worker, a flavor, or both would mean to whom; seven queries at most.

    For admins: it names every workspace. Floors are those in force now.
    """
    rows = floors_at_stake(
        covered_workers(cluster), flavor, seconds=int((ends_at - starts_at).total_seconds())
    )
    others = MaintenanceWindow.objects.filter(
        state__in=OPEN, starts_at__lt=ends_at, ends_at__gt=starts_at
    ).select_related("cluster", "flavor")
    if cluster is not None:
        others = others.filter(Q(cluster=cluster) | Q(cluster__isnull=True))
    if flavor is not None:
        others = others.filter(Q(flavor=flavor) | Q(flavor__isnull=True))
    jobs = _jobs_on(covered_workers(cluster), flavor)
    return WindowPreview(rows, _room_elsewhere(cluster, rows), tuple(others), jobs)


def floors_at_stake(
    workers: Iterable[str], flavor: Flavor | None, *, seconds: int
) -> tuple[FloorAtStake, ...]:
    """Floors in force that stand on these workers, the largest first. Four queries."""
    places = tuple(workers)
    parts = Allocation.objects.filter(
        line__revision__budget__in_force=F("line__revision"),
        line__revision__budget__workspace__archived_at__isnull=True,
        cluster__in=places,
        committed__gt=0,
    )
    if flavor is not None:
        parts = parts.filter(line__flavor=flavor)
    summed = list(
        parts.order_by()
        .values_list("line__revision__budget__workspace", "line__flavor", "line__committed")
        .annotate(gpus=Sum("committed"))
    )
    spaces = Workspace.objects.select_related("account").in_bulk({row[0] for row in summed})
    flavors = Flavor.objects.in_bulk({row[1] for row in summed})
    held = _held_on(places)
    rows = []
    for workspace_id, flavor_id, committed, gpus in summed:
        workspace, found = spaces[workspace_id], flavors[flavor_id]
        jobs, job_gpus = held.get((workspace.namespace, found.slug), (0, 0))
        rows.append(FloorAtStake(workspace, found, gpus, committed, gpus * seconds, jobs, job_gpus))
    return tuple(sorted(rows, key=lambda row: (-row.gpus, row.workspace.namespace)))


def visible_windows(user: User) -> list[MaintenanceWindow]:
    """Open windows and those of the last month, in order of time, each with its ``floors``.

    Platform roles see all; others those that touch a floor of theirs, with their own floors only.
    Three queries.
    """
    is_recent = Q(state__in=OPEN) | Q(ends_at__gte=utc_now() - SHOWN_AFTER)
    return list(_visible(user).filter(is_recent).order_by("starts_at", "pk"))


def windows_over(user: User, slug: str) -> list[MaintenanceWindow]:
    """Open windows that cover a worker, or something on every worker, each with its ``floors``."""
    covers = Q(cluster__slug=slug) | Q(cluster__isnull=True)
    return list(_visible(user).filter(covers, state__in=OPEN).order_by("starts_at", "pk"))


def window_for(user: User, key: int) -> MaintenanceWindow:
    """One window with the floors that the viewer may see.

    Raises:
        MaintenanceWindow.DoesNotExist: It is not there, or touches nothing of this user's.
    """
    return _visible(user).get(pk=key)


def windows_of(workspace: Workspace) -> list[MaintenanceFloor]:
    """What of a workspace's floor stands under windows in force or soon. One query.

    The caller has found the workspace through a selector that checks who may see it.
    """
    is_soon = Q(window__state=State.ACTIVE) | Q(
        window__state=State.SCHEDULED, window__starts_at__lt=utc_now() + TOLD_BEFORE
    )
    rows = MaintenanceFloor.objects.filter(is_soon, workspace=workspace)
    return list(
        rows.select_related("window__cluster", "window__flavor", "flavor").order_by(
            "window__starts_at", "window", "flavor__slug"
        )
    )


def _visible(user: User) -> QuerySet[MaintenanceWindow]:
    roles = roles_of(user)
    floors = MaintenanceFloor.objects.select_related("workspace__account", "flavor").order_by(
        "-gpus", "workspace__namespace", "flavor__slug"
    )
    found = MaintenanceWindow.objects.select_related("cluster", "flavor", "author", "ended_by")
    if not roles.sees_everything:
        own = workspaces_of(roles).order_by().values("pk")
        floors = floors.filter(workspace__in=own)
        found = found.filter(
            pk__in=MaintenanceFloor.objects.filter(workspace__in=own).values("window")
        )
    return found.prefetch_related(Prefetch("floors", floors))


def _held_on(workers: Iterable[str]) -> dict[tuple[str, str], tuple[int, int]]:
    """(namespace, flavor slug) → jobs and GPUs that run on these workers."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    rows = WorkloadState.objects.filter(
        cluster__slug__in=list(workers), phase__in=HOLDING
    ).values_list("namespace", "gpus")
    for namespace, gpus in rows:
        for flavor, count in gpus.items():
            if flavor and count:
                jobs, held = found.get((namespace, flavor), (0, 0))
                found[namespace, flavor] = (jobs + 1, held + count)
    return found


def _jobs_on(workers: Iterable[str], flavor: Flavor | None) -> int:
    """Jobs that hold GPUs there, of any flavor where none is named. One query."""
    held = WorkloadState.objects.filter(cluster__slug__in=list(workers), phase__in=HOLDING)
    found = held.filter(gpu_total__gt=0).values_list("gpus", flat=True)
    return sum(flavor is None or bool(gpus.get(flavor.slug)) for gpus in found)


def _room_elsewhere(cluster: Cluster | None, rows: Sequence[FloorAtStake]) -> dict[str, int]:
    if cluster is None or not rows:
        return {}
    flavors = {row.flavor.slug for row in rows}
    rooms = free_rooms(utc_now(), flavors=flavors)
    return {
        flavor: sum(
            max(0, gpus) for worker, gpus in rooms.get(flavor, {}).items() if worker != cluster.slug
        )
        for flavor in sorted(flavors)
    }
