"""Every address of pages and API, found in the router, by everybody to whom nothing of it belongs.

A route that is added is asked too; one whose address has a part that nothing here fills fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth import SESSION_KEY
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from budgets import services
from budgets.models import AuditEntry, ExportPlan, Membership
from tests.web.conftest import Visitors
from tests.web.test_query_counts import busy  # noqa: F401  a fixture

METHODS = ("get", "post", "put", "patch", "delete")
# Whose answer to a GET is nobody's secret.
OPEN = {"login/", "healthz", "readyz"}
# What everybody may do, with what is their own.
OWN = {"logout/", "password/", "profile/", "tokens/", "login/", "exports/", "api/v1/login"}
# Its examples have names.
DOCUMENT = "api/v1/schema"
PART = re.compile(r"<(?:(\w+):)?(\w+)>")
# What stands in an address for whom: a part's name, or the word before it.
BEFORE = {
    "accounts": "acme",
    "flavors": "h100",
    "pools": "acme-extra",
    "clusters": "gpu-east",
    "workloads": "manager",
}
NAMED = {
    "namespace": "acme-vision", "cluster": "manager", "uid": "uid-0", "username": "olga",
    "account": "acme", "change": "writing", "name": "2026-11",
}  # fmt: skip
NUMBERS = {"number", "other", "position"}


def routes(found: list[Any], before: str = "") -> Iterator[str]:
    """Routes of the portal's own: Django's admin shows rows to its staff alone."""
    for item in found:
        address = before + str(item.pattern)
        if isinstance(item, URLResolver) and address != "admin/":
            yield from routes(item.url_patterns, address)
        elif isinstance(item, URLPattern) and "^" not in address:
            yield address


ROUTES = sorted(set(routes(get_resolver().url_patterns)))


def address_of(route: str, numbers: dict[str, int]) -> str:
    """An address that is somebody else's.

    Args:
        numbers: Of a row by the word before it; others are asked for their first.
    """

    def filled(part: re.Match[str]) -> str:
        kind, name = part[1] or "str", part[2]
        word = route[: part.start()].rstrip("/").rpartition("/")[2]
        if kind == "uuid":
            return str(uuid4())
        if kind == "int":
            return str(1 if name in NUMBERS else numbers.get(word, 1))
        return NAMED.get(name) or BEFORE[word]

    return "/" + PART.sub(filled, route)


@pytest.fixture
def theirs(busy: Visitors) -> dict[str, int]:  # noqa: F811
    """Rows of acme that addresses name by number."""
    fleet = busy.fleet
    until = services.utc_now() + timedelta(days=1)
    token, _ = services.create_api_token(
        None, user=fleet.owner, name="ci", scope="read", expires_at=until
    )
    pool = services.create_pool(None, slug="acme-extra", name="Extra", account=fleet.acme)
    assert pool.slug == BEFORE["pools"]
    plan = ExportPlan.objects.create(
        name="acme's", every="day", dataset="usage", format="csv", made_by=fleet.owner
    )
    return {
        "tokens": token.pk,
        "people": fleet.owner.pk,
        "members": Membership.objects.get(user=fleet.owner).pk,
        "plans": plan.pk,
        "export-plans": plan.pk,
    }


@pytest.mark.parametrize("role", ["stranger", "nobody", "anonymous"])
def test_nobody_reads_or_changes_what_is_not_theirs(
    busy: Visitors,  # noqa: F811
    theirs: dict[str, int],
    role: str,
):
    user, wrong, client = busy.users[role], {}, Client()
    before = AuditEntry.objects.count()
    for route in ROUTES:
        address = address_of(route, theirs)
        for method in METHODS:
            if user is not None and SESSION_KEY not in client.session:
                client.force_login(user)
            answer = getattr(client, method)(address, content_type="application/json")
            fault = _fault(answer, route, method, is_anonymous=user is None)
            if fault:
                wrong[f"{method.upper()} {address}"] = fault
    assert wrong == {}
    assert AuditEntry.objects.count() == before, "somebody changed something"
    assert len(ROUTES) > 150


def _fault(answer: Any, route: str, method: str, *, is_anonymous: bool) -> str:
    body = b"".join(answer) if answer.streaming else answer.content
    if answer.status_code >= 500:
        return f"server error {answer.status_code}"
    if route != DOCUMENT and b"acme" in body.replace(b"/acme", b""):
        return f"{answer.status_code} names what is another account's"
    if is_anonymous and method == "get" and answer.status_code == 200 and route not in OPEN:
        return "open to everybody"
    is_done = answer.status_code < 300 and method != "get"
    if is_done and route not in OWN:
        return f"{answer.status_code}: it was done"
    return ""
