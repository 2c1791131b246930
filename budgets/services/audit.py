"""Writing down who changed what."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, TypeVar

from django.db.models import Model

from budgets.models import Account, AuditEntry, User, Workspace

Place = TypeVar("Place", Account, Workspace)
SYSTEM_NAME = "portal"
NAMES = ("namespace", "slug", "username")
"""Under the first of these that a row has, people know it; others by their number."""


def audit(
    actor: User | None,
    action: str,
    subject: Model | str,
    *,
    account: Account | None = None,
    workspace: Workspace | None = None,
    cluster: str = "",
    reason: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    actor_name: str = SYSTEM_NAME,
) -> AuditEntry:
    """Add one entry to the audit log, in the caller's transaction.

    Args:
        actor: Who did it; None for the portal itself.
        action: Dotted verb, such as ``budget.revise``.
        subject: What was changed: a row, or its name, such as ``period:2026-10``.
        account: For the visibility of the entry; taken from subject or workspace when absent.
        workspace: Likewise, from the subject.
        cluster: Cluster slug, where one is touched.
        reason: In the actor's words, cut at 500 characters.
        before: JSON-able state, without any secret.
        after: Likewise.
        actor_name: Who it is said to be where ``actor`` is None.
    """
    if isinstance(subject, Model):
        workspace = workspace or _place(subject, Workspace, "workspace")
        account = account or _place(subject, Account, "account")
        subject = _name(subject)
    if account is None and workspace is not None:
        account = workspace.account
    return AuditEntry.objects.create(
        actor=actor,
        actor_name=actor_name if actor is None else actor.get_username(),
        action=action,
        subject=subject[:200],
        account=account,
        workspace=workspace,
        cluster=cluster,
        reason=reason[:500],
        before=dict(before or {}),
        after=dict(after or {}),
    )


def state_of(row: object, *names: str) -> dict[str, Any]:
    """Attributes of a row as the log keeps them: amounts and times as text."""
    return {name: plain(getattr(row, name)) for name in names}


def plain(value: Any) -> Any:
    """A value as JSON keeps it."""
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _place(row: Model, kind: type[Place], name: str) -> Place | None:
    found = row if isinstance(row, kind) else getattr(row, name, None)
    return found if isinstance(found, kind) else None


def _name(row: Model) -> str:
    known = (getattr(row, name) for name in NAMES if hasattr(row, name))
    return f"{str(row._meta.verbose_name).replace(' ', '_')}:{next(known, row.pk)}"
