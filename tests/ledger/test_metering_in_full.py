"""Everything that the meter and its checks say: all facts of a window, and each message."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from budgets.charging import differences, read_ledger, work_out
from budgets.metering import (
    AccountPool,
    CapacitySample,
    Floor,
    FloorAdvice,
    Held,
    HourFact,
    KeyedSpan,
    MeteringError,
    PoolChange,
    Pools,
    QueueSample,
    Revision,
    SharedPool,
    Usage,
    advise_floor,
    capacity_parts,
    identity_faults,
    lasting_mismatch,
    meter,
    seconds_by_hour,
)
from budgets.metering.capacity import CapacityFact, CapacityPart
from budgets.metering.lending import Cover, Desk, ExactSum, Platform, common_denominator
from budgets.metering.model import AccountFact, WorkloadFact
from budgets.metering.waterfall import HeldShare, Key, Waterfall
from budgets.units import Period
from tests.ledger import naive
from tests.ledger.test_metering import HOUR, NOON, at, held, pools, revision

DATE = "2026-05-04T12:"


def rows(kind: Any, *given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Facts by the minute in which their part of the hour begins."""
    found = []
    for minute, *rest in given:
        start = at(minute)
        found.append(kind(start.replace(minute=0), start, *rest))
    return tuple(found)


def test_window_comes_to_these_facts_and_no_more():
    """Lent, from pools, uncovered: two accounts, two flavors, two parts of hours."""
    shared = SharedPool(frozenset({"acme", "globex"}), (PoolChange(None, {"h100": 3}),))
    places = Pools(
        {"vision": "acme", "speech": "acme", "search": "globex", "unused": "globex"},
        (AccountPool("acme", (PoolChange(None, {"h100": 1}),)), AccountPool("other", ())),
        (shared, SharedPool(frozenset({"nobody"}), (PoolChange(None, {"h100": 99}),))),
    )
    floors = [revision("vision", 2), revision("speech", 4, 1)]
    given = [
        replace(held("a", 6, 30, 70), cluster="east"),
        held("b", 2, 40, 60, workspace="search"),
        replace(held("c", 2, 30, 31, workspace="speech"), flavor="l4"),
        held("before", 9, 0, 30),
        held("after", 9, 70, 80),
        held("nothing", 0, 30, 70),
    ]
    window = Period(at(30), at(70))
    assert meter(given, floors, places, window) == Usage(
        window,
        rows(
            HourFact,
            (30, "search", "h100", 0, 0, 0, 0, 2400, 0),
            (30, "speech", "h100", 7200, 0, 1800, 5400, 0, 0),
            (30, "speech", "l4", 0, 0, 0, 0, 120, 0),
            (30, "vision", "h100", 3600, 3600, 0, 0, 7200, 1800),
            (60, "speech", "h100", 2400, 0, 600, 1800, 0, 0),
            (60, "vision", "h100", 1200, 1200, 0, 0, 2400, 600),
        ),
        rows(
            AccountFact,
            (30, "acme", "h100", 7200, 1800, 1800, 3000, 600),
            (30, "acme", "l4", 120, 0, 0, 0, 120),
            (30, "globex", "h100", 2400, 0, 0, 1800, 600),
            (60, "acme", "h100", 2400, 600, 600, 1200, 0),
        ),
        rows(
            WorkloadFact,
            (30, "search", "h100", "", "b", 0, 2400),
            (30, "speech", "l4", "", "c", 0, 120),
            (30, "vision", "h100", "east", "a", 3600, 7200),
            (60, "vision", "h100", "east", "a", 1200, 2400),
        ),
    )


def test_workload_of_two_intervals_has_one_fact_and_one_of_each_cluster():
    given = [held("a", 1, 0, 10), held("a", 2, 20, 30), replace(held("a", 4), cluster="east")]
    facts = meter(given, [revision("vision", 1)], pools(), HOUR).workloads
    assert facts == rows(
        WorkloadFact,
        (0, "vision", "h100", "", "a", 600, 1200),
        (0, "vision", "h100", "east", "a", 50 * 60, 4 * 3600 - 50 * 60),
    )


