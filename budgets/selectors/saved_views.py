"""Filters of lists that a person keeps under a name."""

from __future__ import annotations

from django.db.models import QuerySet

from budgets.models import SavedView, User


def saved_views(user: User) -> QuerySet[SavedView]:
    """One's own, by page and name; those of others do not exist here, not even for an admin."""
    return SavedView.objects.filter(user=user.pk)
