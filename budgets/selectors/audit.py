"""The audit log, as far as somebody may read it."""

from __future__ import annotations

from budgets.models import Account, AuditEntry, Budget, User, Workspace
from budgets.selectors.roles import roles_of, workspaces_of


def audit_entries(
    user: User,
    *,
    workspace: Workspace | None = None,
    account: Account | None = None,
    cluster: str | None = None,
    action: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[AuditEntry]:
    """Newest entries first.

    Args:
        user: Admin, finance and auditor read everything; others what touches the workspaces
            and whole accounts that they see.
        workspace: Only of this workspace.
        account: Only of this account.
        cluster: Only of this cluster slug.
        action: Only actions that begin with it, such as ``budget.``.
        before: Cursor: primary key of the last entry of the page before.
        limit: At most so many.
    """
    roles = roles_of(user)
    found = AuditEntry.objects.select_related("account", "workspace")
    if not roles.sees_everything:
        found = found.filter(roles.within())
    asked = {
        "workspace": workspace,
        "account": account,
        "cluster": cluster or None,
        "action__startswith": action or None,
        "pk__lt": before,
    }
    found = found.filter(**{name: value for name, value in asked.items() if value is not None})
    return list(found.order_by("-pk")[:limit])


def last_hold(workspace: Workspace) -> AuditEntry | None:
    """Who holds a budget, since when and why; None while nobody does. One query at most.

    Args:
        workspace: With its budget, found through a selector that checks who may see it.
    """
    if workspace.budget.stop_policy == Budget.StopPolicy.NONE:
        return None
    entries = AuditEntry.objects.filter(workspace=workspace, action="budget.stop_policy")
    return entries.order_by("-at", "-pk").first()


def held_budgets(user: User) -> list[Budget]:
    """Budgets that somebody holds or drains, of visible workspaces that are not archived."""
    roles = roles_of(user)
    held = Budget.objects.exclude(stop_policy=Budget.StopPolicy.NONE).select_related("workspace")
    spaces = workspaces_of(roles, include_archived=False).order_by().values("pk")
    return list(held.filter(workspace__in=spaces).order_by("workspace__namespace"))
