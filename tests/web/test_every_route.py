"""Every address of pages and API, found in the router, by everybody to whom nothing of it belongs.

A route that is added is asked too; one whose address has a part that nothing here fills fails, and
so does one that names nothing. What an address may be asked besides (filters, orders, formats) is
heard from the views themselves, as they read it; pages are asked whole and as HTMX asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth import SESSION_KEY
from django.http import QueryDict
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from budgets import services
from budgets.models import (
    AuditEntry,
    BillingPeriod,
    Discrepancy,
    Export,
    ExportPlan,
    GroupRule,
    Membership,
    SavedView,
    Statement,
    StatementLine,
)
from budgets.selectors.billing import month_at
from budgets.services import billing
from clusters import services as enrolment
from tests.builders import agreed, hours
from tests.web.conftest import DRAWN_ANEW, Visitors
from tests.web.test_query_counts import busy  # noqa: F401  a fixture

pytestmark = pytest.mark.usefixtures("unlimited")
READERS = ("admin", "finance", "owner")
METHODS = ("get", "post", "put", "patch", "delete")
PARTS: tuple[dict[str, str], ...] = ({}, {"HX-Request": "true"})
"""A whole page, and the part of it that HTMX asks for."""
# Of what addresses name, no row is made here: whose it is has tests of its own.
ELSEWHERE = {
    "api/v1/what-if/<uuid:pk>",
    "api/v1/workspaces/<slug:namespace>/budget/spend-rules/<int:pk>",
    "api/v1/exports/<int:pk>/file",  # not written yet
    "exports/<int:export_id>/file/",
    "tour/",  # of the demo alone
    "exports/<int:export_id>/about/",
    "clusters/<slug:slug>/<slug:change>/",  # a POST
    "metrics",  # for a bearer of its token
    "signin/<slug:provider>/",  # no provider is named in the settings
    "signin/<slug:provider>/back/",
}
# Whose answer to a GET is nobody's secret.
OPEN = {"login/", "healthz", "readyz"}
# What everybody may do, with what is their own.
OWN = {
    *("logout/", "password/", "profile/", "second-factor/", "tokens/", "login/", "exports/"),
    "api/v1/login",
}
# What everybody signed in may read: the prices of all.
SHARED = {"api/v1/rate-cards/<int:pk>", "billing/rates/<int:key>/"}
# Its examples have names.
DOCUMENT = "api/v1/schema"
PART = re.compile(r"<(?:(\w+):)?(\w+)>")
OF_A_ROW = re.compile(r"<(?:int|uuid):")
# What stands in an address for whom: a part's name, or the word before it.
BEFORE = {
    "accounts": "acme",
    "flavors": "h100",
    "pools": "acme-extra",
    "topologies": "racks",
    "clusters": "gpu-east",
    "workloads": "manager",
}
NAMED = {
    "namespace": "acme-vision", "cluster": "manager", "uid": "uid-0", "username": "olga",
    "account": "acme", "change": "writing", "name": "2026-11",
    "provider": "corp",
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


def address_of(route: str, numbers: dict[str, Any]) -> str:
    """An address that is somebody else's.

    Args:
        numbers: Of a row by the word before it; others are asked for their first.
    """

    def filled(part: re.Match[str]) -> str:
        kind, name = part[1] or "str", part[2]
        word = route[: part.start()].rstrip("/").rpartition("/")[2]
        if kind == "uuid":
            return str(numbers.get(word, uuid4()))
        if kind == "int":
            return str(1 if name in NUMBERS else numbers.get(word, 1))
        return NAMED.get(name) or BEFORE[word]

    return "/" + PART.sub(filled, route)


@pytest.fixture
def theirs(busy: Visitors) -> dict[str, Any]:  # noqa: F811
    """Rows of acme that addresses name by number."""
    fleet = busy.fleet
    until = services.utc_now() + timedelta(days=1)
    token, _ = services.create_api_token(
        None, user=fleet.owner, name="ci", scope="read", expires_at=until
    )
    pool = services.create_pool(None, slug="acme-extra", name="Extra", account=fleet.acme)
    assert pool.slug == BEFORE["pools"]
    services.create_topology(None, slug=BEFORE["topologies"], name="Racks", levels=["rack"])
    plan = ExportPlan.objects.create(
        name="acme's", every="day", dataset="usage", format="csv", made_by=fleet.owner
    )
    operation = services.start_operation(fleet.owner, kind="export", subject="usage")
    made = Export.objects.create(
        operation=operation, requested_by=fleet.owner, dataset="usage", format="csv",
        period="2026-03", account="acme", scope=[fleet.vision.pk],
    )  # fmt: skip
    period = BillingPeriod.objects.create(name="2026-01", start=hours(0), end=hours(24))
    statement = Statement.objects.create(
        account=fleet.acme, period=period, currency="EUR", priced_in="EUR", payable=1
    )
    StatementLine.objects.create(
        statement=statement, position=1, workspace=fleet.vision, flavor="h100", kind="floor",
        gpu_seconds=3600, exact_text="1/1", amount=1,
    )  # fmt: skip
    Statement.objects.update(state="reviewed")
    Statement.objects.update(state="issued", number="S-1")
    begun = services.utc_now() - timedelta(hours=1)
    odd = Discrepancy.objects.create(
        kind="capacity", cluster="gpu-east", flavor="h100", start=begun, message="8 of 4"
    )
    window = enrolment.plan_maintenance(
        fleet.admin, cluster=None, flavor=fleet.flavors["h100"], starts_at=None, ends_at=until,
        drains=False, reason="a test",
    )  # fmt: skip
    month = month_at(services.utc_now())
    card, later = (
        billing.propose_rate_card(
            fleet.finance, name=name, currency="EUR",
            prices=[billing.PriceDraft("h100", price, "3", "0.5")],
        )
        for name, price in (("2026", "2.00"), ("2027", "2.20"))
    )  # fmt: skip
    agreed(billing.propose_activation(fleet.finance, card=card, valid_from=month.start))
    waits = billing.propose_activation(fleet.finance, card=later, valid_from=month.end)
    adjustment = billing.propose_adjustment(
        fleet.finance, account=fleet.acme, month=month.name, amount="5", reason="a test"
    )
    view = SavedView.objects.create(
        user=fleet.owner, page="jobs", name="acme's", query="workspace=acme-vision"
    )
    rule = GroupRule.objects.create(provider="corp", group="g", role="owner", account=fleet.acme)
    return {
        "views": view.pk,
        "groups": rule.pk,
        "group-rules": rule.pk,
        "operations": operation.pk,
        "exports": made.pk,
        "statements": statement.pk,
        "reconciliation": odd.pk,
        "discrepancies": odd.pk,
        "maintenance": window.pk,
        "rates": card.pk,
        "rate-cards": card.pk,
        "approvals": waits.pk,
        "proposals": waits.pk,
        "adjustments": adjustment.pk,
        "tokens": token.pk,
        "people": fleet.owner.pk,
        "members": Membership.objects.get(user=fleet.owner).pk,
        "plans": plan.pk,
        "export-plans": plan.pk,
    }


@pytest.mark.parametrize("role", ["stranger", "nobody", "anonymous"])
def test_nobody_reads_or_changes_what_is_not_theirs(
    busy: Visitors,  # noqa: F811
    theirs: dict[str, Any],
    role: str,
):
    user, wrong, client = busy.users[role], {}, Client()
    before = AuditEntry.objects.count()
    for route in ROUTES:
        address = address_of(route, theirs)
        for method, headers in product(METHODS, PARTS):
            if user is not None and SESSION_KEY not in client.session:
                client.force_login(user)
            send = getattr(client, method)
            answer = send(address, content_type="application/json", headers=headers)
            fault = _fault(answer, route, method, is_anonymous=user is None)
            if fault:
                wrong[f"{method.upper()} {address} {headers}"] = fault
    assert wrong == {}
    assert AuditEntry.objects.count() == before, "somebody changed something"
    assert len(ROUTES) > 150


# One of each: whose, which, and what of it.
ASKED = ("acme-vision", "acme", "train", "-created", "csv", "jobs", "yaml")
# Not told in the question, so that no answer just says it again.
TOLD = re.compile(r"Acme|Vision|train-\d|olga@")


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names that views looked for in the query of a GET."""
    found: set[str] = set()

    def listen(method: str) -> None:
        original = getattr(QueryDict, method)

        def asked(query: QueryDict, key: str, *rest: Any) -> Any:
            found.add(key)
            return original(query, key, *rest)

        monkeypatch.setattr(QueryDict, method, asked)

    for method in ("get", "getlist", "__getitem__", "__contains__"):
        listen(method)
    return found


