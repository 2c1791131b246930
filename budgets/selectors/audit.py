"""The audit log, as far as somebody may read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import QuerySet

from budgets.errors import Rejected
from budgets.models import Account, AuditEntry, AuditStream, Budget, User, Workspace
from budgets.selectors.clock import utc_now
from budgets.selectors.roles import roles_of, workspaces_of
from budgets.units import time_text

FILE_MOST: Final = 100_000
"""Entries of one file."""
AUDIT_KEYS: Final = (
    *("id", "at", "actor_name", "action", "subject", "account", "workspace", "cluster"),
    *("reason", "before", "after"),
)
"""Of an entry as JSON, and columns of a file."""
_CHUNK: Final = 1_000


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What of the log is asked for; what is None or empty leaves nothing out.

    Attributes:
        workspace: Only of this workspace.
        account: Only of this account and its workspaces.
        cluster: Only of this cluster slug.
        action: Only actions that begin with it, such as ``budget.``.
        actor_name: Only by whom the log calls so: a user name, letter by letter.
        subject: Only where the name of what was changed has it, as ``budget:acme-vision`` has
            ``vision``; capitals are small letters.
        since: Only from then on.
        until: Only before.
    """

    workspace: Workspace | None = None
    account: Account | None = None
    cluster: str = ""
    action: str = ""
    actor_name: str = ""
    subject: str = ""
    since: datetime | None = None
    until: datetime | None = None


EVERYTHING: Final = AuditFilter()


def audit_entries(
    user: User,
    wanted: AuditFilter = EVERYTHING,
    *,
    before: int | None = None,
    limit: int = 50,
) -> list[AuditEntry]:
    """Newest entries first; with PORTAL_AUDIT_DAYS, those of so many days.

    Args:
        user: Admin, finance and auditor read everything; others what touches the workspaces
            and whole accounts that they see.
        wanted: Which of these.
        before: Cursor: primary key of the last entry of the page before.
        limit: At most so many.
    """
    return list(_found(user, wanted, before)[:limit])


def audit_file(user: User, wanted: AuditFilter) -> Iterator[dict[str, Any]]:
    """What :func:`audit_entries` has, all pages of it, as :func:`audit_document`.

    A thousand are read when those before them were taken.

    Raises:
        Rejected: More than ``FILE_MOST`` fit; before the first one.
    """
    rows = audit_entries(user, wanted, limit=_CHUNK)
    if len(rows) == _CHUNK and _found(user, wanted, None)[FILE_MOST : FILE_MOST + 1]:
        words = f"More than {FILE_MOST:,} entries fit; choose days, a person or an object."
        raise Rejected.because("format", "too_many_rows", words)
    return _documents(user, wanted, rows)


def audit_document(entry: AuditEntry) -> dict[str, Any]:
    """One entry as JSON, for files and receivers; account and workspace have to be joined."""
    told = {
        "id": entry.pk,
        "at": time_text(entry.at),
        "account": entry.account.slug if entry.account else None,
        "workspace": entry.workspace.namespace if entry.workspace else None,
    }
    return {key: told[key] if key in told else getattr(entry, key) for key in AUDIT_KEYS}


def audit_streams(user: User) -> QuerySet[AuditStream]:
    """Where the log is sent, and how far each receiver has it; for platform roles."""
    found = AuditStream.objects.select_related("webhook").filter(webhook__removed_at=None)
    if not settings.PORTAL_AUDIT_SYSLOG:
        found = found.exclude(webhook=None)
    return found if roles_of(user).sees_everything else found.none()


def _found(user: User, wanted: AuditFilter, before: int | None) -> QuerySet[AuditEntry]:
    roles = roles_of(user)
    found = AuditEntry.objects.select_related("account", "workspace").order_by("-pk")
    if not roles.sees_everything:
        found = found.filter(roles.within())
    if settings.PORTAL_AUDIT_DAYS:
        found = found.filter(at__gte=utc_now() - timedelta(days=settings.PORTAL_AUDIT_DAYS))
    asked = {
        "workspace": wanted.workspace,
        "account": wanted.account,
        "cluster": wanted.cluster,
        "action__startswith": wanted.action,
        "actor_name": wanted.actor_name,
        "subject__icontains": wanted.subject,
        "at__gte": wanted.since,
        "at__lt": wanted.until,
        "pk__lt": before,
    }
    return found.filter(**{name: value for name, value in asked.items() if value not in (None, "")})


def _documents(user: User, wanted: AuditFilter, rows: list[AuditEntry]) -> Iterator[dict[str, Any]]:
    while rows:
        yield from map(audit_document, rows)
        is_last = len(rows) < _CHUNK
        rows = [] if is_last else audit_entries(user, wanted, before=rows[-1].pk, limit=_CHUNK)


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