def test_every_hour_has_its_own_facts_and_an_hour_of_nothing_has_none():
    given = [held("a", 1, -90, -50), held("b", 2, -70, 20), held("c", 1, 90, 125)]
    usage = meter(given, [], pools(), Period(at(-60), at(121)))
    assert usage.workloads == rows(
        WorkloadFact,
        (-60, "vision", "h100", "", "a", 0, 600),
        (-60, "vision", "h100", "", "b", 0, 7200),
        (0, "vision", "h100", "", "b", 0, 2400),
        (60, "vision", "h100", "", "c", 0, 1800),
        (120, "vision", "h100", "", "c", 0, 60),
    )
    assert [(fact.start, fact.burst) for fact in usage.hours] == [
        (at(-60), 7800),
        (at(0), 2400),
        (at(60), 1800),
        (at(120), 60),
    ]
    later = meter([held("c", 1, 70, 80)], [], pools(), Period(at(-130), at(200)))
    assert later.workloads == rows(WorkloadFact, (60, "vision", "h100", "", "c", 0, 600))


@pytest.mark.parametrize(
    ("floors", "want"),
    [
        pytest.param([(-9, 8), (0, 2)], 2 * 60, id="one that begins with the window"),
        pytest.param([(0, 2), (-9, 8)], 2 * 60, id="in any order"),
        pytest.param([(-9, 8), (60, 2)], 8 * 60, id="one that begins with its end"),
        pytest.param([(30, 8)], 8 * 30, id="none before"),
        pytest.param([(-9, 1), (-5, 2), (15, 4), (30, 8)], 2 * 15 + 4 * 15 + 8 * 30, id="four"),
        pytest.param([(61, 8)], None, id="only later"),
    ],
)
def test_newest_revision_is_in_force_at_each_instant(floors, want):
    given = [revision("vision", gpus, start=start) for start, gpus in floors]
    facts = meter([], given, pools(), HOUR).hours
    assert [fact.committed for fact in facts] == ([] if want is None else [want * 60])


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param([], 0, id="no pool"),
        pytest.param([(None, 4), (-9, 1)], 60, id="a dated one goes before the first of all"),
        pytest.param([(-9, 1), (None, 4)], 60, id="in any order"),
        pytest.param([(None, 4), (0, 1)], 60, id="one that begins with the window"),
        pytest.param([(30, 1), (None, 4)], 4 * 30 + 30, id="one that begins within"),
        pytest.param([(None, 2), (60, 9)], 2 * 60, id="one that begins with its end"),
        pytest.param([(30, 3)], 3 * 30, id="none before"),
        pytest.param([(-30, 1), (-20, 2), (15, 3)], 2 * 15 + 3 * 45, id="three"),
    ],
)
def test_newest_amount_of_a_pool_is_in_force_at_each_instant(changes, want):
    steps = tuple(
        PoolChange(None if start is None else at(start), {"h100": gpus}) for start, gpus in changes
    )
    own = Pools({"vision": "acme"}, (AccountPool("acme", steps),))
    (cover,) = meter([held("a", 9)], [], own, HOUR).accounts
    assert cover.from_pool == want * 60
    platform = Pools({"vision": "acme"}, (), (SharedPool(frozenset({"acme"}), steps),))
    (cover,) = meter([held("a", 9)], [], platform, HOUR).accounts
    assert (cover.from_platform, cover.uncovered) == (want * 60, (9 * 60 - want) * 60)


def test_pool_that_a_later_change_does_not_name_has_nothing():
    steps = (PoolChange(None, {"h100": 4}), PoolChange(at(30), {"l4": 4}))
    own = Pools({"vision": "acme"}, (AccountPool("acme", steps),))
    (cover,) = meter([held("a", 9)], [], own, HOUR).accounts
    assert cover.from_pool == 4 * 30 * 60


TWO = (SharedPool(frozenset({"b", "a"}), ()), SharedPool(frozenset({"a", "b", "c"}), ()))


