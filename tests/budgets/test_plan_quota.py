"""What a budget becomes, row by row of the table."""

from __future__ import annotations

import pytest

from budgets.plan import (
    ClusterPlace,
    QueueQuota,
    Spill,
    changed_subjects,
    plan_quota,
    short_form_lines,
    trying_order,
)
from tests.builders import PromisesBuilder, line, promises

MANAGER = ClusterPlace("hub", is_manager=True, workers=("east", "west"))
EAST = ClusterPlace("east", is_manager=False)
WEST = ClusterPlace("west", is_manager=False)


def queue(builder: PromisesBuilder, place: ClusterPlace = MANAGER):
    return plan_quota(builder.build(), place).queues[0]


def cohorts(builder: PromisesBuilder, place: ClusterPlace = MANAGER):
    return {cohort.name: cohort for cohort in plan_quota(builder.build(), place).cohorts}


@pytest.mark.parametrize(
    ("budget_line", "want"),
    [
        pytest.param(line("h100", 16, 32), QueueQuota(16, 16, 16), id="burst is the ceiling"),
        pytest.param(line("h100", 16, 16), QueueQuota(16, 0, 16), id="B = C forbids borrowing"),
        pytest.param(line("h100", 16, 32, 4), QueueQuota(16, 16, 4), id="lends only what it says"),
        pytest.param(line("h100", 0, 16), QueueQuota(0, 16, 0), id="burst alone"),
        pytest.param(line("h100", 0, 0), QueueQuota(0, 0, 0), id="dropped but still held"),
    ],
)
def test_manager_queue_has_always_three_numbers(budget_line, want):
    builder = promises().account("acme").workspace("acme", "vision", budget_line)
    assert queue(builder).quotas == {"h100": want}


@pytest.mark.parametrize(
    ("budget_line", "part", "want"),
    [
        pytest.param(line("h100", 16, 32), (16, 16), QueueQuota(16, 16, 16), id="whole floor here"),
        pytest.param(line("h100", 16, 32), (8, 4), QueueQuota(8, 24, 4), id="B - C_w"),
        pytest.param(line("h100", 16, 32), (0, 0), QueueQuota(0, 32, 0), id="nothing here"),
        pytest.param(
            line("h100", 16, 16), (8, 8), QueueQuota(8, 0, 8), id="B = C: 0 on every worker"
        ),
        pytest.param(line("h100", 0, 0), (0, 0), QueueQuota(0, 0, 0), id="dropped but still held"),
    ],
)
def test_worker_queue_carries_its_part_of_the_split(budget_line, part, want):
    builder = (
        promises()
        .account("acme")
        .workspace("acme", "vision", budget_line, split={("h100", "east"): part})
    )
    assert queue(builder, EAST).quotas == {"h100": want}


def test_queue_exists_on_every_worker_also_with_nothing():
    builder = promises().account("acme").workspace("acme", "vision")
    for place in (MANAGER, EAST, WEST):
        plan = queue(builder, place)
        assert (plan.name, plan.cohort, plan.flavors, plan.quotas) == (
            "acme-vision",
            "acme",
            (),
            {},
        )


def test_sixteen_committed_burst_32_prefer_spot():
    lines = short_form_lines(home_flavor="h100", committed=16, ceiling=32, preferred="h100-spot")
    builder = (
        promises()
        .account("acme")
        .workspace("acme", "vision", *lines, preference=("h100-spot", "h100"))
    )
    plan = queue(builder)
    assert plan.flavors == ("h100-spot", "h100")
    assert plan.quotas == {"h100": QueueQuota(16, 0, 16), "h100-spot": QueueQuota(0, 16, 0)}
    assert plan.try_next_flavor_before_borrowing is True
    assert sum(entry.ceiling for entry in lines) == 32


@pytest.mark.parametrize("preferred", [None, "", "h100"])
def test_short_form_without_another_preference_is_one_line(preferred):
    lines = short_form_lines(home_flavor="h100", committed=16, ceiling=32, preferred=preferred)
    assert lines == (line("h100", 16, 32),)


def test_spill_borrow_first_maps_to_borrowing_before_the_next_flavor():
    builder = (
        promises()
        .account("acme")
        .workspace("acme", "vision", line("h100", 8), spill=Spill.BORROW_FIRST)
    )
    assert queue(builder).try_next_flavor_before_borrowing is False


