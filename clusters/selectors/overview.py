"""The clusters as an admin finds them in the morning: health, shifts, parked keys, drift of today.

Only counts and the newest words of each; the page of a cluster has the rest.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, QuerySet
from django.utils import timezone

from budgets.models import User
from clusters.models import Drift, GuardIncident, ShiftRun, WorkloadState
from clusters.selectors.bars import HOLDING, IS_HELD, IS_WAITING
from clusters.selectors.cluster_detail import ShiftRow, shift_rows
from clusters.selectors.fleet import ClusterRow, cluster_rows, require_platform

SHIFT_GAP = timedelta(minutes=1)
"""For so long nobody may work on a role without a word: one shift ends, the next begins."""
Phase = WorkloadState.Phase


@dataclass(frozen=True, slots=True)
class ClusterToday:
    """One cluster.

    Attributes:
        row: Its health.
        shifts: One for each role, by name.
        idle: Of them, those that nobody works on for longer than the next one takes to begin.
        parked: Objects that shifts have set aside.
        parked_says: The newest word of one of these; empty when there is none.
        drift_today: Fields that somebody else changed today, put back or not.
        incidents: Defects of Kueue that stand, on this manager.
    """

    row: ClusterRow
    shifts: tuple[ShiftRow, ...]
    idle: tuple[ShiftRow, ...]
    parked: int
    parked_says: str
    drift_today: int
    incidents: int


def clusters_today(user: User, *, since: datetime) -> list[ClusterToday]:
    """Every cluster, manager first. Seven queries however many there are.

    Args:
        user: Admin, finance or auditor.
        since: When the reader's day began; aware.

    Raises:
        NotAllowed: For people who do not see the platform.
    """
    rows = cluster_rows(user)
    now = timezone.now()
    runs: defaultdict[str, list[ShiftRun]] = defaultdict(list)
    for run in ShiftRun.objects.annotate(slug=F("cluster__slug")).order_by("role"):
        runs[run.slug].append(run)
    drifts = _by_cluster(Drift.objects.filter(noticed_at__gte=since))
    incidents = _by_cluster(GuardIncident.objects.filter(state=GuardIncident.State.OPEN))
    found = []
    for row in rows:
        shifts = tuple(shift_rows(runs[row.slug]))
        found.append(
            ClusterToday(
                row=row,
                shifts=shifts,
                idle=tuple(
                    shift
                    for shift in shifts
                    if not shift.is_alive and now - shift.heartbeat_at > SHIFT_GAP
                ),
                parked=sum(shift.parked for shift in shifts),
                parked_says=next((shift.parked_says for shift in shifts if shift.parked), ""),
                drift_today=drifts.get(row.slug, 0),
                incidents=incidents.get(row.slug, 0),
            )
        )
    return found


def job_counts(user: User) -> tuple[int, int]:
    """Jobs of the whole platform that wait, and that hold GPUs. One query.

    A job is counted once: copies that a manager made are left out.

    Raises:
        NotAllowed: For people who do not see the platform.
    """
    require_platform(user, "the jobs of all accounts")
    counts = WorkloadState.objects.filter(
        is_remote_copy=False, phase__in=(Phase.PENDING, *HOLDING)
    ).aggregate(waiting=Count("pk", filter=IS_WAITING), running=Count("pk", filter=IS_HELD))
    return counts["waiting"], counts["running"]


def _by_cluster(rows: QuerySet[Any]) -> dict[str, int]:
    counted = rows.order_by().values_list("cluster__slug").annotate(count=Count("pk"))
    return dict(counted)