@pytest.mark.parametrize(
    ("given", "floors", "places", "want"),
    [
        pytest.param(
            [held("a", 1, workspace="x")],
            [],
            pools(),
            "workspace x has no account in pools.accounts",
            id="a workload of a stranger",
        ),
        pytest.param(
            [],
            [revision("y", 1)],
            pools(),
            "workspace y has no account in pools.accounts",
            id="a budget of a stranger",
        ),
        pytest.param([held("a", -1)], [], pools(), "workload a holds -1 GPUs", id="fewer than 0"),
        pytest.param(
            [held("a", 1, 10, 5)],
            [],
            pools(),
            f"workload a ends {DATE}05:00+00:00, before its start {DATE}10:00+00:00",
            id="ends before its start",
        ),
        *(
            pytest.param(
                [],
                [Revision("vision", NOON, {"l4": Floor(1), "h100": floor})],
                pools(),
                "workspace vision promises less than 0 h100",
                id=f"{floor}",
            )
            for floor in (Floor(-1), Floor(1, -1))
        ),
        pytest.param(
            [], [], Pools({}, (), TWO), "account a is in two platform pools", id="in two pools"
        ),
    ],
)
def test_contradiction_is_told_in_full(given, floors, places, want):
    with pytest.raises(MeteringError) as refused:
        meter(given, floors, places, HOUR)
    assert str(refused.value) == want


def test_nothing_is_no_contradiction():
    empty = [held("a", 0), held("b", 1, 10, 10)]
    usage = meter(empty, [revision("vision", 0, 0)], pools(platform=0, vision="acme"), HOUR)
    assert usage == Usage(HOUR, (), (), ())


# What has to hold of every metering


def hour_fact(*classes: int, workspace: str = "vision") -> HourFact:
    return HourFact(NOON, NOON, workspace, "h100", *classes)


def cover_fact(*parts: int) -> AccountFact:
    return AccountFact(NOON, NOON, "acme", "h100", *parts)


def job(used: int, burst: int) -> WorkloadFact:
    return WorkloadFact(NOON, NOON, "vision", "h100", "", "a", used, burst)


PLACE = f"vision/h100 at {DATE}00:00+00:00"
WORKLOADS = "vision/h100 at 2026-05-04 12:00:00+00:00: workloads do not add up to the hour by "
BOOKS = "account acme/h100 at 2026-05-04 12:00:00+00:00: burst, lent, borrowed are off by "
COVER = f"account acme/h100 at {DATE}00:00+00:00: burst is not what covered it"


@pytest.mark.parametrize(
    ("hours", "accounts", "workloads", "want"),
    [
        pytest.param(
            [hour_fact(9, 4, 3, 2, 5, 3)], [cover_fact(5, 1, 3, 1, 0)], [job(4, 5)], (), id="none"
        ),
        pytest.param(
            [hour_fact(9, 4, 3, 1, 5, 3)],
            [cover_fact(5, 1, 3, 1, 0)],
            [job(4, 5)],
            (f"{PLACE}: used + lent + idle is not committed",),
            id="a floor that does not add up",
        ),
        *(
            pytest.param(
                [hour_fact(*classes)],
                [cover_fact(classes[4], *[0] * 3, classes[4])],
                [job(classes[1], classes[4])],
                (f"{PLACE}: a class is below zero",),
                id=f"below zero: {classes}",
            )
            for classes in ((1, -1, 0, 2, 0, 0), (1, 2, 0, -1, 0, 0), (0, 0, 0, 0, -1, 0))
        ),
        pytest.param(
            [hour_fact(1, 2, -1, 0, 0, -1)],
            [cover_fact(0, 0, -1, 0, 1)],
            [job(2, 0)],
            (f"{PLACE}: a class is below zero",),
            id="below zero: lent",
        ),
        pytest.param(
            [hour_fact(4, 4, 0, 0, 5, 0)],
            [cover_fact(5, 0, 0, 0, 5)],
            [job(1, 3)],
            (WORKLOADS + "[3, 2]",),
            id="workloads of less",
        ),
        pytest.param([], [], [job(1, 0)], (WORKLOADS + "[-1, 0]",), id="workloads of no hour"),
        pytest.param(
            [hour_fact(0, 0, 0, 0, 15, 0)],
            [cover_fact(15, 1, 0, 4, 9)],
            [job(0, 15)],
            (COVER,),
            id="a cover that does not add up",
        ),
        pytest.param(
            [hour_fact(9, 4, 3, 2, 5, 2)],
            [cover_fact(6, 1, 4, 1, 0)],
            [job(4, 5)],
            (BOOKS + "[-1, -1, -2]",),
            id="an account that is not its workspaces",
        ),
        pytest.param([], [cover_fact(1, 1, 0, 0, 0)], [], (BOOKS + "[-1, 0, 0]",), id="alone"),
        pytest.param(
            [hour_fact(9, 4, 3, 1, 5, 3)],
            [cover_fact(5, 1, 3, 1, 1)],
            [],
            (
                f"{PLACE}: used + lent + idle is not committed",
                WORKLOADS + "[4, 5]",
                COVER,
            ),
            id="several at once",
        ),
    ],
)
def test_identities_that_do_not_hold_are_told_in_full(hours, accounts, workloads, want):
    usage = Usage(HOUR, tuple(hours), tuple(accounts), tuple(workloads))
    assert identity_faults(usage, pools=pools()) == want
    without = tuple(fault for fault in want if not fault.startswith(BOOKS))
    assert identity_faults(usage) == without


