"""The names that a reader may see, by role; other names of the database stay out of texts."""

from __future__ import annotations

from budgets.models import Flavor, Pool, User, Workspace
from budgets.plan import POOL_PREFIX
from budgets.selectors import roles_of
from clusters.explaining.names import Names


def reader_names(user: User) -> Names:
    """What a reader may call others; two queries for who sees everything, else four."""
    roles = roles_of(user)
    flavors = dict(Flavor.objects.order_by().values_list("slug", "name"))
    if roles.sees_everything:
        return Names(None, flavors=flavors)
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
        flavors=flavors,
        foreign=frozenset(hidden - accounts.keys() - flavors.keys()),
    )
