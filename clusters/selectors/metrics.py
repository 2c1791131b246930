"""What clusters and queues show to a monitoring system: families of numbers, read at a scrape.

Where the portal decides, what a queue has goes by the names and labels of Kueue as well
(``kueue_*``), so that boards that were made for a Kueue find the same here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from django.db.models import Count, Min

from budgets.models import Workspace
from budgets.selectors.metrics import Family, Number, age
from clusters.models import Cluster, DispatchRound, GuardIncident, ObjectState, ShiftRun
from clusters.selectors.bars import BudgetBar, bars_now, workload_counts
from clusters.selectors.fleet import ClusterRow, rows_of

GPU: Final = "nvidia.com/gpu"
_CLUSTER: Final = ("cluster",)
_BAR: Final = ("account", "workspace", "flavor")
_CLUSTER_NUMBERS: Final[Sequence[Number[ClusterRow]]] = (
    (
        "portal_cluster_reachable",
        "1 when the last contact succeeded a short time ago.",
        lambda x: x.is_reachable,
    ),
    (
        "portal_cluster_writes_enabled",
        "1 when the portal may write to the cluster.",
        lambda x: x.writes_enabled,
    ),
    (
        "portal_cluster_drift",
        "Fields of the portal's objects that somebody else changed.",
        lambda x: x.drift_count,
    ),
    (
        "portal_cluster_objects",
        "Objects that the portal wants or has on the cluster.",
        lambda x: x.object_count,
    ),
    (
        "portal_cluster_objects_failed",
        "Objects that the cluster refused or that belong to somebody else.",
        lambda x: x.failed_count,
    ),
    ("portal_cluster_objects_synced", "Objects that are as wanted.", lambda x: x.synced_count),
    (
        "portal_cluster_clock_skew_seconds",
        "By how many seconds the cluster's clock is wrong.",
        lambda x: x.clock_skew_s,
    ),
    (
        "portal_cluster_latency_seconds",
        "How long the cluster's last answer took.",
        lambda x: None if x.latency_ms is None else x.latency_ms / 1000,
    ),
    (
        "portal_cluster_credential_expiry_timestamp_seconds",
        "When the portal's credential for the cluster ends, if it says so.",
        lambda x: None if (ends := x.certificate_expires_at) is None else ends.timestamp(),
    ),
)
_BAR_NUMBERS: Final[Sequence[Number[BudgetBar]]] = (
    ("portal_budget_committed_gpus", "Committed GPUs.", lambda x: x.committed),
    ("portal_budget_ceiling_gpus", "The burst limit, in GPUs.", lambda x: x.ceiling),
    ("portal_budget_used_gpus", "GPUs that jobs hold.", lambda x: x.used),
    (
        "portal_budget_burst_used_gpus",
        "GPUs in burst: used beyond the committed GPUs.",
        lambda x: x.burst,
    ),
    ("portal_budget_lent_gpus", "Committed GPUs that other workspaces use.", lambda x: x.lent),
    ("portal_budget_pending_gpus", "GPUs that waiting jobs ask for.", lambda x: x.pending),
)
_KUEUE_NUMBERS: Final[Sequence[Number[BudgetBar]]] = (
    (
        "kueue_cluster_queue_nominal_quota",
        "Nominal quota of a queue, as Kueue shows it.",
        lambda x: x.committed,
    ),
    (
        "kueue_cluster_queue_borrowing_limit",
        "How much a queue may borrow, as Kueue shows it.",
        lambda x: max(0, x.ceiling - x.committed),
    ),
    (
        "kueue_cluster_queue_resource_reservation",
        "Reserved in a queue, as Kueue shows it.",
        lambda x: x.used,
    ),
    ("kueue_cluster_queue_resource_usage", "Used in a queue, as Kueue shows it.", lambda x: x.used),
)

_JOB_NUMBERS: Final[Sequence[Number[tuple[int, int]]]] = (
    ("portal_jobs_waiting", "Jobs that wait.", lambda x: x[0]),
    ("portal_jobs_running", "Jobs that run.", lambda x: x[1]),
)
_KUEUE_PENDING: Final[Sequence[Number[tuple[int, int]]]] = (
    ("kueue_pending_workloads", "Workloads that wait, as Kueue shows them.", lambda x: x[0]),
)
_KUEUE_RUNNING: Final[Sequence[Number[tuple[int, int]]]] = (
    (
        "kueue_reserving_active_workloads",
        "Workloads that hold quota, as Kueue shows them.",
        lambda x: x[1],
    ),
)


def cluster_families(now: datetime) -> Iterator[Family]:
    """Contact, shifts, objects, dispatch and guard of each registered cluster. Eight queries."""
    clusters = Cluster.objects.registered().without_secrets().select_related("health")
    rows = [((row.slug,), row) for row in rows_of(clusters.order_by("slug"))]
    yield from Family.each(_CLUSTER_NUMBERS, _CLUSTER, rows)
    contact: Number[ClusterRow] = (
        "portal_cluster_contact_age_seconds",
        "How long ago the cluster last answered.",
        lambda row: age(row.last_contact_at, now),
    )
    yield from Family.each([contact], _CLUSTER, rows)
    waiting = (
        ObjectState.objects.filter(cluster__in=clusters.values("pk"))
        .exclude(state__in=(ObjectState.State.SYNCED, ObjectState.State.STAYS))
        .order_by("cluster__slug")
        .values_list("cluster__slug")
        .annotate(since=Min("changed_at"))
    )
    yield Family(
        "portal_cluster_sync_lag_seconds",
        "How long the oldest object has not been as wanted; no row means that all are.",
        _CLUSTER,
        tuple(((slug,), (now - since).total_seconds()) for slug, since in waiting),
    )
    yield from _shift_families(now)
    incidents = (
        GuardIncident.objects.filter(state=GuardIncident.State.OPEN)
        .order_by("cluster__slug", "defect")
        .values_list("cluster__slug", "defect")
        .annotate(count=Count("pk"))
    )
    yield Family(
        "portal_guard_incidents_open",
        "Defects of Kueue that the guard saw and that are not cured.",
        ("cluster", "defect"),
        tuple(((slug, defect), float(count)) for slug, defect, count in incidents),
    )
    rounds = (
        DispatchRound.objects.filter(outcome=DispatchRound.Outcome.OPEN, ended_at=None)
        .order_by("cluster__slug")
        .values_list("cluster__slug")
        .annotate(count=Count("pk"), since=Min("started_at"))
    )
    open_rounds = list(rounds)
    yield Family(
        "portal_dispatch_rounds_open",
        "Jobs that were offered to workers and that no worker has taken yet.",
        _CLUSTER,
        tuple(((slug,), float(count)) for slug, count, _ in open_rounds),
    )
    yield Family(
        "portal_dispatch_oldest_round_seconds",
        "How long ago the first of these jobs was offered.",
        _CLUSTER,
        tuple(((slug,), (now - since).total_seconds()) for slug, _, since in open_rounds),
    )


def queue_families() -> Iterator[Family]:
    """Budgets against use, and by Kueue's names where the portal decides. A few queries."""
    workspaces = list(
        Workspace.objects.filter(archived_at=None).select_related("account").order_by("namespace")
    )
    drawn = bars_now(workspaces)
    bars = [(row, bar) for row in workspaces for bar in drawn[row.pk]]
    counts = workload_counts(workspaces)
    jobs = [(row, counts.get(row.namespace, (0, 0))) for row in workspaces]
    yield from Family.each(
        _BAR_NUMBERS,
        _BAR,
        [((row.account.slug, row.namespace, bar.flavor), bar) for row, bar in bars],
    )
    yield from Family.each(
        _JOB_NUMBERS, _BAR[:2], [((row.account.slug, row.namespace), of) for row, of in jobs]
    )
    if not Cluster.objects.registered().filter(mode=Cluster.Mode.PORTAL).exists():
        return
    # The names and labels of Kueue 0.19's ``pkg/metrics``; who decides has one replica.
    yield from Family.each(
        _KUEUE_NUMBERS,
        ("cohort", "cluster_queue", "flavor", "resource", "replica_role"),
        [((row.account.slug, row.namespace, bar.flavor, GPU, "leader"), bar) for row, bar in bars],
    )
    yield from Family.each(
        _KUEUE_PENDING,
        ("cluster_queue", "status", "replica_role"),
        [((row.namespace, "active", "leader"), of) for row, of in jobs],
    )
    yield from Family.each(
        _KUEUE_RUNNING,
        ("cluster_queue", "replica_role"),
        [((row.namespace, "leader"), of) for row, of in jobs],
    )


