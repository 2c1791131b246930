"""Accounts, flavors, capacity, pools, envelopes."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
import time_machine
from django.core.exceptions import ValidationError

from budgets import selectors, services
from budgets.errors import NotAllowed, Rejected
from budgets.models import Account, Flavor, MeasuredCapacity, Pool, Role, Workspace
from tests.builders import SmallFleet, hours, line

pytestmark = pytest.mark.django_db


def codes(error: Rejected) -> set[tuple[str, str]]:
    return {(fault.field, fault.code) for fault in error.faults}


def generations() -> dict[str, int]:
    rows = {}
    for model, kind in ((Account, "account"), (Flavor, "flavor"), (Pool, "pool")):
        rows |= {f"{kind}:{r.slug}": r.generation for r in model.objects.all()}
    return rows | {
        f"budget:{w.namespace}": w.budget.generation
        for w in Workspace.objects.select_related("budget")
    }


def raised(before: dict[str, int]) -> set[str]:
    return {key for key, value in generations().items() if value != before.get(key, value)}


def test_slugs_are_checked_and_never_change(fleet: SmallFleet):
    for slug in ("a-b", "Acme", "9a", "kube", "acme", ""):
        with pytest.raises(Rejected) as caught:
            services.create_account(fleet.admin, slug=slug, name="X")
        assert {field for field, _ in codes(caught.value)} == {"slug"}
    fleet.acme.refresh_from_db()
    fleet.acme.slug = "other"
    with pytest.raises(ValidationError):
        fleet.acme.save()
    assert set(Account.objects.values_list("slug", flat=True)) == {"acme", "globex"}


def test_namespace_is_at_most_63_characters(fleet: SmallFleet):
    account = services.create_account(None, slug="a" * 30, name="A")
    make = {"account": account, "name": "W", "home_flavor": fleet.flavors["h100"]}
    with pytest.raises(Rejected) as caught:
        services.create_workspace(fleet.admin, slug="w" * 33, **make)
    assert codes(caught.value) == {("slug", "namespace_too_long")}
    assert len(services.create_workspace(fleet.admin, slug="w" * 32, **make).namespace) == 63


def test_edit_flavor_raises_its_generation_only_when_an_object_changes(fleet: SmallFleet):
    before = generations()
    services.edit_flavor(fleet.admin, flavor=fleet.flavors["l4"], name="Lovelace", position=9)
    assert raised(before) == set()
    services.edit_flavor(fleet.admin, flavor=fleet.flavors["l4"], node_labels={"gpu": "l4b"})
    assert raised(before) == {"flavor:l4"}


def test_edit_flavor_reports_all_faults_at_once(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("l4", 8))
    with pytest.raises(Rejected) as caught:
        services.edit_flavor(
            fleet.admin,
            flavor=fleet.flavors["l4"],
            slug="x",
            gpus_per_node=0,
            oversubscription_factor=Decimal("0.5"),
            node_taints=[{"key": "a", "effect": "Sometimes"}],
            tolerations=[{"name": "x"}],
            resource_name="amd.com/gpu",
        )
    assert codes(caught.value) >= {
        ("slug", "not_editable"),
        ("gpus_per_node", "min_value"),
        ("node_taints.0", "not_a_taint"),
        ("tolerations.0", "unknown_key"),
        ("resource_name", "still_promised"),
    }
    fleet.flavors["l4"].refresh_from_db()
    assert fleet.flavors["l4"].gpus_per_node == 8


def test_archive_flavor_needs_nothing_promised_now_or_later(fleet: SmallFleet):
    later = selectors.utc_now() + timedelta(days=9)
    fleet.revise(fleet.vision, line("l4", 8), valid_from=later)
    with pytest.raises(Rejected) as caught:
        services.archive_flavor(fleet.admin, flavor=fleet.flavors["l4"], reason="old")
    assert "workspace Vision" in str(caught.value)
    services.archive_flavor(fleet.admin, flavor=fleet.flavors["a100"], reason="old")
    with pytest.raises(Rejected, match="archived"):
        fleet.revise(fleet.vision, line("a100", 8))


def test_archive_account_needs_its_workspaces_archived(fleet: SmallFleet):
    with pytest.raises(Rejected) as caught:
        services.archive_account(fleet.admin, account=fleet.acme, reason="gone")
    assert len(caught.value.faults) == 2
    for workspace in (fleet.vision, fleet.speech):
        services.archive_workspace(fleet.admin, workspace=workspace, reason="gone")
    services.archive_account(fleet.admin, account=fleet.acme, reason="gone")
    assert [a.name for a in selectors.promises_in_force().accounts] == ["globex"]


def test_capacity_windows_and_measurements(fleet: SmallFleet):
    h100 = fleet.flavors["h100"]
    services.record_measured_capacity(
        cluster="gpu-east", rows={"h100": (24, 8, 16, 3), "nope": (1, 1, 1, 1)}
    )
    services.record_measured_capacity(cluster="gpu-new", rows={"h100": (8, 0, 0, 1)})
    now = selectors.utc_now()
    assert selectors.capacity_at(now, flavors=["h100"]) == {
        ("gpu-east", "h100"): 32,
        ("gpu-west", "h100"): 16,
        ("gpu-new", "h100"): 8,
    }
    with pytest.raises(Rejected) as caught:
        services.set_capacity(
            fleet.admin,
            cluster="No Slug",
            flavor=h100,
            gpus=-1,
            valid_from=now - timedelta(days=1),
        )
    assert {field for field, _ in codes(caught.value)} == {"cluster", "gpus", "valid_from"}
    services.set_capacity(
        fleet.admin,
        cluster="gpu-east",
        flavor=h100,
        gpus=0,
        valid_from=now + timedelta(hours=1),
        valid_until=now + timedelta(hours=2),
        reason="maintenance",
    )
    seen = [selectors.capacity_at(now + timedelta(hours=h))["gpu-east", "h100"] for h in (0, 1, 2)]
    assert seen == [32, 0, 32]
    services.record_measured_capacity(cluster="gpu-east", rows={"h100": (32, 0, 0, 4)})
    assert MeasuredCapacity.objects.get(cluster="gpu-east").ready_gpus == 32
    services.retire_capacity(fleet.admin, cluster="gpu-east", reason="gone")
    assert ("gpu-east", "h100") not in selectors.capacity_at(now + timedelta(hours=1))


def test_account_pool_stands_on_workers_and_raises_the_account(fleet: SmallFleet):
    pool = services.create_pool(fleet.admin, slug="acme-pool", name="Pool", account=fleet.acme)
    before = generations()
    services.set_pool_amount(fleet.admin, pool=pool, flavor=fleet.flavors["h100"], gpus=8)
    assert raised(before) == {"account:acme"}
    account = next(a for a in selectors.promises_in_force().accounts if a.name == "acme")
    assert account.pool == {"h100": 8}
    assert sum(account.pool_split.values()) == 8


def test_account_pool_stays_within_the_envelope(fleet: SmallFleet):
    pool = services.create_pool(fleet.admin, slug="acme-pool", name="Pool", account=fleet.acme)
    with pytest.raises(Rejected) as caught:
        services.set_pool_amount(fleet.admin, pool=pool, flavor=fleet.flavors["h100"], gpus=9)
    assert codes(caught.value) == {("gpus", "exceeds_envelope")}
    with pytest.raises(NotAllowed):
        services.set_pool_amount(fleet.owner, pool=pool, flavor=fleet.flavors["h100"], gpus=8)
    services.grant_role(None, user=fleet.owner, role=Role.OWNER, account=fleet.acme)
    services.set_pool_amount(fleet.owner, pool=pool, flavor=fleet.flavors["h100"], gpus=8)
    pool.refresh_from_db()
    assert pool.in_force == {"h100": 8}


def test_pool_beyond_the_fleet_is_refused(fleet: SmallFleet):
    pool = services.create_pool(fleet.admin, slug="shared", name="Shared")
    fleet.revise(fleet.vision, line("h100", 40))
    with pytest.raises(Rejected) as caught:
        services.set_pool_amount(fleet.admin, pool=pool, flavor=fleet.flavors["h100"], gpus=9)
    assert codes(caught.value) == {("gpus", "exceeds_capacity")}
    assert not pool.amounts.exists()


def test_platform_pool_shares_and_their_generations(fleet: SmallFleet):
    pool = services.create_pool(fleet.admin, slug="shared", name="Shared")
    services.set_pool_amount(fleet.admin, pool=pool, flavor=fleet.flavors["h100-spot"], gpus=16)
    before = generations()
    share = services.set_pool_share(
        fleet.admin, pool=pool, account=fleet.acme, limits={"h100-spot": 8}
    )
    assert raised(before) == {"account:acme"}
    with pytest.raises(Rejected) as caught:
        services.set_pool_share(
            fleet.admin,
            pool=pool,
            account=fleet.acme,
            limits={"nope": 1, "h100": -1, "h100-spot": 10**4_000},
        )
    assert codes(caught.value) == {
        ("limits.nope", "unknown_flavor"),
        ("limits.h100", "not_whole_gpus"),
        ("limits.h100-spot", "not_whole_gpus"),
    }
    services.remove_pool_share(fleet.admin, share=share)
    services.archive_pool(fleet.admin, pool=pool, reason="over")
    assert selectors.promises_in_force().pools == ()
    assert selectors.fleet_grid(fleet.admin).totals["h100-spot"].promised == 0


def test_scheduled_pool_amount_takes_effect_at_its_edge(fleet: SmallFleet):
    with time_machine.travel(hours(0), tick=False) as clock:
        pool = services.create_pool(fleet.admin, slug="shared", name="Shared")
        services.set_pool_amount(
            fleet.admin,
            pool=pool,
            flavor=fleet.flavors["h100"],
            gpus=8,
            valid_from=hours(1),
            valid_until=hours(2),
        )
        seen = []
        for hour in (0, 1, 2):
            clock.move_to(hours(hour), tick=False)
            services.advance_in_force()
            pool.refresh_from_db()
            seen.append((pool.in_force, pool.generation))
    assert seen == [({}, 1), ({"h100": 8}, 2), ({}, 3)]
