"""What a person may see and has some words in its name: jobs, workspaces, people and the rest.

Each kind is asked through the selector that its own pages stand on, so nothing is found here that
is not found there, and no more than the beginning of each is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q, QuerySet

from budgets.models import User
from budgets.selectors import roles_of, visible_flavors, visible_workspaces
from budgets.selectors.billing import visible_statements
from clusters.selectors.fleet import visible_clusters
from clusters.selectors.workloads import visible_states

MOST: Final = 8
SHORTEST, LONGEST = 2, 100


@dataclass(frozen=True, slots=True)
class Found:
    """Things of one kind: at most :data:`MOST` of them, and whether there are more.

    Attributes:
        kind: A key of :data:`KINDS`.
        rows: Of the model of that kind.
        is_cut: Whether more would fit.
    """

    kind: str
    rows: tuple[Any, ...]
    is_cut: bool


def search(user: User, text: str) -> list[Found]:
    """What fits some words, kind by kind; kinds of which nothing fits are left out. Ten queries.

    Args:
        user: The reader.
        text: Part of a name, without regard to case; every word has to fit. Fewer than
            :data:`SHORTEST` characters find nothing, what is beyond :data:`LONGEST` is cut.
    """
    words = text.strip()[:LONGEST].split()
    if sum(map(len, words)) < SHORTEST:
        return []
    found = []
    for kind, (rows, names) in KINDS.items():
        wanted = rows(user)
        for word in words:
            wanted = wanted.filter(_any_of(names, word))
        hits = tuple(wanted[: MOST + 1])
        if hits:
            found.append(Found(kind, hits[:MOST], len(hits) > MOST))
    return found


def visible_people(user: User) -> QuerySet[User]:
    """Everybody with a login, for platform admins, whose pages have them; nobody for others."""
    found = User.objects.order_by("username")
    return found if roles_of(user).is_admin else found.none()


def _any_of(names: Iterable[str], word: str) -> Q:
    found = Q()
    for name in names:
        found |= Q(**{f"{name}__icontains": word})
    return found


def _workspaces(user: User) -> QuerySet[Any]:
    return visible_workspaces(user, include_archived=True)


def _jobs(user: User) -> QuerySet[Any]:
    return visible_states(user).filter(is_remote_copy=False).order_by("-created_at", "-pk")


def _clusters(user: User) -> QuerySet[Any]:
    return visible_clusters(user).without_secrets()


KINDS: Final[Mapping[str, tuple[Callable[[User], QuerySet[Any]], tuple[str, ...]]]] = {
    "workspace": (_workspaces, ("name", "namespace", "account__name")),
    "job": (_jobs, ("job_name", "name", "uid")),
    "person": (visible_people, ("username", "first_name", "last_name", "email")),
    "cluster": (_clusters, ("name", "slug")),
    "flavor": (visible_flavors, ("name", "slug")),
    "statement": (visible_statements, ("number", "account__name", "account__slug", "period__name")),
}
"""Kind → what of it somebody may see, and the columns in which words are looked for."""