def test_trying_order_ignores_preferred_flavors_without_a_line():
    builder = promises().workspace(
        "acme", "vision", line("a", 1), line("b", 1), line("c", 1), preference=("c", "z")
    )
    assert trying_order(builder.build().workspaces[0]) == ("c", "a", "b")


def test_account_without_platform_pool_is_a_root_that_lists_every_pair():
    builder = (
        promises()
        .account("acme", pool={"h100": 8}, split={("h100", "east"): 8})
        .workspace("acme", "vision", line("a100", 8))
        .workspace("acme", "speech", line("l4", 0, 4))
    )
    manager = cohorts(builder)["acme"]
    assert manager.parent is None
    assert manager.quotas == {
        "a100": QueueQuota(0, None, None),
        "h100": QueueQuota(8, None, None),
        "l4": QueueQuota(0, None, None),
        "host": QueueQuota(0, None, None),
    }
    assert cohorts(builder, EAST)["acme"].quotas["h100"].nominal == 8
    assert cohorts(builder, WEST)["acme"].quotas["h100"].nominal == 0


def platform() -> PromisesBuilder:
    return (
        promises()
        .account("acme", pool={"h100": 8}, split={("h100", "east"): 8})
        .account("globex")
        .platform_pool(
            "shared",
            {"h100": 32, "spot": 16},
            shares={"acme": {"h100": 12}, "globex": {}},
            split={("h100", "east"): 24, ("h100", "west"): 8, ("spot", "west"): 16},
        )
        .workspace("acme", "vision", line("h100", 8, 32), line("a100", 8))
        .workspace("globex", "search", line("h100", 8, 32), line("spot", 0, 16))
    )


def test_platform_pool_is_a_parent_cohort_with_its_own_quota():
    for place, want in ((MANAGER, (32, 16)), (EAST, (24, 0)), (WEST, (8, 16))):
        pool = cohorts(platform(), place)["pool-shared"]
        assert pool.parent is None
        assert (pool.quotas["h100"].nominal, pool.quotas["spot"].nominal) == want


def test_tenants_of_a_platform_pool_never_lend_on_any_pair():
    for place in (MANAGER, EAST, WEST):
        found = cohorts(platform(), place)
        for name in ("acme", "globex"):
            assert found[name].parent == "pool-shared"
            assert {quota.lending_limit for quota in found[name].quotas.values()} == {0}
            assert "host" in found[name].quotas


def test_share_limits_borrowing_and_is_not_split():
    for place in (MANAGER, EAST, WEST):
        found = cohorts(platform(), place)
        assert found["acme"].quotas["h100"].borrowing_limit == 12
        assert found["acme"].quotas["a100"].borrowing_limit == 0, "the pool has none of it"
        assert found["globex"].quotas["h100"].borrowing_limit == 32, "no limit named: all of it"
        assert found["globex"].quotas["spot"].borrowing_limit == 16


def test_pools_come_before_accounts_and_names_are_sorted():
    plan = plan_quota(platform().build(), MANAGER)
    assert [cohort.name for cohort in plan.cohorts] == ["pool-shared", "acme", "globex"]
    assert [entry.name for entry in plan.queues] == ["acme-vision", "globex-search"]
    assert [cohort.subject for cohort in plan.cohorts] == [
        "pool:shared",
        "account:acme",
        "account:globex",
    ]


def test_changed_subjects_names_what_differs_and_nothing_else():
    base = promises().flavor("h100").account("acme").account("globex")
    before = base.workspace("acme", "vision", line("h100", 8)).workspace("globex", "search")
    same = base.workspace("acme", "vision", line("h100", 8)).workspace("globex", "search")
    more = base.workspace("acme", "vision", line("h100", 16)).workspace("globex", "search")
    pair = base.workspace("acme", "vision", line("l4", 8)).workspace("globex", "search")
    moved = base.workspace(
        "acme", "vision", line("h100", 8), split={("h100", "east"): (8, 8)}
    ).workspace("globex", "search")
    assert changed_subjects(before.build(), same.build()) == frozenset()
    assert changed_subjects(before.build(), more.build()) == {"budget:acme-vision"}
    assert changed_subjects(before.build(), moved.build()) == {"budget:acme-vision"}
    assert changed_subjects(before.build(), pair.build()) == {"budget:acme-vision", "account:acme"}