def test_part_of_an_hour_that_does_not_add_up_is_named_by_its_start():
    later = WorkloadFact(NOON, NOON + timedelta(minutes=30), "vision", "h100", "", "a", 4, 5)
    usage = Usage(HOUR, (hour_fact(4, 4, 0, 0, 5, 0),), (), (later,))
    assert identity_faults(usage) == (
        WORKLOADS + "[4, 5]",
        WORKLOADS.replace("12:00:00", "12:30:00") + "[-4, -5]",
    )


def test_workspaces_of_an_account_are_summed_up():
    hours = (hour_fact(3, 0, 3, 0, 0, 0, workspace="speech"), hour_fact(0, 0, 0, 0, 5, 3))
    usage = Usage(HOUR, hours, (cover_fact(5, 1, 3, 1, 0),), (job(0, 5),))
    assert identity_faults(usage, pools=pools()) == ()


# Plain sums, samples and advice


def test_plain_seconds_are_cut_at_hours_and_at_the_window():
    spans = [
        KeyedSpan("a", 2, at(-60), at(10)),
        KeyedSpan("b", 1, at(50), None),
        KeyedSpan("b", 3, at(55), at(65)),
        KeyedSpan("c", 1, at(-90), at(-30)),
        KeyedSpan("c", 1, at(70), at(90)),
    ]
    assert seconds_by_hour(spans, Period(at(-30), at(70))) == {
        (at(-60), "a"): 2 * 1800,
        (at(0), "a"): 2 * 600,
        (at(0), "b"): 600 + 3 * 300,
        (at(60), "b"): 600 + 3 * 300,
    }


def told(minute: int, total: int, borrowed: int = 0) -> QueueSample:
    return QueueSample(at(minute), total, borrowed, nominal=8)


@pytest.mark.parametrize(
    ("totals", "want"),
    [
        pytest.param([1, 8, 1, 1, 1], [], id="three in a row"),
        pytest.param([1, 1, 1, 1, 8], [0, 1, 2, 3], id="four in a row"),
        pytest.param([1, 1, 1, 1, 8, 1, 1, 1, 1], [0, 1, 2, 3], id="of equal runs the first"),
        pytest.param([1, 1, 1, 1, 8, 1, 1, 1, 1, 1], [5, 6, 7, 8, 9], id="the longest"),
    ],
)
def test_longest_run_of_mismatches_is_returned(totals, want):
    samples = [told(minute, total) for minute, total in enumerate(totals)]
    found = lasting_mismatch(samples, lambda _: 8)
    assert list(found) == [samples[minute] for minute in want]


