"""Writing down who changed what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from budgets.models import Account, AuditEntry, User, Workspace

SYSTEM_NAME = "portal"


def audit(
    actor: User | None,
    *,
    action: str,
    subject: str,
    account: Account | None = None,
    workspace: Workspace | None = None,
    cluster: str = "",
    reason: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Add one entry to the audit log, in the caller's transaction.

    Args:
        actor: Who did it; None for the portal itself.
        action: Dotted verb, such as ``budget.revise``.
        subject: What was changed, such as ``budget:acme-vision``.
        account: For the visibility of the entry; taken from the workspace when absent.
        workspace: Likewise.
        cluster: Cluster slug, where one is touched.
        reason: In the actor's words, cut at 500 characters.
        before: JSON-able state, without any secret.
        after: Likewise.
    """
    if account is None and workspace is not None:
        account = workspace.account
    return AuditEntry.objects.create(
        actor=actor,
        actor_name=SYSTEM_NAME if actor is None else actor.get_username(),
        action=action,
        subject=subject[:200],
        account=account,
        workspace=workspace,
        cluster=cluster,
        reason=reason[:500],
        before=dict(before or {}),
        after=dict(after or {}),
    )
