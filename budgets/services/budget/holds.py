"""What changes about a budget without a revision: holding it, and where its floor stands."""

from __future__ import annotations

from django.db import transaction

from budgets.errors import NotAllowed, Rejected
from budgets.models import Budget, User, Workspace
from budgets.services.budget.in_force import generations_follow, reallocate_budget
from budgets.services.budget.versions import close_budget, open_budget
from budgets.services.guards import by_admin, require_reason, roles_for


@transaction.atomic
def set_stop_policy(
    actor: User | None,
    *,
    budget: Budget,
    policy: str,
    reason: str,
    expected_version: int | None = None,
) -> Budget:
    """Hold, drain or release a budget.

    Raises:
        Rejected: Unknown policy, no reason, or an archived workspace.
    """
    if not roles_for(actor).may_edit(budget.workspace):
        raise NotAllowed("Only the workspace's owners and admins can hold its budget.")
    require_reason(reason)
    if policy not in Budget.StopPolicy.values:
        raise Rejected.because("policy", "unknown_policy", f"There is no stop policy {policy!r}.")
    locked, _ = open_budget(budget.pk, expected_version)
    if locked.workspace.archived_at is not None and policy == Budget.StopPolicy.NONE:
        raise Rejected.because(
            "policy", "archived_workspace", "An archived workspace stays on hold."
        )
    before = locked.stop_policy
    with generations_follow(locked.workspace.account.slug):
        locked.stop_policy = policy
        locked.stop_reason = reason[:300]
        locked.save(update_fields=["stop_policy", "stop_reason"])
    close_budget(
        locked,
        actor,
        action="budget.stop_policy",
        reason=reason,
        summary=f"set the stop policy to {policy}",
        before={"stop_policy": before},
    )
    return locked


@by_admin
def reallocate(
    actor: User | None, *, workspace: Workspace, reason: str, expected_version: int
) -> dict[str, dict[str, int]]:
    """Lay a workspace's floor over the workers afresh, after a preview.

    Returns:
        flavor -> worker -> GPUs.

    Raises:
        StaleVersion: Somebody else saved in between.
        Rejected: No reason.
    """
    require_reason(reason)
    budget, now = open_budget(workspace.budget.pk, expected_version)
    parts = reallocate_budget(budget, now=now)
    close_budget(
        budget,
        actor,
        action="budget.reallocate",
        reason=reason,
        summary="split the committed GPUs over the workers again",
    )
    return parts
