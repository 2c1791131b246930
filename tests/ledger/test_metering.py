"""The waterfall, lending and pools by hand; what the meter refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from budgets.intervals import IntervalState, intervals
from budgets.metering import (
    AccountPool,
    Floor,
    Held,
    KeyedSpan,
    MeteringError,
    PoolChange,
    Pools,
    Revision,
    SharedPool,
    Usage,
    identity_faults,
    meter,
    seconds_by_hour,
)
from budgets.units import Period
from tests.ledger.placed import held_by
from tests.ledger.story import Job

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
HOUR = Period(NOON, NOON + timedelta(hours=1))


def at(minute: float) -> datetime:
    return NOON + timedelta(minutes=minute)


def held(
    uid: str,
    gpus: int,
    start: float = 0,
    end: float | None = 60,
    *,
    workspace: str = "vision",
    admitted: float | None = None,
) -> Held:
    return Held(
        uid=uid,
        workspace=workspace,
        flavor="h100",
        gpus=gpus,
        admitted=at(start if admitted is None else admitted),
        start=at(start),
        end=None if end is None else at(end),
    )


def revision(workspace: str, committed: int, lendable: int | None = None, start: float = -60):
    return Revision(workspace, at(start), {"h100": Floor(committed, lendable)})


def pools(*, own: int = 0, platform: int | None = None, **accounts: str) -> Pools:
    return Pools(
        accounts=accounts or {"vision": "acme", "speech": "acme"},
        account_pools=(AccountPool("acme", (PoolChange(None, {"h100": own}),)),),
        platform_pools=()
        if platform is None
        else (SharedPool(frozenset(accounts.values()), (PoolChange(None, {"h100": platform}),)),),
    )


def minutes(usage: Usage, *names: str) -> dict[str, tuple[int, ...]]:
    """Workspace → GPU-minutes of the named classes, summed over the hours."""
    found: dict[str, tuple[int, ...]] = {}
    for fact in usage.hours:
        before = found.get(fact.workspace, (0,) * len(names))
        found[fact.workspace] = tuple(
            had + getattr(fact, name) // 60 for had, name in zip(before, names, strict=True)
        )
    return found


def by_workload(usage: Usage) -> dict[str, tuple[int, int]]:
    """Workload → GPU-minutes (committed, burst)."""
    found: dict[str, tuple[int, int]] = {}
    for fact in usage.workloads:
        committed, burst = found.get(fact.uid, (0, 0))
        found[fact.uid] = (committed + fact.committed_used // 60, burst + fact.burst // 60)
    return found


def test_oldest_workload_fills_the_floor_and_a_later_one_is_the_burst():
    usage = meter([held("b", 6, 10), held("a", 6)], [revision("vision", 8)], pools(), HOUR)
    assert by_workload(usage) == {"a": (360, 0), "b": (100, 200)}


def test_equal_admissions_fill_the_floor_by_uid():
    usage = meter([held("b", 8), held("a", 8)], [revision("vision", 8)], pools(), HOUR)
    assert by_workload(usage) == {"a": (480, 0), "b": (0, 480)}


def test_readmitted_workload_goes_behind():
    rows = [held("a", 8, 0, 20), held("b", 8, 10, 60), held("a", 8, 30, 60, admitted=30)]
    usage = meter(rows, [revision("vision", 8)], pools(), HOUR)
    assert by_workload(usage) == {"a": (160, 240), "b": (320, 80)}


def test_burst_moves_up_when_the_floor_is_raised_and_back_when_lowered():
    floors = [revision("vision", 4), revision("vision", 12, start=20), revision("vision", 4, 0, 40)]
    usage = meter([held("a", 8), held("b", 4)], floors, pools(), HOUR)
    assert by_workload(usage) == {"a": (4 * 40 + 8 * 20, 4 * 40), "b": (80, 160)}


def test_workload_that_stood_on_the_floor_in_part_is_all_burst_when_the_floor_sinks():
    floors = [revision("vision", 6), revision("vision", 3, start=30)]
    usage = meter([held("a", 4), held("b", 4)], floors, pools(), HOUR)
    assert by_workload(usage) == {"a": (4 * 30 + 3 * 30, 30), "b": (2 * 30, 2 * 30 + 4 * 30)}


def test_revision_replaces_the_whole_budget():
    floors = [revision("vision", 8), Revision("vision", at(30), {"l4": Floor(1)})]
    usage = meter([held("a", 8)], floors, pools(), HOUR)
    assert by_workload(usage) == {"a": (240, 240)}


def test_newest_revision_before_the_window_is_in_force():
    floors = [revision("vision", 2, start=-90), revision("vision", 8, start=-60)]
    assert minutes(meter([], floors, pools(), HOUR), "committed", "idle") == {"vision": (480, 480)}


def test_revision_that_begins_with_another_is_overruled_by_the_later_row():
    floors = [revision("vision", 2), revision("vision", 8)]
    assert minutes(meter([], floors, pools(), HOUR), "committed") == {"vision": (480,)}


def test_burst_is_covered_by_pool_then_lenders_then_platform_then_nobody():
    shared = pools(own=2, platform=3, vision="acme", speech="acme")
    floors = [revision("vision", 0), revision("speech", 4, 4)]
    usage = meter([held("a", 12)], floors, shared, HOUR)
    (cover,) = usage.accounts
    parts = (cover.from_pool, cover.lent, cover.from_platform, cover.uncovered)
    assert [part // 3600 for part in parts] == [2, 4, 3, 3]
    assert minutes(usage, "lent", "borrowed") == {"vision": (0, 240), "speech": (240, 0)}


def test_lenders_lend_in_proportion_and_within_their_limit():
    names = {"vision": "acme", "speech": "acme", "audio": "acme"}
    floors = [revision("speech", 6, 2), revision("audio", 4)]
    usage = meter([held("a", 3)], floors, pools(own=0, **names), HOUR)
    assert minutes(usage, "lent")["speech"] == (60,)
    assert minutes(usage, "lent")["audio"] == (120,)


def test_shares_that_are_not_whole_add_up_to_the_gpu_second():
    names = dict.fromkeys(("vision", "w1", "w2", "w3"), "acme")
    floors = [revision(name, 1) for name in ("w1", "w2", "w3")]
    one_second = Period(NOON, NOON + timedelta(seconds=1))
    usage = meter([held("a", 1)], floors, pools(own=0, **names), one_second)
    assert {fact.workspace: fact.lent for fact in usage.hours} == {
        "vision": 0,
        "w1": 1,
        "w2": 0,
        "w3": 0,
    }


def test_accounts_never_lend_to_each_other():
    shared = pools(own=0, vision="acme", speech="zeta")
    usage = meter([held("a", 4)], [revision("speech", 8)], shared, HOUR)
    assert [cover.uncovered for cover in usage.accounts] == [4 * 3600]
    assert minutes(usage, "lent")["speech"] == (0,)


def test_platform_pool_is_shared_by_what_each_account_lacks():
    shared = pools(own=0, platform=3, vision="acme", speech="zeta")
    rows = [held("a", 2), held("b", 4, workspace="speech")]
    usage = meter(rows, [], shared, HOUR)
    assert [(cover.account, cover.from_platform // 3600) for cover in usage.accounts] == [
        ("acme", 1),
        ("zeta", 2),
    ]


def test_pools_change_over_time():
    change = (PoolChange(at(-99), {"h100": 4}), PoolChange(at(30), {"h100": 1}))
    shared = Pools({"vision": "acme"}, (AccountPool("acme", change),))
    usage = meter([held("a", 4)], [], shared, HOUR)
    assert [cover.from_pool // 60 for cover in usage.accounts] == [4 * 30 + 1 * 30]


def test_running_workload_counts_to_the_end_of_the_window():
    assert by_workload(meter([held("a", 1, 30, None)], [], pools(), HOUR)) == {"a": (0, 30)}


def test_hour_that_the_window_cuts_has_its_own_start():
    window = Period(at(-30), at(30))
    usage = meter([held("a", 1, -60, 60)], [], pools(), window)
    assert [(fact.hour, fact.start, fact.burst) for fact in usage.hours] == [
        (at(-60), at(-30), 1800),
        (at(0), at(0), 1800),
    ]


@pytest.mark.parametrize(
    ("rows", "floors", "shared"),
    [
        pytest.param([held("a", 1, 10, 5)], [], pools(), id="an interval ends before it starts"),
        pytest.param([held("a", -1)], [], pools(), id="fewer than no GPUs"),
        pytest.param([], [revision("vision", -1)], pools(), id="a negative floor"),
        pytest.param([held("a", 1, workspace="x")], [], pools(), id="an unknown workspace"),
        pytest.param(
            [],
            [],
            Pools({}, (), (SharedPool(frozenset({"a"}), ()), SharedPool(frozenset({"a"}), ()))),
            id="an account in two platform pools",
        ),
    ],
)
def test_input_that_contradicts_itself_is_refused(rows, floors, shared):
    with pytest.raises(MeteringError):
        meter(rows, floors, shared, HOUR)


def test_identity_faults_are_named():
    usage = meter([held("a", 4)], [revision("vision", 2)], pools(), HOUR)
    assert identity_faults(usage, pools=pools()) == ()
    broken = Usage(usage.window, usage.hours, usage.accounts, ())
    assert len(identity_faults(broken)) == 1
    assert len(identity_faults(Usage(usage.window, usage.hours, (), usage.workloads))) == 0
    without = Usage(usage.window, usage.hours, (), usage.workloads)
    assert len(identity_faults(without, pools=pools())) == 1


def test_held_by_leaves_out_what_is_not_billed_and_names_what_is_nobodys():
    mine = Job(uid="u1").admit(10).see(10)
    other = Job(uid="u2", name="b").admit(10).set(cluster_queue="unknown").see(10)
    waiting = Job(uid="u3", name="c").reserve(10).see(10)
    found = intervals([*mine.events, *other.events, *waiting.events]).intervals
    placed = held_by(found, workspaces={"acme-vision": "vision"})
    assert [row.uid for row in placed.held] == ["u1"]
    assert [row.uid for row in placed.outside] == ["u2"]


def test_held_by_leaves_out_what_was_superseded():
    (row,) = intervals(Job().admit(10).see(10).events).intervals
    gone = replace(row, state=IntervalState.SUPERSEDED)
    assert held_by([gone], workspaces={"acme-vision": "vision"}).held == ()


def test_plain_seconds_are_summed_per_hour_and_key():
    spans = [
        KeyedSpan("a", 2, at(-10), at(10)),
        KeyedSpan("a", 1, at(5), None),
        KeyedSpan("b", 1, at(9), at(9)),
    ]
    assert seconds_by_hour(spans, HOUR) == {(NOON, "a"): 2 * 600 + 55 * 60}
