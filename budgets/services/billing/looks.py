"""Remembers what a reader of a statement saw. No log entry: nothing of the statement changes."""

from __future__ import annotations

from budgets.models import StatementLook, User
from budgets.selectors.billing.looks import content_of
from budgets.selectors.billing.statements import StatementSheet
from budgets.selectors.clock import utc_now


def note_look(user: User, sheet: StatementSheet) -> None:
    """Keep what a reader saw, in the place of what they saw before.

    Args:
        user: The reader.
        sheet: As far as they see the statement.
    """
    row = StatementLook(
        user=user, statement=sheet.statement, seen_at=utc_now(), content=content_of(sheet)
    )
    StatementLook.objects.bulk_create(
        [row],
        update_conflicts=True,
        unique_fields=["user", "statement"],
        update_fields=["seen_at", "content"],
    )