@pytest.mark.parametrize(
    ("held", "total", "borrowed", "want"),
    [(8, 8, 0, True), (9, 9, 1, True), (9, 9, 0, False), (9, 8, 1, False), (3, 3, 0, True)],
)
def test_queue_matches_in_use_and_in_what_it_borrows(held, total, borrowed, want):
    assert told(0, total, borrowed).is_matched(held) is want


def test_sample_is_held_until_the_next_in_each_of_its_figures():
    sample = CapacitySample(at(58), ready=16, down=8, used=5, held=18, outside=3)
    figures = {"capacity": 24, "down": 8, "free": 11, "over_admitted": 2, "outside": 3}
    assert list(capacity_parts(sample, at(61))) == [
        CapacityPart(at(0), 120, **{name: gpus * 120 for name, gpus in figures.items()}),
        CapacityPart(at(60), 60, **{name: gpus * 60 for name, gpus in figures.items()}),
    ]
    assert list(capacity_parts(sample, at(58))) == []
    assert [part.seconds for part in capacity_parts(sample, at(58) + timedelta(seconds=1))] == [1]


@pytest.mark.parametrize(
    ("free", "want"), [(84600, True), (84599, False), (88200, True), (88201, False)]
)
def test_hour_is_explained_up_to_its_tolerance(free, want):
    assert CapacityFact(NOON, "east", "h100", 3600, 86400, free=free).is_explained is want
    assert not CapacityFact(NOON, "east", "h100", 3599, 86400, free=86400).is_explained


def test_advice_is_given_from_a_day_on():
    assert advise_floor([0] * 24, committed=1) == FloorAdvice(1, 0, 730, 24, 0)
    assert advise_floor([3600] * 19 + [3601], committed=3) is None
    peaks = [3600] * 38 + [3601] * 2
    assert advise_floor(peaks, committed=3) == FloorAdvice(3, 1, 1460, 40, 2)
    for used, committed in (([-1] * 24, 1), ([0] * 24, -1)):
        with pytest.raises(ValueError, match=r"^GPU-seconds and floors are never negative$"):
            advise_floor(used, committed=committed)


# The parts of the meter


def test_shares_are_summed_over_their_denominators():
    total = ExactSum()
    for numerator, denominator in ((3, 1), (1, 3), (1, 3), (1, 4), (2, 1)):
        total.add(numerator, denominator)
    assert (total.whole, total.parts) == (5, {3: 2, 4: 1})
    assert total.over(12) == 5 * 12 + 2 * 4 + 3
    assert common_denominator([total, ExactSum(), ExactSum(1, {6: 5})]) == 12
    assert common_denominator([]) == 1
    total.clear()
    assert (total.whole, total.parts) == (0, {})


def share(uid: str, gpus: int, admitted: int, now: int) -> HeldShare:
    row = Held(uid, "vision", "h100", gpus, NOON, NOON, None)
    return HeldShare(row, (admitted, uid, "", 0), now, gpus)


def filled(floor: int, present: list[HeldShare]) -> dict[str, int]:
    """What of each stands on the floor: in the order of keys each takes what is left."""
    found = {}
    for row in sorted(present, key=lambda row: row.key):
        found[row.held.uid] = min(row.gpus, floor)
        floor -= found[row.held.uid]
    return found


def test_waterfall_is_what_filling_the_floor_anew_each_time_comes_to():
    """Every three changes of a floor and of three workloads, the youngest with the largest UID."""
    changes: list[int | str] = [0, 2, 4, 6, "a", "b", "c"]
    for script in product(changes, repeat=3):
        fall = Waterfall()
        present: dict[str, HeldShare] = {}
        shares = [share(uid, gpus, 9 - gpus, 0) for uid, gpus in (("a", 1), ("b", 3), ("c", 2))]
        for row in shares:
            fall.add(row, now=0)
            present[row.held.uid] = row
        sums = {uid: [0, 0] for uid in present}
        now, everybody = 0, dict(present)
        for passed, change in enumerate(script, start=1):
            split = filled(fall.floor, list(present.values()))
            for uid, gpus in split.items():
                sums[uid][0] += gpus * passed
                sums[uid][1] += (present[uid].gpus - gpus) * passed
            now += passed
            if isinstance(change, int):
                fall.set_floor(change, now=now)
            elif change in present:
                fall.remove(present.pop(change).key, now=now)
            else:
                row = everybody[change]
                row.since, row.filled = now, 0
                fall.add(row, now=now)
                present[change] = row
        assert {uid: row.filled for uid, row in present.items()} == filled(
            fall.floor, list(present.values())
        ), script
        assert fall.used == sum(row.gpus for row in present.values())
        for uid, row in everybody.items():
            if uid in present:
                row.accrue(now)
            assert [row.committed, row.burst] == sums[uid], (script, uid)


