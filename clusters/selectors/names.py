"""The names that a reader may see, by role; other names of the database stay out of texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from django.db.models import F, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat

from budgets.models import Account, Flavor, Pool, Topology, User, Workspace
from budgets.plan import POOL_PREFIX
from budgets.selectors import roles_of
from clusters.explaining.names import Names
from clusters.models import Cluster


def every_name() -> Names:
    """What who sees everything calls others, and a command on the server. One query."""
    found = _names(
        *_things(),
        _rows("clusters", Cluster.objects.all(), F("slug"), F("name")),
        _rows("queues", Account.objects.all(), F("slug"), Concat(Value("account "), F("name"))),
        _rows(
            "queues",
            Pool.objects.filter(account__isnull=True),
            Concat(Value(POOL_PREFIX), F("slug")),
            Concat(Value("platform pool "), F("name")),
        ),
        _rows(
            "queues",
            Workspace.objects.all(),
            F("namespace"),
            Concat(Value("workspace "), F("name"), Value(" of "), F("account__name")),
        ),
    )
    return Names(None, foreign=frozenset(), **found)


def reader_names(user: User) -> Names:
    """What a reader may call others; two queries for who sees everything, else four."""
    roles = roles_of(user)
    if roles.sees_everything:
        return every_name()
    named = _names(*_things())
    seen: dict[str, str] = {}
    accounts: dict[str, str] = {}
    hidden: set[str] = set()
    rows = Workspace.objects.order_by().values_list(
        "pk", "account_id", "namespace", "name", "account__slug", "account__name"
    )
    for key, account_id, namespace, name, slug, account in rows:
        if roles.sees_workspace(key, account_id):
            seen[namespace] = name
            accounts[slug] = account
        else:
            hidden |= {namespace, slug}
    pools = Pool.objects.filter(account__isnull=True).order_by().values_list("slug", flat=True)
    for slug in pools:
        hidden |= {slug, f"{POOL_PREFIX}{slug}"}
    return Names(
        seen,
        accounts=accounts,
        flavors=named["flavors"],
        topologies=named["topologies"],
        foreign=frozenset(hidden - accounts.keys() - named["flavors"].keys()),
    )


def _things() -> list[QuerySet[Any, Any]]:
    """What has the same name for everybody."""
    return [
        _rows("flavors", Flavor.objects.all(), F("slug"), F("name")),
        _rows("topologies", Topology.objects.all(), F("slug"), F("name")),
    ]


def _rows(kind: str, rows: QuerySet[Any], key: Any, name: Any) -> QuerySet[Any, Any]:
    """Rows of (kind, key, name), of one type whatever they are of, so that they can be joined."""
    columns = {"told_kind": Value(kind), "told_key": key, "told_name": name}
    texts = {column: Cast(value, TextField()) for column, value in columns.items()}
    found: QuerySet[Any, Any] = rows.order_by().annotate(**texts).values_list(*texts)
    return found


def _names(first: QuerySet[Any, Any], *others: QuerySet[Any, Any]) -> Mapping[str, dict[str, str]]:
    """Kind → key → name. One query."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for kind, key, name in first.union(*others, all=True):
        found[kind][key] = name
    return found
