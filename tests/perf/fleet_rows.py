"""Rows of a large fleet, made by the database itself: 1,000 workspaces, a million intervals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.db import connection, transaction

from budgets import services
from budgets.models import (
    Account,
    Allocation,
    Budget,
    BudgetLine,
    BudgetRevision,
    Capacity,
    Flavor,
    Membership,
    Role,
    User,
    Workspace,
)

WORKERS = ("worker-1", "worker-2")
Place = tuple[str, str]
"""Cluster and flavor."""
PLACES: Sequence[Place] = tuple(zip(WORKERS, ("h100", "a100"), strict=True))


def people() -> dict[str, User]:
    """An admin, finance, and an owner of one workspace (granted later)."""
    made = {}
    for name in ("admin", "finance", "owner"):
        made[name] = User.objects.create_user(name, f"{name}@example.com", "bench-password-1")
    Membership.objects.create(user=made["admin"], role=Role.ADMIN)
    Membership.objects.create(user=made["finance"], role=Role.FINANCE)
    return made


@transaction.atomic
def promises(
    *, accounts: int, workspaces: int, committed: int = 8, places: Sequence[Place] = PLACES
) -> list[Workspace]:
    """Accounts with equal shares of the workspaces, each with one live line on one worker.

    Every worker has GPUs of every flavor of ``places``; the budgets stand there in turn.
    """
    for position, slug in enumerate(dict.fromkeys(flavor for _, flavor in places)):
        flavor = Flavor.objects.create(slug=slug, name=slug.upper(), position=position)
        for worker in dict.fromkeys(cluster for cluster, _ in places):
            Capacity.objects.create(
                cluster=worker, flavor=flavor, gpus=10 * workspaces * committed, valid_from=begin()
            )
    add_accounts(accounts)
    return add_workspaces(workspaces, committed=committed, places=places)


def add_accounts(count: int) -> None:
    """So many accounts, none of them with workspaces."""
    Account.objects.bulk_create(Account(slug=f"acc{n}", name=f"Account {n}") for n in range(count))


@transaction.atomic
def add_cluster(cluster: str, *, flavor: str, workspaces: int) -> list[Workspace]:
    """GPUs of a flavor on one cluster more, and workspaces whose budgets, without burst, are there.

    So their jobs have one place to go to: with burst, they would drive each other from worker to
    worker for as long as more wait than run.
    """
    known = Flavor.objects.count()
    row, _ = Flavor.objects.get_or_create(
        slug=flavor, defaults={"name": flavor.upper(), "position": known}
    )
    Capacity.objects.create(cluster=cluster, flavor=row, gpus=10_000, valid_from=begin())
    return add_workspaces(workspaces, places=[(cluster, flavor)], burst=0)


def begin() -> datetime:
    month_ago = datetime.now(UTC) - timedelta(days=30)
    return month_ago.replace(microsecond=0, second=0, minute=0)


@transaction.atomic
def add_workspaces(
    count: int, *, committed: int = 8, places: Sequence[Place] = PLACES, burst: int | None = None
) -> list[Workspace]:
    """So many more workspaces with a budget in force, over the accounts that there are.

    Their burst is as large as what is committed, unless it is given.
    """
    owners = list(Account.objects.order_by("pk"))
    flavors = {row.slug: row for row in Flavor.objects.all()}
    author = User.objects.get(username="admin")
    first = Workspace.objects.count()
    made = Workspace.objects.bulk_create(
        Workspace(
            account=owners[n % len(owners)],
            slug=f"ws{n}",
            namespace=f"{owners[n % len(owners)].slug}-ws{n}",
            name=f"Workspace {n}",
            home_flavor=flavors[places[n % len(places)][1]],
        )
        for n in range(first, first + count)
    )
    budgets = Budget.objects.bulk_create(Budget(workspace=workspace) for workspace in made)
    revisions = BudgetRevision.objects.bulk_create(
        BudgetRevision(
            budget=budget,
            number=1,
            author=author,
            reason="bench",
            valid_from=begin(),
            state=BudgetRevision.State.LIVE,
        )
        for budget in budgets
    )
    lines = BudgetLine.objects.bulk_create(
        BudgetLine(
            revision=revision,
            flavor=made[n].home_flavor,
            committed=committed,
            ceiling=committed + (committed if burst is None else burst),
            lendable=committed,
        )
        for n, revision in enumerate(revisions)
    )
    Allocation.objects.bulk_create(
        Allocation(
            line=line,
            cluster=places[n % len(places)][0],
            committed=line.committed,
            lendable=line.lendable,
        )
        for n, line in enumerate(lines, first)
    )
    for budget, revision in zip(budgets, revisions, strict=True):
        budget.in_force = revision
    Budget.objects.bulk_update(budgets, ["in_force"], batch_size=500)
    return made


def intervals(count: int, *, days: int = 30) -> None:
    """Closed intervals of one to eight GPUs, spread over workspaces and days."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO budgets_interval
              (cluster, uid, epoch, pod_set, flavor, seq, workspace_id, namespace, workload,
               cluster_queue, job_kind, job_name, gpus, admitted_at, start, "end", state, kind,
               note, updated_at)
            SELECT 'worker-' || (1 + n %% 2), 'uid-' || n, 1, 'main', f.slug, 1, w.id, w.namespace,
                   'job-' || n, w.namespace, 'Job', 'job-' || n, 1 + n %% 8, t.at, t.at,
                   t.at + make_interval(secs => 600 + n %% 5000), 'closed', 'billable', '', now()
              FROM generate_series(1, %s) AS n
              JOIN (SELECT id, namespace, home_flavor_id,
                           row_number() OVER (ORDER BY id) - 1 AS nth,
                           count(*) OVER () AS total FROM budgets_workspace) AS w
                ON w.nth = n %% w.total
              JOIN budgets_flavor AS f ON f.id = w.home_flavor_id
              CROSS JOIN LATERAL (
                SELECT date_trunc('second', now() - make_interval(
                  secs => (n::bigint * 7919) %% (%s * 86400)::bigint)) AS at) AS t
            """,
            [count, days],
        )


def hour_facts(*, days: int = 30) -> None:
    """What the meter would have made of them: an hour fact per workspace, hour and flavor.

    In every account one half of the workspaces lends to the other half.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO budgets_usagerecord
              (workspace_id, flavor_id, hour, start, committed, committed_used, burst, borrowed,
               lent, idle, pending)
            SELECT w.id, w.home_flavor_id, h, h, 28800, 14400 + (w.id %% 4) * 3600, 3600,
                   900 * w.takes, 900 * (1 - w.takes),
                   28800 - 14400 - (w.id %% 4) * 3600 - 900 * (1 - w.takes), 600
              FROM (SELECT *, (id / 50) %% 2 AS takes FROM budgets_workspace) AS w,
                   generate_series(date_trunc('hour', now()) - make_interval(days => %s),
                                   date_trunc('hour', now()), interval '1 hour') AS h
            """,
            [days],
        )
        cursor.execute(
            """
            INSERT INTO budgets_workloadusage
              (workspace_id, cluster, uid, flavor, hour, start, committed_used, burst)
            SELECT workspace_id, cluster, uid, flavor, date_trunc('hour', start),
                   date_trunc('hour', start), gpus * 600, 0
              FROM budgets_interval
            """
        )
    services.rebuild_totals()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
