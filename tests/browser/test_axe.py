"""Every page of the router, by everybody who may read it, light and dark: axe finds nothing.

Which pages there are, and an address of each, is what the test of every route says: a page that is
added is looked at, and one that nobody here can open fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from budgets.models import MeterState
from budgets.services import utc_now
from clusters.models import Cluster
from portal.cluster_changes import CHANGES
from tests.browser import axe
from tests.browser.conftest import serving
from tests.browser.windows import settle
from tests.controlplane.processes import free_port
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
    "views/<int:key>/delete/",
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


@pytest.fixture(scope="module")
def server(django_db_setup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The portal as elsewhere, and the pages that the demo alone has."""
    with serving(tmp_path_factory.mktemp("static"), free_port(), PORTAL_DEMO="true") as address:
        yield address


@pytest.fixture
def gone(busy: Visitors) -> None:
    """A worker that is registered no more and of which something is left."""
    Cluster.objects.create(
        slug="gone", name="gone", role="worker", mode="kueue", state=Cluster.State.REMOVED,
        server="https://gone.invalid", context="x", user_kind="token", kubeconfig_sealed=b"x",
    )  # fmt: skip
    MeterState.objects.create(cluster="gone")


def test_axe_finds_nothing_on_any_page(visit, thawed, busy: Visitors, theirs: dict[str, Any], gone):
    routes = {
        OWN.get(route) or address_of(route, theirs): route
        for route in ROUTES
        if not route.startswith("api/")
    }
    files = {address for address, route in routes.items() if route in NO_PAGES}
    assert not [file for file in files for role in READERS if _is_page(busy[role].get(file))]
    more = (f"/billing/months/{utc_now():%Y-%m}/?checks=1", *MORE)
    addresses = [*(address for address in routes if address not in files), *more]

    faults: dict[tuple[str, str, str], list[str]] = {}
    asked, seen, looks = set[str](), set[str](), 0
    for role in READERS:
        watched = visit()
        watched.expected += ["403", "404", "405"]
        page = watched.page
        for address in ("/login/", *addresses):
            answer = page.goto(watched.base + address)
            assert answer is not None and answer.status < 500, address
            # A refusal is one page for all that are refused.
            if answer.status == 200 or address == "/nothing/":
                settle(page)
                found, rules = axe.in_both_schemes(page)
                faults |= {(role, address, scheme): words for scheme, words in found.items()}
                asked |= rules
                seen.add(address)
                looks += 1
            if address == "/login/":
                watched.sign_in(PEOPLE[role])
        page.close()
    assert not faults, "\n".join(f"{place}: {found}" for place, found in faults.items())
    assert set(routes) - seen == files - {"/login/"}
    assert len(asked) > 60
    assert looks > 120


def _is_page(answer: Any) -> bool:
    kind = answer.headers.get("Content-Type", "")
    return answer.status_code == 200 and kind.startswith("text/html")