def _shift_families(now: datetime) -> Iterator[Family]:
    """One row for each (cluster, role) that somebody works, or should work, on."""
    shifts = list(
        ShiftRun.objects.filter(cluster__in=Cluster.objects.registered().values("pk"))
        .select_related("cluster")
        .order_by("cluster__slug", "role")
    )
    numbers: Sequence[Number[ShiftRun]] = (
        (
            "portal_shift_alive",
            "1 while a shift works on this role.",
            lambda x: x.is_alive(now=now),
        ),
        (
            "portal_shift_heartbeat_age_seconds",
            "Seconds since the shift's last sign of life.",
            lambda x: age(x.heartbeat_at, now),
        ),
        (
            "portal_shift_lease_age_seconds",
            "Seconds since the shift's Lease was renewed.",
            lambda x: age(x.lease_renewed_at, now),
        ),
        (
            "portal_shift_watch_age_seconds",
            "Seconds since the shift's watches received anything.",
            lambda x: x.watch_age_s,
        ),
        (
            "portal_shift_parked_keys",
            "Objects that are set aside because they raised an error.",
            lambda x: x.parked,
        ),
    )

    places = [((shift.cluster.slug, str(shift.role)), shift) for shift in shifts]
    yield from Family.each(numbers, ("cluster", "role"), places)
