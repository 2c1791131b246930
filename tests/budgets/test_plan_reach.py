"""What a ceiling can really reach, and whom a change touches."""

from __future__ import annotations

from budgets.plan import ImpactRow, Reach, impact, reach
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


def test_reach_and_largest_job_without_and_with_workers():
    """Sums over all clusters where nothing is split; a part on a worker is what counts there."""
    base = (
        promises()
        .account("acme", pool={"h100": 2})
        .account("globex", pool={"h100": 50})
        .platform_pool("shared", {"h100": 32}, shares={"acme": {"h100": 5}})
        .workspace("acme", "vision", line("h100", 8, 64), line("l4", 1, 3))
        .workspace("acme", "speech", line("h100", 16, 16, 6))
    )
    first, second = reach(base.build(), "acme-vision")
    assert first == Reach("h100", 64, 21, 8, 2, 6, 5, largest_job=21)
    # An account without a limit draws all of the pool, which has none of this flavor.
    assert second == Reach("l4", 3, 1, 1, 0, 0, 0, largest_job=1)


def test_share_of_a_platform_pool_on_a_worker_is_what_stands_there():
    built = (
        promises()
        .account("acme", pool={"h100": 3}, split={("h100", "west"): 3})
        .platform_pool(
            "shared",
            {"h100": 32},
            shares={"acme": {"h100": 12}},
            split={("h100", "east"): 8, ("h100", "west"): 24},
        )
        .workspace("acme", "vision", line("h100", 6, 64), split={("h100", "east"): (6, 2)})
        .workspace("acme", "speech", line("h100", 9, 9), split={("h100", "east"): (9, 4)})
        .build()
    )
    (entry,) = reach(built, "acme-vision")
    # East: 6 of its own, 4 lent, 8 of the pool; west: 3 of the account, 12 of the pool.
    assert entry == Reach("h100", 64, 30, 6, 3, 9, 12, largest_job=18)


def test_nothing_is_lent_where_the_workspace_alone_could_lend():
    built = promises().account("acme").workspace("acme", "v", line("h100", 0, 9), line("l4", 4, 9))
    assert [(row.reachable, row.from_others) for row in reach(built.build(), "acme-v")] == [
        (0, 0),
        (4, 0),
    ]
    assert reach(promises().workspace("acme", "v").build(), "acme-v") == ()


def test_impact_row_says_who_and_how_much_with_and_without_a_cluster():
    more = ImpactRow("acme-v", "acme", "h100", "", before=2, after=5)
    assert more.words == "acme-v could borrow 3 more h100 (2 before, 5 after)"


def test_nobody_lends_and_no_pool_gives_where_nothing_stands():
    built = (
        promises()
        .account("acme", pool={"h100": 3}, split={("h100", "west"): 3})
        .platform_pool(
            "shared", {"h100": 32}, shares={"acme": {"h100": 12}}, split={("h100", "east"): 2}
        )
        .workspace("acme", "v", line("h100", 0, 64))
        .build()
    )
    assert [row.largest_job for row in reach(built, "acme-v")] == [3]
    (entry,) = reach(promises().workspace("acme", "v", line("h100", 0, 9)).build(), "acme-v")
    assert entry == Reach("h100", 9, 0, 0, 0, 0, 0, largest_job=0)


def test_line_without_burst_borrows_on_no_worker():
    split = {("h100", "west"): (8, 0), ("h100", "east"): (8, 0)}
    built = (
        promises()
        .account("acme", pool={"h100": 4}, split={("h100", "west"): 4})
        .workspace("acme", "v", line("h100", 16), split=split)
        .build()
    )
    assert [row.largest_job for row in reach(built, "acme-v")] == [8]


def test_impact_counts_who_came_and_who_went_within_what_a_worker_leaves():
    """On a worker the limit is the ceiling less what stands there, over all less the floor."""
    base = promises().account("acme", pool={"h100": 50}, split={("h100", "east"): 50})
    split = {("h100", "east"): (2, 1)}
    came = base.workspace("acme", "v", line("h100", 8, 10), split=split).build()
    rows = (("", 2), ("east", 8))
    assert impact(base.build(), came) == tuple(
        ImpactRow("acme-v", "acme", "h100", cluster, 0, gpus) for cluster, gpus in rows
    )
    assert impact(came, base.build()) == tuple(
        ImpactRow("acme-v", "acme", "h100", cluster, gpus, 0) for cluster, gpus in rows
    )