def desk(name: str, cover: Cover, floor: int, gpus: int, limit: int | None = None) -> Desk:
    made = Desk(name, cover, since=0, limit=limit)
    made.waterfall.set_floor(floor, now=0)
    if gpus:
        made.waterfall.add(share(name, gpus, 0, 0), now=0)
    made.settle()
    return made


def test_desk_tells_its_account_what_it_lacks_and_what_it_could_lend():
    pool = Platform(since=0, gpus=1)
    cover = Cover("acme", pool, since=0, pool=1)
    short, lender, careful = (
        desk("short", cover, 2, 9),
        desk("lender", cover, 4, 1),
        desk("careful", cover, 4, 0, limit=1),
    )
    assert [(row.burst_now, row.lendable_now) for row in (short, lender, careful)] == [
        (7, 0),
        (0, 3),
        (0, 1),
    ]
    assert (cover.over, cover.lendable) == (7, 4)
    assert (cover.taken, cover.covered, cover.left) == (1, 4, 2)
    assert (list(cover.bursting), list(cover.lenders)) == ([short], [lender, careful])
    assert (pool.total, pool.lacking) == (2, {cover: 2})

    key: Key = (0, "short", "", 0)
    short.waterfall.remove(key, now=5)
    short.settle()
    lender.waterfall.set_floor(1, now=5)
    lender.settle()
    assert (cover.over, cover.lendable, cover.taken, cover.covered, cover.left) == (0, 3, 0, 0, 0)
    assert (list(cover.bursting), list(cover.lenders)) == ([], [careful, short])
    assert (pool.total, pool.lacking) == (0, {})


def test_desk_counts_its_classes_up_to_an_instant():
    cover = Cover("acme", None, since=0)
    short = desk("short", cover, 2, 9)
    for now in (10, 10, 15):
        short.accrue(now)
    assert (short.committed, short.used, short.burst, short.since) == (30, 30, 105, 15)


def test_platform_gives_each_account_what_it_lacks_or_its_part():
    pool = Platform(since=0)
    one, two = Cover("acme", pool, since=0), Cover("globex", pool, since=0)
    pool.set_left(one, 2, now=10)
    pool.set_gpus(3, now=20)
    pool.set_left(two, 1, now=30)
    pool.set_left(two, 4, now=40)
    pool.set_left(one, 0, now=50)
    pool.accrue(60)
    # 2 alone from 20 on, 2 + 1 of 3 from 30 on, 3/6 of each from 40 on, then 3 of 4.
    assert (one.from_platform.whole, one.from_platform.parts) == (40, {6: 60})
    assert (two.from_platform.whole, two.from_platform.parts) == (10, {6: 120, 4: 120})
    assert (pool.total, pool.lacking, pool.since, pool.gpus) == (4, {two: 4}, 60, 3)


