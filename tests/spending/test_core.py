"""Windows, sums and verdicts of spend rules: the pure part, in tables and as laws."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.charging import Rate, Rates
from budgets.metering import Floor, Held, Pools, Revision, meter
from budgets.plan import StopPolicy, strongest_stop
from budgets.spending import (
    LONGEST,
    NO_EFFECT,
    Action,
    Cap,
    CapMemory,
    Counts,
    QueueEffect,
    Unit,
    Window,
    amount_of,
    effect_words,
    exhausted_at,
    floor_need,
    judge,
    spent_of,
    strongest,
    window_at,
)
from budgets.units import AccountName, FlavorName, Period, WorkloadUid, WorkspaceName
from tests.builders import START, hours

BERLIN = ZoneInfo("Europe/Berlin")
MARCH = Period(START, START + timedelta(days=31))
SPACE = WorkspaceName("acme-vision")
H100 = FlavorName("h100")
CARD = Rates(
    [Rate(H100, START - timedelta(days=9), Decimal("2"), Decimal("3"), Decimal("0.5"))],
    currency="EUR",
)

instants = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)).map(  # noqa: DTZ001  made aware below
    lambda naive: naive.replace(microsecond=0, tzinfo=UTC)
)
zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]
).map(ZoneInfo)
repeating = st.sampled_from([Window.DAY, Window.WEEK, Window.MONTH])


@pytest.mark.parametrize(
    ("kind", "now", "want_start", "want_hours"),
    [
        pytest.param(Window.DAY, (3, 29, 12), (3, 28, 23), 23, id="the day the clock goes forward"),
        pytest.param(Window.DAY, (10, 25, 12), (10, 24, 22), 25, id="the day it goes back"),
        pytest.param(Window.WEEK, (3, 29, 12), (3, 22, 23), 167, id="a week begins on Monday"),
        pytest.param(Window.MONTH, (3, 1, 12), (2, 28, 23), 743, id="a month of the zone"),
    ],
)
def test_windows_are_those_of_the_wall_clock(kind, now, want_start, want_hours):
    found = window_at(kind, datetime(2026, *now, tzinfo=UTC), zone=BERLIN, grant=None)
    assert found.start == datetime(2026, *want_start, tzinfo=UTC)
    assert found.seconds == want_hours * 3600


@given(kind=repeating, now=instants, zone=zones)
def test_every_instant_lies_in_one_window_and_windows_meet(kind, now, zone):
    found = window_at(kind, now, zone=zone, grant=None)
    assert now in found
    assert window_at(kind, found.start, zone=zone, grant=None) == found
    assert window_at(kind, found.end, zone=zone, grant=None).start == found.end
    assert found.seconds <= LONGEST[kind] * 3600


def test_a_grant_is_one_window_with_or_without_an_end():
    grant = (hours(0), hours(48))
    assert window_at(Window.GRANT, hours(90), zone=BERLIN, grant=grant) == Period(*grant)
    assert hours(24 * 9999) in window_at(Window.GRANT, hours(1), zone=BERLIN, grant=(START, None))
    with pytest.raises(ValueError, match="start"):
        window_at(Window.GRANT, hours(1), zone=BERLIN, grant=None)


def cap(action=Action.HOLD, amount=100, **more) -> Cap:
    return Cap(Unit.GPU_HOURS, Fraction(amount), action=action, **more)


NOTHING_KNOWN = CapMemory()


def verdict(rule, spent, *, at=1.0, standing=NOTHING_KNOWN, until=None, window=MARCH):
    return judge(
        rule,
        spent=Fraction(spent),
        window=window,
        standing=standing,
        suspended_until=until,
        now=hours(at),
    )


@pytest.mark.parametrize(
    ("action", "want"),
    [
        (Action.WARN, NO_EFFECT),
        (Action.DROP_TO_FLOOR, QueueEffect(floor_only=True)),
        (Action.HOLD, QueueEffect(StopPolicy.HOLD)),
        (Action.HOLD_AND_DRAIN, QueueEffect(StopPolicy.HOLD_AND_DRAIN)),
    ],
)
def test_what_a_reached_cap_does(action, want):
    assert verdict(cap(action), 99).effect == NO_EFFECT
    assert verdict(cap(action), 100).effect == want


def test_draining_waits_for_the_grace_since_the_cap_was_first_seen_reached():
    rule = cap(Action.HOLD_AND_DRAIN, grace=timedelta(hours=2))
    first = verdict(rule, 100, at=5)
    assert (first.effect, first.drains_at) == (QueueEffect(StopPolicy.HOLD), hours(7))
    standing = CapMemory(MARCH.start, first.reached_at)
    assert verdict(rule, 130, at=6.99, standing=standing).effect == QueueEffect(StopPolicy.HOLD)
    late = verdict(rule, 130, at=7, standing=standing)
    assert late.effect == QueueEffect(StopPolicy.HOLD_AND_DRAIN)
    assert late.reached_at == hours(5)


def test_it_lets_go_when_raised_when_the_window_turns_and_while_the_glass_is_broken():
    standing = CapMemory(MARCH.start, hours(5))
    assert verdict(cap(amount=200), 150, standing=standing).reached_at is None
    april = Period(MARCH.end, MARCH.end + timedelta(days=30))
    turned = verdict(cap(), 100, at=31 * 24 + 1, standing=standing, window=april)
    assert turned.reached_at == hours(31 * 24 + 1), "reached anew, not since March"
    broken = verdict(cap(), 150, at=9, standing=standing, until=hours(10))
    assert (broken.effect, broken.is_suspended, broken.reached_at) == (NO_EFFECT, True, hours(5))
    assert verdict(cap(), 150, at=10, standing=standing, until=hours(10)).effect != NO_EFFECT


def test_grace_begins_anew_when_the_glass_is_whole_again():
    rule = cap(Action.HOLD_AND_DRAIN, grace=timedelta(hours=1))
    found = verdict(rule, 150, at=10, standing=CapMemory(MARCH.start, hours(1)), until=hours(10))
    assert (found.effect.stop_policy, found.drains_at) == (StopPolicy.HOLD, hours(11))


def test_a_grant_that_has_ended_holds_nothing_back():
    window = Period(START, hours(10))
    assert verdict(cap(), 500, at=10, window=window).effect == NO_EFFECT
    assert (
        exhausted_at(cap(), spent=Fraction(1), per_hour=Fraction(9), window=window, now=hours(11))
        is None
    )


effects = st.builds(QueueEffect, st.sampled_from(StopPolicy), st.booleans())


@given(st.lists(effects), st.lists(effects))
def test_effects_add_up_in_any_order_and_never_to_less(some, more):
    both = strongest([*some, *more])
    assert both == strongest([*more, *some]) == strongest([strongest(some), strongest(more)])
    for one in some:
        assert strongest([both, one]) == both


def test_the_strongest_reason_to_stop_wins():
    assert strongest_stop() is StopPolicy.NONE
    assert strongest_stop(StopPolicy.HOLD, StopPolicy.NONE) is StopPolicy.HOLD
    assert strongest_stop(StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN) is StopPolicy.HOLD_AND_DRAIN


@given(
    spent=st.fractions(0, 1000),
    per_hour=st.fractions(0, 100),
    amount=st.integers(1, 1000),
    at=st.integers(0, 31 * 24 - 1),
)
def test_the_date_of_exhaustion_is_the_first_second_in_which_the_cap_is_reached(
    spent, per_hour, amount, at
):
    rule, now = cap(amount=amount), hours(at)
    found = exhausted_at(rule, spent=spent, per_hour=per_hour, window=MARCH, now=now)

    def after(instant):
        return spent + per_hour * Fraction((instant - now) // timedelta(seconds=1), 3600)

    if found is None:
        assert after(MARCH.end) <= amount
        return
    assert after(found) >= amount
    assert found == now or after(found - timedelta(seconds=1)) < amount


held = st.builds(
    lambda n, gpus, start, length: Held(
        WorkloadUid(f"u{n}"), SPACE, H100, gpus, hours(start), hours(start),
        None if length is None else hours(start + length),
    ),
    st.integers(0, 99), st.integers(1, 16), st.floats(0, 20).map(lambda x: round(x * 60) / 60),
    st.none() | st.integers(1, 10),
)  # fmt: skip


def sums(rows, floor, start, end):
    usage = meter(
        rows,
        [Revision(SPACE, START - timedelta(days=1), {H100: Floor(floor)})],
        Pools(accounts={SPACE: AccountName("acme")}),
        Period(hours(start), hours(end)),
    )
    return spent_of(usage.hours, CARD)


@given(
    rows=st.lists(held, max_size=6, unique_by=lambda row: row.uid),
    floor=st.integers(0, 12),
    cuts=st.lists(st.integers(1, 24 * 60 - 1), max_size=4, unique=True).map(sorted),
)
def test_what_is_stored_plus_what_is_metered_now_is_the_whole(rows, floor, cuts):
    """However a window is cut into hour facts and the rest, the cap sees the same."""
    whole = sums(rows, floor, 0, 24)
    edges = [0, *(cut / 60 for cut in cuts), 24]
    parts = [sums(rows, floor, *pair) for pair in pairwise(edges)]
    for name in ("burst_hours", "floor_hours", "burst_cost", "floor_cost"):
        assert sum(getattr(part, name) for part in parts) == getattr(whole, name)
    assert whole.burst_cost == whole.burst_hours * 3
    assert whole.floor_cost == floor * 24 * 2


@given(rows=st.lists(held, max_size=6, unique_by=lambda row: row.uid), floor=st.integers(1, 12))
def test_a_cap_that_includes_the_floor_is_never_reached_by_the_floor_alone(rows, floor):
    within = [row for row in rows if row.gpus <= floor][:1]
    spent = sums(within, floor, 0, 24)
    for unit, prices in ((Unit.GPU_HOURS, None), (Unit.MONEY, {"h100": Fraction(2)})):
        least = floor_need({"h100": floor}, prices, hours=Fraction(25))
        rule = Cap(unit, least, counts=Counts.EVERYTHING, action=Action.HOLD)
        assert amount_of(spent, rule) < least


def test_flavors_without_a_price_are_named_and_cost_nothing():
    found = spent_of(
        meter(
            [Held(WorkloadUid("u"), SPACE, FlavorName("l4"), 2, START, START, None)],
            [Revision(SPACE, START, {})],
            Pools(accounts={SPACE: AccountName("acme")}),
            Period(START, hours(1)),
        ).hours,
        CARD,
    )
    assert (found.burst_hours, found.burst_cost, found.unpriced) == (2, 0, ("l4",))


@pytest.mark.parametrize("action", list(Action))
def test_words_say_what_stops_running_jobs_and_what_only_new_ones(action):
    grace = timedelta(minutes=90) if action is Action.HOLD_AND_DRAIN else timedelta(0)
    text = effect_words(cap(action, grace=grace))
    assert ("are stopped 90 minutes later" in text) == (action is Action.HOLD_AND_DRAIN)
    assert ("New jobs wait" in text) == (action in (Action.HOLD, Action.HOLD_AND_DRAIN))
