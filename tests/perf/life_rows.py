"""Rows of a fleet at work: clusters with their objects, jobs in states, requests, an audit log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.db import connection, transaction

from budgets.models import AuditEntry, Budget, BudgetLine, BudgetRevision, User, Workspace
from clusters.models import (
    Cluster,
    ClusterHealth,
    Drift,
    ObjectState,
    PendingReason,
    ShiftRun,
    WorkloadState,
)
from tests.explained.evidence import waiting

PHASES = WorkloadState.Phase
# Of ten jobs: what a full cluster has of each.
TEN = (
    *(3 * [PHASES.PENDING]),
    *(3 * [PHASES.RUNNING]),
    *(2 * [PHASES.FINISHED]),
    PHASES.EVICTED,
    PHASES.FAILED,
)


@transaction.atomic
def fleet_at_work(*, clusters: int, jobs: int, requests: int, entries: int) -> None:
    """So many of each, over the workspaces that there are."""
    workspaces = list(Workspace.objects.order_by("pk"))
    made = _clusters(clusters, [workspace.namespace for workspace in workspaces])
    _jobs(jobs, made, workspaces)
    _requests(requests, workspaces)
    _entries(entries, workspaces)


@transaction.atomic
def crowd(workspace: Workspace, count: int) -> None:
    """So many jobs of one workspace, which all wait on the manager and say why."""
    now, manager = datetime.now(UTC), Cluster.objects.get(slug="manager")
    rows = [
        WorkloadState(
            cluster=manager,
            uid=f"crowd-{n}",
            namespace=workspace.namespace,
            name=f"job-crowd-{n}",
            job_kind="Job",
            job_name=f"crowd-{n}",
            queue="default",
            phase=PHASES.PENDING,
            gpus={"": 8},
            gpu_total=8,
            created_at=now - timedelta(seconds=n),
            resource_version=str(n + 1),
        )
        for n in range(count)
    ]
    WorkloadState.objects.bulk_create(rows, batch_size=5_000)
    _reasons(rows, now)


def analyze() -> None:
    """Let PostgreSQL know what came in; it would by itself within a minute."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _clusters(count: int, namespaces: list[str]) -> list[Cluster]:
    now = datetime.now(UTC)
    made = Cluster.objects.bulk_create(
        Cluster(
            slug="manager" if n == 0 else f"worker-{n}",
            name="Manager" if n == 0 else f"Worker {n}",
            role=Cluster.Role.WORKER if n else Cluster.Role.MANAGER,
            mode=Cluster.Mode.PORTAL,
            position=n,
            server=f"https://cluster-{n}.example.org:6443",
            context="portal",
            user_kind="token",
            kubeconfig_sealed=b"sealed",
        )
        for n in range(count)
    )
    ClusterHealth.objects.bulk_create(
        ClusterHealth(
            cluster=cluster,
            reachable=n % 7 != 6,
            last_contact_at=now,
            checked_at=now,
            latency_ms=4,
            kubernetes_version="v1.36.3",
            kueue_version="v0.19.2",
        )
        for n, cluster in enumerate(made)
    )
    ShiftRun.objects.bulk_create(
        ShiftRun(cluster=cluster, role=role, holder="bench", started_at=now, heartbeat_at=now)
        for cluster in made
        for role in (ShiftRun.Role.QUOTA, ShiftRun.Role.USAGE, ShiftRun.Role.ADMISSION)
    )
    states = (
        ObjectState(
            cluster=cluster,
            kind=kind,
            name=namespace,
            namespace=namespace if kind == "LocalQueue" else "",
            state=ObjectState.State.SYNCED if n % 50 else ObjectState.State.DRIFTED,
            generation=1,
            changed_at=now,
        )
        for cluster in made
        for kind in ("Namespace", "ClusterQueue", "LocalQueue")
        for n, namespace in enumerate(namespaces)
    )
    ObjectState.objects.bulk_create(states, batch_size=5_000)
    Drift.objects.bulk_create(
        Drift(
            cluster=cluster,
            kind="ClusterQueue",
            name=namespaces[n],
            field="spec.stopPolicy",
            wanted="None",
            found="Hold",
            manager="kubectl-edit",
            noticed_at=now,
        )
        for cluster in made
        for n in range(10)
    )
    return made


def _jobs(count: int, clusters: list[Cluster], workspaces: list[Workspace]) -> None:
    now = datetime.now(UTC)
    rows = list(_states(count, clusters, workspaces, now))
    WorkloadState.objects.bulk_create(rows, batch_size=5_000)
    _reasons(rows, now)


def _reasons(rows: list[WorkloadState], now: datetime) -> None:
    PendingReason.objects.bulk_create(
        (
            PendingReason(
                cluster=row.cluster.slug,
                uid=row.uid,
                namespace=row.namespace,
                name=row.name,
                evidence=waiting(),
                since=row.created_at,
                updated_at=now,
            )
            for row in rows
            if row.phase == PHASES.PENDING
        ),
        batch_size=5_000,
    )


def _states(
    count: int, clusters: list[Cluster], workspaces: list[Workspace], now: datetime
) -> Iterator[WorkloadState]:
    """Every job on the manager; those that run have a copy on a worker."""
    manager, workers = clusters[0], clusters[1:]
    for n in range(count):
        phase, workspace = TEN[n % len(TEN)], workspaces[n % len(workspaces)]
        at = now - timedelta(minutes=n % 5_000)
        has_begun = phase is not PHASES.PENDING
        worker = workers[n % len(workers)] if has_begun else None
        for place in (manager, worker):
            if place is not None:
                yield WorkloadState(
                    cluster=place,
                    uid=f"{place.slug}-{n}",
                    namespace=workspace.namespace,
                    name=f"job-train-{n}",
                    is_remote_copy=place is not manager,
                    job_kind="Job",
                    job_name=f"train-{n}",
                    queue="default",
                    phase=phase,
                    gpus={workspace.home_flavor.slug if has_begun else "": 8},
                    gpu_total=8,
                    worker=worker.slug if worker else "",
                    created_at=at,
                    reserved_at=at if has_begun else None,
                    admitted_at=at if has_begun else None,
                    resource_version=str(n + 1),
                )


def _requests(count: int, workspaces: list[Workspace]) -> None:
    """Each wants twice the floor of its workspace."""
    author = User.objects.get(username="owner")
    budgets = Budget.objects.filter(workspace__in=workspaces[:count]).select_related(
        "workspace__home_flavor"
    )
    asked = [
        (
            budget,
            BudgetRevision(
                budget=budget,
                number=2,
                author=author,
                reason="a deadline",
                valid_from=datetime.now(UTC).replace(microsecond=0) + timedelta(days=1),
                state=BudgetRevision.State.REQUESTED,
            ),
        )
        for budget in budgets
    ]
    BudgetRevision.objects.bulk_create(revision for _, revision in asked)
    BudgetLine.objects.bulk_create(
        BudgetLine(
            revision=revision,
            flavor=budget.workspace.home_flavor,
            committed=16,
            ceiling=32,
            lendable=16,
        )
        for budget, revision in asked
    )


def _entries(count: int, workspaces: list[Workspace]) -> None:
    author = User.objects.get(username="admin")
    AuditEntry.objects.bulk_create(
        (
            AuditEntry(
                actor=author,
                actor_name=author.username,
                action="budget.revised",
                subject=f"budget:{workspace.namespace}",
                account_id=workspace.account_id,
                workspace=workspace,
                reason="bench",
                before={"committed": 8},
                after={"committed": 16},
            )
            for workspace in (workspaces[n % len(workspaces)] for n in range(count))
        ),
        batch_size=5_000,
    )
