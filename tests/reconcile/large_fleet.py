"""Many workspaces at once, as rows; what has rules is not what these tests are about."""

from __future__ import annotations

from datetime import UTC, datetime

from budgets.models import (
    Account,
    Allocation,
    Budget,
    BudgetLine,
    BudgetRevision,
    Flavor,
    Workspace,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def many_workspaces(count: int, *, workers: tuple[str, ...], accounts: int = 20) -> None:
    """So many workspaces with 4 committed, 8 ceiling GPUs of h100 on the first worker."""
    flavor = Flavor.objects.create(slug="h100", name="H100", node_labels={"gpu": "h100"})
    owners = Account.objects.bulk_create(
        Account(slug=f"acc{number}", name=f"Account {number}") for number in range(accounts)
    )
    spaces = Workspace.objects.bulk_create(
        Workspace(
            account=owners[number % accounts],
            slug=f"w{number}",
            namespace=f"acc{number % accounts}-w{number}",
            name=f"Workspace {number}",
            home_flavor=flavor,
        )
        for number in range(count)
    )
    budgets = Budget.objects.bulk_create(Budget(workspace=space) for space in spaces)
    revisions = BudgetRevision.objects.bulk_create(
        BudgetRevision(budget=budget, number=1, state="live", valid_from=BEGIN)
        for budget in budgets
    )
    lines = BudgetLine.objects.bulk_create(
        BudgetLine(revision=revision, flavor=flavor, committed=4, ceiling=8, lendable=4)
        for revision in revisions
    )
    Allocation.objects.bulk_create(
        Allocation(line=one, cluster=workers[0], committed=4, lendable=4) for one in lines
    )
    for budget, revision in zip(budgets, revisions, strict=True):
        budget.in_force, budget.in_force_since = revision, BEGIN
    Budget.objects.bulk_update(budgets, ["in_force", "in_force_since"])
