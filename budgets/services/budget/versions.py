"""Opening a budget for one write, and closing it: locks, version, log entry.

And telling the meter from when it has to look again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import DateTimeField, Value
from django.db.models.functions import Coalesce, Least

from budgets.errors import StaleVersion
from budgets.models import AuditEntry, Budget, MeterState, User
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit
from budgets.services.budget.in_force import lock_budget


def open_budget(
    budget_id: int, expected_version: int | None = None, *, flavors: Iterable[str] = ()
) -> tuple[Budget, datetime]:
    """Lock the budget and compare its version with the one that the author saw."""
    budget = lock_budget(budget_id, flavors=flavors)
    if expected_version is not None and budget.version != expected_version:
        last = (
            AuditEntry.objects.filter(workspace=budget.workspace, action__startswith="budget.")
            .exclude(after__version__isnull=True)
            .first()
        )
        raise StaleVersion(
            current_version=budget.version,
            changed_by=last.actor_name if last else "somebody",
            changed_at=last.at if last else budget.created_at,
            summary=last.after.get("summary", last.action) if last else "the budget",
        )
    return budget, utc_now()


def close_budget(
    budget: Budget,
    actor: User | None,
    *,
    action: str,
    reason: str,
    summary: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Raise the version and write the log entry that a later stale writer is told about."""
    budget.version += 1
    budget.save(update_fields=["version"])
    audit(
        actor,
        action,
        budget,
        reason=reason,
        before=before,
        after={
            **(after or {}),
            "version": budget.version,
            "summary": summary,
            "generation": budget.generation,
        },
    )


def mark_dirty(since: datetime, *, cluster: str | None = None) -> None:
    """Have the meter rewrite its facts from ``since`` on, for one cluster or for all.

    The row is written even where an earlier mark stays: so a change waits for a meter that may
    have read what was there before it, and marks what that meter leaves behind.

    Args:
        since: UTC; an earlier mark stays.
        cluster: Cluster slug, which gets a row when it has none; None for every known one.
    """
    if cluster is not None:
        MeterState.objects.get_or_create(cluster=cluster, defaults={"dirty_from": since})
    rows = (
        MeterState.objects.all() if cluster is None else MeterState.objects.filter(cluster=cluster)
    )
    at = Value(since, output_field=DateTimeField())
    rows.update(dirty_from=Least(Coalesce("dirty_from", at), at))
