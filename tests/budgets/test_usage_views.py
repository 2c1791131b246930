"""Use by key, by day and hour, borrowed and lent, idle floors and the whole capacity."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import time_machine

from budgets import selectors, services
from budgets.errors import NotAllowed
from budgets.models import Interval, Role, UsageRecord
from budgets.selectors import UsageFilter
from tests.budgets.test_ledger_services import complete, held, store
from tests.builders import START, SmallFleet, hours, line
from tests.factories import (
    IntervalFactory,
    MembershipFactory,
    UsageRecordFactory,
    UserFactory,
    WorkloadUsageFactory,
)

pytestmark = pytest.mark.django_db
AMOUNTS = ("committed", "committed_used", "burst", "borrowed", "lent", "idle", "pending")


def chosen(first: float = 0, last: float = 72, **terms) -> UsageFilter:
    return UsageFilter(**{"start": hours(first), "end": hours(last), **terms})


def hour_fact(workspace, at: float, flavor, **amounts) -> UsageRecord:
    zero = dict.fromkeys(("committed", "committed_used", "lent", "idle"), 0)
    return UsageRecordFactory(
        workspace=workspace, flavor=flavor, hour=hours(at), **{**zero, **amounts}
    )


@pytest.fixture
def metered(fleet: SmallFleet) -> SmallFleet:
    """Two days over a UTC midnight: vision borrows from speech, search is alone in globex."""
    with time_machine.travel(hours(0), tick=False):
        fleet.revise(fleet.vision, line("h100", 8, 24))
        fleet.revise(fleet.speech, line("h100", 8), line("l4", 2))
        fleet.revise(fleet.search, line("h100", 16))
    store(
        held("a", 0, 20),
        held("b", 3.5, 40),
        held("c", 1, 30, gpus=2, cluster="gpu-west"),
        held("d", 5, None, gpus=4, namespace="globex-search"),
        held("e", 6, 50, gpus=1, namespace="acme-speech", flavor="l4", cluster="gpu-west"),
    )
    complete(hours(51), "gpu-east", "gpu-west")
    services.meter_usage(hours(51))
    return fleet


def person(**scope):
    user = UserFactory()
    MembershipFactory(user=user, **scope)
    return user


SPLITS = ["none", "account", "workspace", "flavor", "cluster"]
RANGES = [(0, 72), (5, 47), (-3, 25), (7, 9)]


@pytest.mark.parametrize("split_by", SPLITS)
@pytest.mark.parametrize("step", ["hour", "day"])
def test_totals_and_facts_give_the_same_answer(metered: SmallFleet, split_by: str, step: str):
    everything = ("acme-vision", "acme-speech", "globex-search")
    account = person(role=Role.OWNER, account=metered.acme)
    for first, last in RANGES:
        for flavors in ((), ("h100",), ("l4", "a100")):
            terms = {"split_by": split_by, "step": step, "flavors": flavors}
            of_totals = chosen(first, last, **terms)
            of_facts = chosen(first, last, workspaces=everything, **terms)
            for user in (metered.admin, account):
                by_totals = selectors.usage_table(user, of_totals)
                assert by_totals == selectors.usage_table(user, of_facts)
                if split_by != "none":
                    assert selectors.usage_by_key(user, of_totals) == selectors.usage_by_key(
                        user, of_facts
                    )


@pytest.mark.parametrize("split_by", SPLITS[1:])
def test_keys_and_the_rest_add_up_to_the_table(metered: SmallFleet, split_by: str):
    for first, last in RANGES:
        terms = chosen(first, last, split_by=split_by)
        table = selectors.usage_table(metered.admin, terms)
        for limit in (1, 2, 50):
            keys = selectors.usage_by_key(metered.admin, terms, limit=limit)
            assert len(keys.rows) <= limit
            parts = [*keys.rows, *([keys.others] if keys.others else [])]
            assert (keys.hidden > 0) == (keys.others is not None)
            for name in AMOUNTS:
                total = getattr(keys.totals, name)
                assert total == getattr(table.totals, name), name
                assert total is None or total == sum(getattr(row, name) for row in parts)
            used = [row.committed_used + row.burst for row in keys.rows]
            assert used == sorted(used, reverse=True)


def test_keys_have_names_and_only_what_the_viewer_sees(metered: SmallFleet):
    mine = selectors.usage_by_key(metered.owner, chosen(split_by="workspace"))
    assert [(row.key, row.name) for row in mine.rows] == [("acme-vision", metered.vision.name)]
    accounts = selectors.usage_by_key(metered.admin, chosen(split_by="account"))
    assert {row.key for row in accounts.rows} == {"acme", "globex"}
    assert [row.key for row in selectors.usage_by_key(
        metered.owner, chosen(split_by="account")).rows] == ["acme"]  # fmt: skip
    with pytest.raises(ValueError, match="nothing to split"):
        selectors.usage_by_key(metered.admin, chosen())


def test_person_of_an_account_and_a_workspace_elsewhere_sees_both(metered: SmallFleet):
    user = person(role=Role.VIEWER, account=metered.globex)
    MembershipFactory(user=user, role=Role.OWNER, workspace=metered.speech)
    keys = selectors.usage_by_key(user, chosen(split_by="workspace"))
    assert {row.key for row in keys.rows} == {"globex-search", "acme-speech"}
    assert selectors.usage_table(user, chosen()).totals.committed == keys.totals.committed


def test_days_of_the_csv_are_days_of_the_reader_after_the_request(metered: SmallFleet):
    zone = ZoneInfo("Asia/Kolkata")
    terms = chosen(-24, 72, step="day", zone=zone)
    rows = list(selectors.usage_csv(metered.admin, terms))[1:]
    table = selectors.usage_table(metered.admin, terms)
    assert [row[0] for row in rows] == [
        row.start.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for row in table.rows
    ]
    assert {row[0][11:] for row in rows} == {"18:30:00Z"}


def test_csv_is_never_held_whole(fleet: SmallFleet):
    flavor = fleet.flavors["h100"]
    UsageRecord.objects.bulk_create(
        UsageRecord(workspace=fleet.vision, flavor=flavor, hour=hours(n), start=hours(n))
        for n in range(4_000)
    )
    wanted = chosen(0, 4_000, split_by="workspace")

    def peak(read: Callable[[], int]) -> int:
        tracemalloc.start()
        try:
            assert read() == 4_001
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    streamed = peak(lambda: sum(1 for _ in selectors.usage_csv(fleet.admin, wanted)))
    whole = peak(lambda: 1 + len(selectors.usage_table(fleet.admin, wanted).rows))
    assert streamed * 2 < whole


def test_heat_map_adds_up_and_follows_the_clock_of_the_reader(metered: SmallFleet):
    heat = selectors.usage_heat(metered.admin, chosen())
    table = selectors.usage_table(metered.admin, chosen())
    used = table.totals.committed_used + table.totals.burst
    assert heat.total == sum(heat.day_sums) == sum(heat.hour_sums) == used
    assert heat.days[0] == START.date()
    assert all(len(row) == 24 for row in heat.cells)
    place = heat.cells[0][(START.hour + 4) % 24]
    assert place is not None and (place.used, place.seconds) == (18 * 3600, 3600)
    assert selectors.usage_heat(metered.admin, chosen(), table.rows) == heat
    newest = chosen(4, 20)
    assert selectors.usage_heat(metered.admin, newest, table.rows) == selectors.usage_heat(
        metered.admin, newest
    )
    east = selectors.usage_heat(metered.admin, chosen(zone=ZoneInfo("Pacific/Auckland")))
    assert (east.total, east.hour_sums == heat.hour_sums) == (heat.total, False)


def test_heat_map_adds_the_hour_that_comes_twice(fleet: SmallFleet):
    first = datetime(2026, 10, 25, 0, tzinfo=UTC)
    for hour in (0, 1):
        UsageRecordFactory(
            workspace=fleet.vision,
            flavor=fleet.flavors["h100"],
            hour=first + timedelta(hours=hour),
        )
    terms = UsageFilter(
        start=first - timedelta(hours=2),
        end=first + timedelta(hours=22),
        zone=ZoneInfo("Europe/Berlin"),
    )
    heat = selectors.usage_heat(fleet.admin, terms)
    assert heat.days == (date(2026, 10, 25),)
    cell = heat.cells[0][2]
    assert cell is not None and (cell.used, cell.seconds) == (72_000, 7200)


def test_what_was_lent_has_a_lender_and_a_borrower(metered: SmallFleet):
    moved = selectors.lending(metered.admin, chosen())
    assert moved.total.lent == moved.total.borrowed == moved.pairs_total > 0
    assert moved.pairs is not None
    assert {(p.account, p.lender, p.borrower, p.flavor) for p in moved.pairs} == {
        ("acme", "acme-speech", "acme-vision", "h100")
    }
    assert [row.namespace for row in moved.rows] == ["acme-vision", "acme-speech"]
    for name in ("burst", "from_pool", "lent", "from_platform", "uncovered"):
        assert getattr(moved.covers_total, name) == sum(getattr(r, name) for r in moved.covers)
    assert moved.covers_total.lent == moved.total.lent
    one = selectors.lending(metered.admin, chosen(), limit=1)
    assert one.others is not None
    assert one.rows[0].lent + one.others.lent == one.total.lent == moved.total.lent


def test_owner_sees_only_the_own_side_of_a_loan(metered: SmallFleet):
    moved = selectors.lending(metered.owner, chosen())
    assert [row.namespace for row in moved.rows] == ["acme-vision"]
    assert moved.pairs is not None
    assert [(p.lender, p.borrower) for p in moved.pairs] == [("", "acme-vision")]
    assert moved.covers == ()
    assert moved.pairs_total == moved.total.borrowed
    whole = person(role=Role.VIEWER, account=metered.acme)
    assert [row.account for row in selectors.lending(whole, chosen()).covers] == ["acme"]
    stranger = person(role=Role.OWNER, workspace=metered.search)
    guessed = selectors.lending(stranger, chosen(workspaces=("acme-vision",)))
    assert (guessed.rows, guessed.pairs, guessed.covers) == ((), (), ())


def test_loans_among_strangers_of_one_account_are_nobodys_business(fleet: SmallFleet):
    third = services.create_workspace(
        fleet.admin,
        account=fleet.acme,
        slug="audio",
        name="Audio",
        home_flavor=fleet.flavors["h100"],
    )
    h100 = fleet.flavors["h100"]
    hour_fact(fleet.speech, 1, h100, committed=100, lent=100)
    hour_fact(third, 1, h100, burst=90, borrowed=90)
    hour_fact(fleet.vision, 1, h100, burst=10, borrowed=10)
    everybody = selectors.lending(fleet.admin, chosen())
    assert everybody.pairs is not None
    assert {(p.lender, p.borrower, p.lent) for p in everybody.pairs} == {
        ("acme-speech", "acme-audio", 90),
        ("acme-speech", "acme-vision", 10),
    }
    own = selectors.lending(fleet.owner, chosen())
    assert own.pairs is not None
    assert [(p.lender, p.borrower, p.lent) for p in own.pairs] == [("", "acme-vision", 10)]


def test_pairs_of_an_hour_add_up_to_what_was_lent(fleet: SmallFleet):
    h100 = fleet.flavors["h100"]
    hour_fact(fleet.speech, 1, h100, committed=7, lent=7)
    hour_fact(fleet.vision, 1, h100, burst=9, borrowed=7)
    hour_fact(fleet.speech, 2, h100, burst=5, borrowed=5)
    hour_fact(fleet.vision, 2, h100, committed=5, lent=5)
    moved = selectors.lending(fleet.admin, chosen())
    assert moved.pairs is not None
    assert [(p.lender, p.borrower, p.lent) for p in moved.pairs] == [
        ("acme-speech", "acme-vision", 7),
        ("acme-vision", "acme-speech", 5),
    ]


@pytest.mark.parametrize("bound", ["MOST_FACTS", "MOST_PAIRS"])
def test_too_many_loans_are_not_matched(metered: SmallFleet, monkeypatch, bound: str):
    monkeypatch.setattr(f"budgets.selectors.usage.lending.{bound}", 3)
    moved = selectors.lending(metered.admin, chosen())
    assert (moved.pairs, moved.pairs_total) == (None, 0)
    assert moved.total.lent > 0


def test_idle_floors_add_up_and_have_advice(metered: SmallFleet):
    table = selectors.usage_table(metered.admin, chosen())
    floors = selectors.idle_floors(metered.admin, chosen())
    for name in ("committed", "committed_used", "lent", "idle"):
        want = sum(getattr(row, name) for row in floors.rows)
        assert floors.totals[name] == want == getattr(table.totals, name)
    assert [row.idle for row in floors.rows] == sorted((r.idle for r in floors.rows), reverse=True)
    search = next(row for row in floors.rows if row.namespace == "globex-search")
    assert search.committed_now == 16
    assert search.advice is not None
    assert (search.advice.enough, search.advice.hours) == (4, 51)
    assert floors.saved_hours == sum(r.advice.saved_hours for r in floors.rows if r.advice)
    one = selectors.idle_floors(metered.admin, chosen(), limit=1)
    assert one.hidden == len(floors.rows) - 1
    assert one.rows[0].idle + one.others["idle"] == one.totals["idle"] == floors.totals["idle"]


def test_advice_waits_for_hours_that_every_cluster_has_told(metered: SmallFleet):
    services.record_progress(cluster="gpu-new", complete_until=hours(12))
    floors = selectors.idle_floors(metered.admin, chosen())
    assert all(row.advice is None for row in floors.rows)


def test_advice_looks_at_the_floor_in_force(metered: SmallFleet):
    with time_machine.travel(hours(51), tick=False):
        metered.revise(metered.search, line("h100", 4))
    floors = selectors.idle_floors(metered.admin, chosen())
    search = next(row for row in floors.rows if row.namespace == "globex-search")
    assert (search.committed_now, search.advice) == (4, None)


def test_owner_gets_advice_for_own_floors_only(metered: SmallFleet):
    rows = selectors.idle_floors(metered.owner, chosen()).rows
    assert {row.namespace for row in rows} == {"acme-vision"}


def test_capacity_is_what_was_held_and_what_was_not(metered: SmallFleet):
    IntervalFactory(kind=Interval.Kind.RACE, start=hours(2), end=hours(3), gpus=2)
    IntervalFactory(
        kind=Interval.Kind.OUTSIDE, workspace=None, namespace="x", start=hours(50), gpus=1
    )
    IntervalFactory(
        kind=Interval.Kind.RACE, start=hours(2), end=hours(3), state=Interval.State.SUPERSEDED
    )
    use = selectors.capacity_use(metered.finance, chosen(), now=hours(60))
    assert use is not None
    assert (use.start, use.end) == (hours(0), hours(51))
    table = selectors.usage_table(metered.admin, chosen(0, 51))
    assert use.total.committed_used == table.totals.committed_used
    assert use.total.burst == table.totals.burst
    assert (use.total.race, use.total.outside) == (2 * 3600, 3600)
    places = {(row.cluster, row.flavor): row for row in use.rows}
    east = places["gpu-east", "h100"]
    assert east.capacity == 32 * 51 * 3600
    assert east.not_held == east.capacity - east.held
    for name in ("capacity", "committed_used", "burst", "race", "outside", "held", "not_held"):
        assert getattr(use.total, name) == sum(getattr(row, name) for row in use.rows)


def test_capacity_follows_what_was_stated_when(metered: SmallFleet):
    with time_machine.travel(hours(1), tick=False):
        services.set_capacity(
            metered.admin,
            cluster="gpu-east",
            flavor=metered.flavors["h100"],
            gpus=40,
            valid_from=hours(10),
            reason="more nodes",
        )
    use = selectors.capacity_use(metered.admin, chosen(8, 12, flavors=("h100",)), now=hours(60))
    assert use is not None
    row = next(row for row in use.rows if row.cluster == "gpu-east")
    assert row.capacity == (32 * 2 + 40 * 2) * 3600


def test_capacity_counts_whole_hours_only(metered: SmallFleet):
    services.record_progress(
        cluster="gpu-new", complete_until=hours(12.5) + timedelta(microseconds=7)
    )
    use = selectors.capacity_use(metered.admin, chosen(7.5), now=hours(60))
    assert use is not None
    assert (use.start, use.end) == (hours(8), hours(12))


def test_capacity_is_for_people_of_the_platform(metered: SmallFleet):
    with pytest.raises(NotAllowed, match="admins, finance and auditors"):
        selectors.capacity_use(metered.owner, chosen(), now=hours(60))
    assert selectors.capacity_use(metered.auditor, chosen(52, 60), now=hours(60)) is None


def test_cluster_split_of_a_workspace_is_that_of_its_workloads(fleet: SmallFleet):
    WorkloadUsageFactory(workspace=fleet.vision, uid="u", hour=hours(1), committed_used=7)
    WorkloadUsageFactory(workspace=fleet.search, uid="v", hour=hours(1), committed_used=5)
    own = selectors.usage_by_key(fleet.owner, chosen(split_by="cluster"))
    assert (own.totals.committed_used, own.totals.idle) == (7, None)
    everything = selectors.usage_by_key(fleet.admin, chosen(split_by="cluster"))
    assert everything.totals.committed_used == 12
