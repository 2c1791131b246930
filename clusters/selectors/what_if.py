"""What-if: who may ask about which budgets, and who may read which answer."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db.models import QuerySet

from budgets.models import User, Workspace
from budgets.selectors import roles_of, visible_workspaces
from clusters.models import Question


def askable_workspaces(user: User) -> QuerySet[Workspace]:
    """Workspaces whose budget a user may change, and so ask about. One query besides theirs."""
    roles = roles_of(user)
    found = visible_workspaces(user)
    if roles.is_admin:
        return found
    owned = found.filter(account_id__in=roles.owned_accounts)
    return owned | found.filter(pk__in=roles.owned_workspaces)


def questions_for(user: User, keys: Sequence[UUID]) -> list[Question]:
    """Questions of a user, any for an admin, in the order in which they are named.

    Raises:
        Question.DoesNotExist: One is not there (they are kept for a day), or is somebody else's.
    """
    found = Question.objects.filter(kind=Question.Kind.WHAT_IF)
    if not roles_of(user).is_admin:
        found = found.filter(asked_by=user)
    rows = found.in_bulk(list(keys))
    if any(key not in rows for key in keys):
        raise Question.DoesNotExist
    return [rows[key] for key in keys]
