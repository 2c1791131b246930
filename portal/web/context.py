"""What the frame around every page shows: sections by role, and what waits for a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import SimpleLazyObject

from budgets import selectors
from budgets.models import BudgetRevision


@dataclass(frozen=True, slots=True)
class Section:
    """One entry of the navigation."""

    title: str
    url: str
    is_current: bool
    count: int = 0


@dataclass(frozen=True, slots=True)
class Shell:
    """The frame of a page for one reader."""

    roles: selectors.RoleSet
    sections: tuple[Section, ...]


def shell(request: HttpRequest) -> dict[str, Any]:
    """Context processor; costs queries only when the frame is rendered."""
    return {"shell": SimpleLazyObject(lambda: _shell(request))}


def _shell(request: HttpRequest) -> Shell | None:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    roles = selectors.roles_of(user)
    entries = [("Workspaces", "home", 0), ("Jobs", "jobs", 0), ("Usage", "usage", 0)]
    entries.append(("Billing", "billing", 0))
    if roles.sees_everything:
        entries.append(("Fleet", "fleet", 0))
    if roles.is_admin:
        waiting = waiting_requests(user).count()
        entries += [("Requests", "requests", waiting), ("Clusters", "clusters", 0)]
        entries.append(("Set-up", "setup", 0))
    entries += [("Exports", "exports", 0), ("Alerts", "alerts", 0), ("Audit log", "audit", 0)]
    return Shell(roles=roles, sections=tuple(_section(request, *entry) for entry in entries))


def waiting_requests(user: Any) -> QuerySet[BudgetRevision]:
    """Requests of visible workspaces, only to be counted; the page of requests has their why."""
    return BudgetRevision.objects.filter(
        state=BudgetRevision.State.REQUESTED,
        budget__workspace__in=selectors.visible_workspaces(user).order_by().values("pk"),
    )


def _section(request: HttpRequest, title: str, name: str, count: int) -> Section:
    url = reverse(name)
    if name == "home":
        is_current = request.path == url or request.path.startswith(f"{url}workspaces/")
    else:
        is_current = request.path.startswith(url)
    return Section(title=title, url=url, is_current=is_current, count=count)
