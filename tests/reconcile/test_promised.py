"""Quota sync reads what rose, and knows what is in force as if it had read everything."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets import selectors, services
from budgets.models import Budget
from budgets.plan import Promises
from clusters.reconcile.context import registered
from clusters.reconcile.quota import wanted
from clusters.reconcile.quota.wanted import Promised, known_generations
from tests.builders import SmallFleet, line
from tests.reconcile.fleet_rows import register

pytestmark = pytest.mark.django_db


def marks() -> dict[str, int]:
    registration = registered("lab")
    assert registration is not None
    return known_generations(registration.facts)


def in_order(promises: Promises) -> list[list[Any]]:
    return [
        sorted(promises.flavors, key=lambda row: row.name),
        sorted(promises.accounts, key=lambda row: row.name),
        sorted(promises.pools, key=lambda row: row.name),
        sorted(promises.workspaces, key=lambda row: row.namespace),
        sorted(promises.topologies, key=lambda row: row.name),
    ]


@pytest.fixture
def lab(fleet: SmallFleet) -> SmallFleet:
    register("lab", "none", role="single", mode="kueue")
    fleet.revise(fleet.vision, line("h100", 8), line("l4", 2))
    fleet.revise(fleet.search, line("h100", 8))
    return fleet


@pytest.fixture
def scopes(monkeypatch: pytest.MonkeyPatch) -> list[set[str] | None]:
    """Which accounts were read, one reading after the other; None: all of them."""
    seen: list[set[str] | None] = []

    def read(*, accounts: frozenset[str] | None = None) -> Promises:
        seen.append(None if accounts is None else set(accounts))
        return selectors.promises_in_force(accounts=accounts)

    class Selectors:
        promises_in_force = staticmethod(read)

    monkeypatch.setattr(wanted, "selectors", Selectors)
    return seen


def deeds(lab: SmallFleet) -> list[tuple[Callable[[], object], set[str] | None]]:
    """What people do, and whose accounts have to be read for it."""
    new: dict[str, Any] = {}

    def found(name: str, make: Callable[[], object]) -> Callable[[], object]:
        return lambda: new.__setitem__(name, make())

    admin, h100, l4 = lab.admin, lab.flavors["h100"], lab.flavors["l4"]
    hold = {"policy": "Hold", "reason": "test"}
    return [
        (lambda: lab.revise(lab.vision, line("h100", 16, 24), line("a100", 4)), {"acme"}),
        (lambda: lab.revise(lab.search, line("l4", 2)), {"globex"}),
        (
            lambda: services.set_stop_policy(
                admin, budget=Budget.objects.get(workspace=lab.vision), **hold
            ),
            {"acme"},
        ),
        (
            lambda: services.weigh_workspace(admin, workspace=lab.speech, weight=Decimal(2)),
            {"acme"},
        ),
        (lambda: services.weigh_account(admin, account=lab.globex, weight=Decimal(3)), {"globex"}),
        (
            found("account", lambda: services.create_account(admin, slug="initech", name="I")),
            {"initech"},
        ),
        (
            found(
                "workspace",
                lambda: services.create_workspace(
                    admin, account=new["account"], slug="tps", name="T", home_flavor=h100
                ),
            ),
            {"initech"},
        ),
        (lambda: lab.revise(new["workspace"], line("h100", 4)), {"initech"}),
        (found("pool", lambda: services.create_pool(admin, slug="shared", name="Shared")), None),
        (lambda: services.set_pool_amount(admin, pool=new["pool"], flavor=l4, gpus=2), None),
        (
            lambda: services.set_pool_share(
                admin, pool=new["pool"], account=lab.globex, limits={"l4": 1}
            ),
            {"globex"},
        ),
        (
            found(
                "racks",
                lambda: services.create_topology(
                    admin, slug="racks", name="Racks", levels=("kubernetes.io/hostname",)
                ),
            ),
            None,
        ),
        (lambda: services.give_topology(admin, flavor=h100, topology=new["racks"]), None),
        (
            lambda: services.archive_workspace(admin, workspace=lab.search, reason="test"),
            {"globex"},
        ),
    ]


def test_what_is_read_in_part_is_all_that_is_in_force(
    lab: SmallFleet, scopes: list[set[str] | None]
) -> None:
    promised = Promised()
    promised.newest(marks())
    assert scopes == [None]
    for number, (deed, whom) in enumerate(deeds(lab)):
        scopes.clear()
        deed()
        services.advance_in_force()
        found = promised.newest(marks())
        assert in_order(found) == in_order(selectors.promises_in_force()), f"deed {number}"
        assert scopes == [whom], f"deed {number}"


def test_where_nothing_rose_nothing_is_asked(lab: SmallFleet) -> None:
    promised = Promised()
    before, known = promised.newest(marks()), marks()
    with CaptureQueriesContext(connection) as asked:
        found = promised.newest({**known, "cluster:lab": 99})
    assert (found is before, len(asked)) == (True, 0)


def test_reading_that_failed_is_done_again(
    lab: SmallFleet, scopes: list[set[str] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    promised = Promised()
    promised.newest(marks())
    lab.revise(lab.vision, line("h100", 16))
    scopes.clear()
    with monkeypatch.context() as patch:
        patch.setattr(wanted.selectors, "promises_in_force", lambda **_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            promised.newest(marks())
    found = promised.newest(marks())
    assert in_order(found) == in_order(selectors.promises_in_force())
    assert scopes == [{"acme"}]