def test_no_question_finds_what_is_not_theirs(
    busy: Visitors,  # noqa: F811
    theirs: dict[str, Any],
    heard: set[str],
):
    """Filters, orders, formats and parts of pages, by somebody who has a workspace of their own."""
    wrong, names = {}, set[str]()
    admin, stranger = busy["admin"], busy["stranger"]
    for route in ROUTES:
        if PART.search(route) or route in {"logout/", DOCUMENT}:
            continue  # of these the address itself is refused
        heard.clear()
        admin.get(f"/{route}")
        names |= heard
        queries = [{}, *({name: value} for name in sorted(heard) for value in ASKED)]
        for query in queries:
            for headers in PARTS:
                answer = stranger.get(f"/{route}", query, headers=headers)
                body = b"".join(answer) if answer.streaming else answer.content
                # Whether the broker answers is no question of rights.
                is_broken = answer.status_code >= 500 and route != "readyz"
                # Of the letters that a form's token is drawn from, four may be "Acme".
                text = DRAWN_ANEW.sub("", body.decode(errors="replace"))
                if is_broken or TOLD.search(text):
                    wrong[route, *query.items(), *headers] = answer.status_code
    assert wrong == {}
    assert names >= {"workspace", "account", "text", "sort", "format", "q", "cursor", "page"}


def test_every_address_is_of_something_that_is_there(
    busy: Visitors,  # noqa: F811
    theirs: dict[str, Any],
):
    """Else nobody is refused anything: who may read everything finds it."""
    missing = [
        route
        for route in ROUTES
        if route not in ELSEWHERE
        and {busy[role].get(address_of(route, theirs)).status_code for role in READERS} == {404}
    ]
    assert not missing, "\n".join(missing)


def _fault(answer: Any, route: str, method: str, *, is_anonymous: bool) -> str:
    body = b"".join(answer) if answer.streaming else answer.content
    if answer.status_code >= 500:
        return f"server error {answer.status_code}"
    # Of the letters that a form's token is drawn from, four may be "acme".
    told = DRAWN_ANEW.sub("", body.decode(errors="replace")).replace("/acme", "")
    if route != DOCUMENT and "acme" in told:
        return f"{answer.status_code} names what is another account's"
    is_found = method == "get" and answer.status_code == 200
    if is_found and OF_A_ROW.search(route) and (is_anonymous or route not in SHARED):
        return "finds what is another account's"
    if is_found and is_anonymous and route not in OPEN:
        return "open to everybody"
    is_done = answer.status_code < 300 and method != "get"
    if is_done and route not in OWN:
        return f"{answer.status_code}: it was done"
    return ""