def test_cover_counts_whole_and_broken_shares_and_begins_again():
    pool = Platform(since=0)
    cover = Cover("acme", pool, since=0)
    desks = [
        desk("a", cover, 0, 1),
        desk("b", cover, 0, 2),
        desk("c", cover, 1, 0),
        desk("d", cover, 3, 0),
    ]
    cover.accrue(10)
    assert (cover.burst, cover.from_pool, cover.left_seconds) == (30, 0, 0)
    # 3 of 4 that could be lent, all of the 3 that are lacking.
    assert [(row.lent.whole, row.lent.parts) for row in desks[2:]] == [
        (0, {4: 30}),
        (0, {4: 90}),
    ]
    assert [row.borrowed.whole for row in desks[:2]] == [10, 20]
    cover.pool = 1
    cover.settle()
    cover.accrue(20)
    assert (cover.burst, cover.from_pool, cover.left_seconds) == (60, 10, 0)
    assert [row.borrowed.parts for row in desks[:2]] == [{3: 20}, {3: 40}]
    assert [(row.lent.whole, row.lent.parts) for row in desks[2:]] == [
        (0, {4: 50}),
        (0, {4: 150}),
    ]
    # 12½ and 37½ lent, 50 borrowed as 1 : 2: each is made whole by its largest remainder.
    covered, parts = cover.close(desks)
    assert covered == (60, 10, 50, 0, 0)
    assert parts == {
        desks[0]: (0, 17),
        desks[1]: (0, 33),
        desks[2]: (13, 0),
        desks[3]: (37, 0),
    }
    assert (cover.burst, cover.from_pool, cover.left_seconds) == (0, 0, 0)
    for row in desks:
        assert (row.lent.whole, row.lent.parts) == (0, {})
        assert (row.borrowed.whole, row.borrowed.parts) == (0, {})
    assert cover.close(desks) == ((0, 0, 0, 0, 0), {})


# Small ledgers, counted second by second


def small_ledger(own: int, platform: int, limit: int | None, later: int) -> dict[str, Any]:
    """Twenty seconds around an hour's edge; four workspaces of two accounts."""
    clock = "2026-05-04T{}Z".format

    def line(committed: int, lendable: int | None) -> list[dict[str, Any]]:
        return [{"flavor": "h100", "committed": committed, "burst": 9, "lendable": lendable}]

    def interval(uid: str, workspace: str, gpus: int, start: str, end: str) -> dict[str, Any]:
        times = {"admitted": clock(start), "start": clock(start), "end": clock(end)}
        return {"uid": uid, "workspace": workspace, "flavor": "h100", "gpus": gpus, **times}

    accounts = {"w1": "acme", "w2": "acme", "w3": "acme", "w4": "beta"}
    floors = [
        ("w1", "11:00:00", line(1, None)),
        ("w2", "11:00:00", line(4, limit)),
        ("w3", "11:00:00", line(2, None)),
        ("w2", "11:59:56", line(later, limit)),
    ]
    return {
        "currency": "KWD",
        "period": {"start": clock("11:59:50"), "end": clock("12:00:10")},
        "accounts": [
            {"name": "acme", "shared_pool": {"h100": own}},
            {"name": "beta", "shared_pool": {}},
        ],
        "workspaces": [{"name": name, "account": owner} for name, owner in accounts.items()],
        "platform_pools": [{"accounts": ["acme", "beta"], "gpus": {"h100": platform}}],
        "revisions": [
            {"workspace": workspace, "from": clock(start), "lines": lines}
            for workspace, start, lines in floors
        ],
        "rates": [
            {
                "flavor": "h100",
                "from": clock(start),
                "committed": committed,
                "burst": burst,
                "lending_credit": "0.5",
            }
            for start, committed, burst in (("11:00:00", "7", "9.5"), ("12:00:00", "70", "95"))
        ],
        "intervals": [
            interval("a", "w1", 4, "11:30:00", "12:30:00"),
            interval("b", "w1", 3, "11:59:53", "12:00:03"),
            interval("c", "w2", 1, "11:59:54", "12:00:11"),
            interval("d", "w4", 3, "11:59:51", "12:00:07"),
            interval("e", "w3", 3, "12:00:05", "12:00:09"),
        ],
    }


@pytest.mark.parametrize("later", [0, 5])
@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("platform", [0, 2, 5])
@pytest.mark.parametrize("own", [0, 1])
def test_small_ledger_comes_to_what_counting_each_second_says(own, platform, limit, later):
    record = small_ledger(own, platform, limit, later)
    assert differences(work_out(read_ledger(record)), naive.work_out(record)) == []
