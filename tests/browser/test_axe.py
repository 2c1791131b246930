"""Every page of the router, by everybody who may read it, light and dark: axe finds nothing.

Which pages there are, and an address of each, is what the test of every route says: a page that is
added is looked at, and one that nobody here can open fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from playwright.sync_api import Page, expect

from budgets.models import MeterState
from budgets.services import utc_now
from clusters.models import Cluster
from portal.cluster_changes import CHANGES
from tests.browser import axe
from tests.web.conftest import Visitors, visitors
from tests.web.test_every_route import READERS, ROUTES, address_of, theirs
from tests.web.test_query_counts import busy

__all__ = ["busy", "theirs", "visitors"]  # fixtures

PEOPLE = dict(zip(READERS, ("ada", "fin", "olga"), strict=True))
# Answered with a file, with a line for a machine, or only when something is sent.
NO_PAGES = {
    "billing/statements/<int:key>/pdf/",
    "clusters/<slug:slug>/preflight/",
    "clusters/<slug:slug>/rights.yaml",
    "exports/<int:export_id>/about/",
    "exports/<int:export_id>/file/",
    "exports/plans/<int:plan_id>/remove/",
    "healthz",
    "jobs/act/<int:key>/withdraw/",
    "login/",  # for who is out: looked at before each sign-in
    "logout/",
    "metrics",
    "readyz",
    "signin/<slug:provider>/",  # a redirection to a company's own page, and the way back
    "signin/<slug:provider>/back/",
    "tokens/<int:token_id>/revoke/",
    "workspaces/<slug:namespace>/budget/check/",
}
# Where the address that is somebody else's is none that has a page.
OWN = {
    "clusters/<slug:slug>/<slug:change>/": "/clusters/gpu-east/rename/",
    "clusters/<slug:slug>/take-back/": "/clusters/gone/take-back/",
    "jobs/act/": "/jobs/act/?verb=deactivate&job=manager/uid-1",
    "workspaces/<slug:namespace>/history/<int:number>/decide/": (
        "/workspaces/acme-vision/history/3/decide/"
    ),
}
# What a route alone does not show: another key of a table, what was chosen, a refusal.
MORE = (
    "/jobs/?select=on",
    "/nothing/",
    "/search/?q=train",
    "/usage/?days=7&split=class",
    "/usage/?days=7&split=workspace",
    *(f"/clusters/gpu-east/{change}/" for change in CHANGES if change != "rename"),
)
UNSETTLED = ".htmx-request, [hx-trigger=load], [data-chart]:not([data-drawn])"


@pytest.fixture
def thawed(transactional_db) -> Iterator[None]:
    """Rows that the database lets nobody remove are gone with the test all the same."""
    yield
    if connection.vendor != "sqlite":
        return  # other databases empty a table without asking a trigger
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        triggers = cursor.fetchall()
        for name, _ in triggers:
            cursor.execute(f'DROP TRIGGER "{name}"')
        try:
            call_command("flush", interactive=False, verbosity=0, inhibit_post_migrate=True)
        finally:
            for _, sql in triggers:
                cursor.execute(sql)


@pytest.fixture
def gone(busy: Visitors) -> None:
    """A worker that is registered no more and of which something is left."""
    Cluster.objects.create(
        slug="gone", name="gone", role="worker", mode="kueue", state=Cluster.State.REMOVED,
        server="https://gone.invalid", context="x", user_kind="token", kubeconfig_sealed=b"x",
    )  # fmt: skip
    MeterState.objects.create(cluster="gone")


@pytest.mark.slow
def test_axe_finds_nothing_on_any_page(visit, thawed, busy: Visitors, theirs: dict[str, Any], gone):
    routes = {
        OWN.get(route) or address_of(route, theirs): route
        for route in ROUTES
        if not route.startswith("api/")
    }
    more = (f"/billing/months/{utc_now():%Y-%m}/?checks=1", *MORE)
    pages = {role: list(_pages(busy[role], [*routes, *more])) for role in READERS}
    unseen = set(routes) - {address for found in pages.values() for address in found}
    assert {routes[address] for address in unseen} == NO_PAGES

    faults: dict[tuple[str, str, str], list[str]] = {}
    asked: set[str] = set()
    for role, addresses in pages.items():
        watched = visit()
        watched.expected.append("404")
        page = watched.open("/login/")
        faults |= _looks(page, role, "/login/", asked)
        watched.sign_in(PEOPLE[role])
        for address in addresses:
            watched.open(address)
            expect(page.locator(UNSETTLED)).to_have_count(0)
            faults |= _looks(page, role, address, asked)
        page.close()
    assert not faults, "\n".join(f"{place}: {found}" for place, found in faults.items())
    assert len(asked) > 60
    assert sum(map(len, pages.values())) > 120


def _pages(client: Client, addresses: list[str]) -> Iterator[str]:
    """Those that answer with a page; a refusal is one page for all that are refused."""
    for address in addresses:
        answer = client.get(address)
        is_page = answer.headers.get("Content-Type", "").startswith("text/html")
        if is_page and (answer.status_code == 200 or address == "/nothing/"):
            yield address


def _looks(
    page: Page, role: str, address: str, asked: set[str]
) -> dict[tuple[str, str, str], list[str]]:
    """One load, two looks: all rules, and those of color once more in the other scheme."""
    faults = {}
    axe.start(page)
    for scheme, tag in (("light", ""), ("dark", axe.OF_COLOR)):
        page.emulate_media(color_scheme=scheme)
        faults[role, address, scheme], rules = axe.look(page, tag)
        asked |= rules
    page.emulate_media(color_scheme="light")
    return {place: found for place, found in faults.items() if found}
