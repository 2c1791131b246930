"""What was asked to be done to single jobs, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Exists, OuterRef, QuerySet

from budgets.models import User
from budgets.selectors import visible_workspaces
from clusters.models import WorkloadAction
from clusters.selectors.names import reader_names

State = WorkloadAction.State


def actions_on(user: User, cluster: str, uid: str) -> list[WorkloadAction]:
    """What was asked of one job, newest first; nothing of a workspace that is not visible."""
    found = _visible(user).filter(cluster__slug=cluster, uid=uid)
    return _told(user, found.select_related("cluster", "asked_by", "window"))


def action_for(user: User, key: int) -> WorkloadAction:
    """One action.

    Raises:
        WorkloadAction.DoesNotExist: It is not there, or not for this user.
    """
    (found,) = _told(user, [_visible(user).get(pk=key)])
    return found


def stuck_actions(user: User) -> list[WorkloadAction]:
    """Those that wait for a cluster, and those that were refused and not asked again since."""
    later = WorkloadAction.objects.filter(
        cluster=OuterRef("cluster"), uid=OuterRef("uid"), pk__gt=OuterRef("pk")
    )
    open_ones = _visible(user).filter(~Exists(later), state__in=(State.WAITING, State.FAILED))
    return _told(user, open_ones[:50])


def _told(user: User, rows: Iterable[WorkloadAction]) -> list[WorkloadAction]:
    """The rows with what the cluster says as this reader may read it; they are not to be saved."""
    found = list(rows)
    names = reader_names(user) if any(row.message for row in found) else None
    for row in found:
        row.message = names.message(row.message) if names else row.message
    return found


def _visible(user: User) -> QuerySet[WorkloadAction]:
    seen = visible_workspaces(user, include_archived=True).order_by().values("namespace")
    found = WorkloadAction.objects.filter(namespace__in=seen).select_related("cluster")
    return found.order_by("-created_at", "-pk")
