"""What a ceiling can really reach, and whom a change touches."""

from __future__ import annotations

from budgets.plan import impact, reach
from tests.builders import line, promises


def test_reach_is_floor_plus_pool_plus_lenders_within_the_ceiling():
    built = (
        promises()
        .account("acme", pool={"h100": 4})
        .workspace("acme", "vision", line("h100", 8, 64))
        .workspace("acme", "speech", line("h100", 16, 16, 6))
        .workspace("globex", "search", line("h100", 99))
        .build()
    )
    (entry,) = reach(built, "acme-vision")
    assert (entry.reachable, entry.from_account_pool, entry.from_others) == (18, 4, 6)
    (capped,) = reach(
        promises()
        .account("acme", pool={"h100": 40})
        .workspace("acme", "v", line("h100", 8, 16))
        .build(),
        "acme-v",
    )
    assert (capped.reachable, capped.committed, capped.from_account_pool) == (16, 8, 8)


def test_parts_of_what_can_be_had_add_up_to_it():
    """20 of 20, 8 of them from the pool and 16 lent, is more than a reader can add up."""
    (entry,) = reach(
        promises()
        .account("acme", pool={"h100": 8})
        .platform_pool("shared", {"h100": 32}, shares={"acme": {"h100": 12}})
        .workspace("acme", "vision", line("h100", 4, 20))
        .workspace("acme", "speech", line("h100", 16, 16, 16))
        .build(),
        "acme-vision",
    )[:1]
    parts = (entry.committed, entry.from_account_pool, entry.from_others, entry.from_platform)
    assert (entry.reachable, parts) == (20, (4, 8, 8, 0))


def test_reach_counts_the_share_of_a_platform_pool():
    built = (
        promises()
        .account("acme")
        .platform_pool("shared", {"h100": 32}, shares={"acme": {"h100": 12}})
        .workspace("acme", "vision", line("h100", 8, 64))
        .build()
    )
    assert reach(built, "acme-vision")[0].from_platform == 12


def test_largest_job_is_what_one_worker_can_give():
    built = (
        promises()
        .account("acme", pool={"h100": 16}, split={("h100", "east"): 8, ("h100", "west"): 8})
        .workspace(
            "acme",
            "vision",
            line("h100", 24, 40),
            split={("h100", "east"): (16, 16), ("h100", "west"): (8, 8)},
        )
        .build()
    )
    assert reach(built, "acme-vision")[0].reachable == 40
    assert [entry.largest_job for entry in reach(built, "acme-vision")] == [24]


def test_largest_job_does_not_borrow_where_the_ceiling_is_the_floor():
    built = (
        promises()
        .account("acme", pool={"h100": 8}, split={("h100", "east"): 8})
        .workspace("acme", "v", line("h100", 16), split={("h100", "west"): (16, 16)})
        .build()
    )
    assert [entry.largest_job for entry in reach(built, "acme-v")] == [16]


def test_impact_says_who_loses_borrowable_capacity_and_where():
    base = promises().account("acme")
    split = {("h100", "east"): (16, 16)}
    before = (
        base.workspace("acme", "speech", line("h100", 16), split=split)
        .workspace("acme", "vision", line("h100", 0, 32))
        .build()
    )
    after = (
        base.workspace("acme", "speech", line("h100", 16, 16, 4), split={("h100", "east"): (16, 4)})
        .workspace("acme", "vision", line("h100", 0, 32))
        .build()
    )
    rows = impact(before, after)
    assert [(r.namespace, r.cluster, r.before, r.after) for r in rows] == [
        ("acme-vision", "", 16, 4),
        ("acme-vision", "east", 16, 4),
    ]
    assert rows[1].words == ("acme-vision could borrow 12 fewer h100 on east (16 before, 4 after)")
    assert impact(before, before) == ()


def test_impact_lists_losers_before_winners():
    base = promises().account("acme").workspace("acme", "a", line("h100", 0, 8))
    before = base.workspace("acme", "b", line("l4", 8)).workspace("acme", "c", line("l4", 0, 8))
    after = base.workspace("acme", "b", line("h100", 8)).workspace("acme", "c", line("l4", 0, 8))
    assert [row.namespace for row in impact(before.build(), after.build())] == ["acme-c", "acme-a"]
