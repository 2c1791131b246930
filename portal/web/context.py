"""What the frame around every page shows: sections by role, and what waits for a decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import SimpleLazyObject

from budgets import selectors
from budgets.models import User
from budgets.selectors.approvals import waiting_for
from clusters import selectors as seen


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """One entry of the navigation; one with ``parts`` opens a menu and leads nowhere itself."""

    title: str
    url: str
    is_current: bool
    count: int = 0
    parts: tuple[MenuEntry, ...] = ()


OWN = (("Workspaces", "workspaces"), ("Jobs", "jobs"), ("Usage", "usage"), ("Billing", "billing"))
PLATFORM = (
    ("Fleet", "fleet"),
    ("Clusters", "clusters"),
    ("Maintenance", "maintenance"),
    ("Set-up", "setup"),
)
MORE = (("Alerts", "alerts"), ("Exports", "exports"), ("Audit log", "audit"))


@dataclass(frozen=True, slots=True)
class Shell:
    """The frame of a page for one reader."""

    roles: selectors.RoleSet
    sections: tuple[MenuEntry, ...]


def shell(request: HttpRequest) -> dict[str, Any]:
    """Context processor; costs queries only when the frame, or names of things, are rendered."""
    return {
        "shell": SimpleLazyObject(lambda: _shell(request)),
        "flavor_names": SimpleLazyObject(selectors.flavor_names),
        "cluster_names": SimpleLazyObject(seen.cluster_names),
        "workspace_names": SimpleLazyObject(lambda: _of_reader(request, selectors.workspace_names)),
        "account_names": SimpleLazyObject(lambda: _of_reader(request, account_names)),
    }


def _of_reader(request: HttpRequest, names: Callable[[User], dict[str, str]]) -> dict[str, str]:
    """Of what the reader sees; nothing for a stranger. One query."""
    user = getattr(request, "user", None)
    return names(user) if user is not None and user.is_authenticated else {}


def account_names(user: User) -> dict[str, str]:
    """Slug → name, of the accounts in which somebody sees something, archived ones too."""
    rows = selectors.visible_accounts(user, include_archived=True)
    return dict(rows.values_list("slug", "name"))


def _shell(request: HttpRequest) -> Shell | None:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    roles = selectors.roles_of(user)
    overview = [("Overview", "home")] if roles.is_admin else []
    sections = [_entry(request, *entry) for entry in (*overview, *OWN)]
    if not roles.is_admin and request.path == reverse("home"):  # which shows them
        sections[0] = replace(sections[0], is_current=True)
    if roles.is_finance:
        sections.append(_entry(request, "Approvals", "approvals", waiting_for(user)))
    if roles.is_admin:
        waiting = selectors.visible_requests(user).count()
        sections.append(_entry(request, "Requests", "requests", waiting))
        sections.append(_group(request, "Platform", PLATFORM))
    elif roles.sees_everything:
        sections.append(_entry(request, "Fleet", "fleet"))
    sections.append(_group(request, "More", MORE))
    if settings.PORTAL_DEMO:
        sections.append(_entry(request, "Try this", "tour"))
    return Shell(roles=roles, sections=tuple(sections))


def _group(request: HttpRequest, title: str, entries: tuple[tuple[str, str], ...]) -> MenuEntry:
    parts = tuple(_entry(request, *entry) for entry in entries)
    return MenuEntry(title, "", is_current=any(part.is_current for part in parts), parts=parts)


def _entry(request: HttpRequest, title: str, name: str, count: int = 0) -> MenuEntry:
    url = reverse(name)
    is_whole = name in ("home", "fleet")
    is_current = request.path == url if is_whole else request.path.startswith(url)
    if name == "billing" and request.path.startswith(reverse("approvals")):
        is_current = False
    return MenuEntry(title=title, url=url, is_current=is_current, count=count)
