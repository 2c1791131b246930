"""Fleet and envelope checks at every instant of a window."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgets.errors import Fault
from budgets.plan import (
    DatedGpus,
    EnvelopeLimits,
    FlavorTerms,
    FleetLevel,
    FleetTimeline,
    RevisionSpan,
    Room,
    capacity_at,
    check_envelope,
    check_fleet,
    check_pool_envelope,
    edges,
    in_force_at,
    levels_at,
    rooms,
)
from tests.builders import hours, line


def span(namespace, start, end, *lines, number=1) -> RevisionSpan:
    until = None if end is None else hours(end)
    account = namespace.split("-")[0]
    return RevisionSpan(namespace, account, number, hours(start), until, lines)


def timeline(**parts) -> FleetTimeline:
    defaults = {
        "flavors": {"h100": FlavorTerms("h100", name="H100")},
        "capacities": (DatedGpus("east", "h100", 32, hours(-100)),),
    }
    return FleetTimeline(**{**defaults, **parts})


def test_edges_are_the_changes_inside_the_window():
    found = edges(
        timeline(revisions=(span("a-x", -5, 3, line("h100", 8)), span("a-y", 1, 9))),
        start=hours(0),
        end=hours(9),
    )
    assert found == (hours(0), hours(1), hours(3))


def test_exact_fit_is_no_fault_and_one_more_is():
    fits = timeline(revisions=(span("a-x", 0, None, line("h100", 32)),))
    over = timeline(revisions=(span("a-x", 0, None, line("h100", 33)),))
    assert check_fleet(fits, start=hours(0), end=None) == ()
    (fault,) = check_fleet(over, start=hours(0), end=None, fields={"h100": "lines.0.committed"})
    assert (fault.field, fault.code) == ("lines.0.committed", "exceeds_capacity")
    assert fault.message.startswith("This is 1 H100 more")


def test_account_pools_and_platform_pools_count_beside_committed():
    base = timeline(
        revisions=(span("a-x", 0, None, line("h100", 16, 64)),),
        pool_amounts=(
            DatedGpus("own", "h100", 8, hours(0)),
            DatedGpus("shared", "h100", 8, hours(0)),
        ),
        pool_accounts={"own": "a", "shared": None},
    )
    (level,) = levels_at(base, hours(0))
    assert (level.committed, level.account_pools, level.platform_pools) == (16, 8, 8)
    assert (level.promised, level.excess) == (32, 0)
    more = replace(base, pool_amounts=(*base.pool_amounts, DatedGpus("p", "h100", 1, hours(0))))
    assert len(check_fleet(more, start=hours(0), end=None)) == 1


@pytest.mark.parametrize(
    ("factor", "committed", "want"),
    [(Fraction(1), 33, 1), (Fraction(3, 2), 48, 0), (Fraction(3, 2), 49, 1)],
)
def test_factor_raises_the_limit(factor, committed, want):
    checked = timeline(
        flavors={"h100": FlavorTerms("h100", factor=factor)},
        revisions=(span("a-x", 0, None, line("h100", committed)),),
    )
    assert len(check_fleet(checked, start=hours(0), end=None)) == want


def test_maintenance_window_of_capacity_is_seen_only_while_it_lasts():
    checked = timeline(
        capacities=(
            DatedGpus("east", "h100", 32, hours(-9), None, 1),
            DatedGpus("east", "h100", 8, hours(4), hours(6), 2),
        ),
        revisions=(span("a-x", 0, None, line("h100", 16)),),
    )
    assert [capacity_at(checked, hours(h))["east", "h100"] for h in (3.9, 4, 5.9, 6)] == [
        32,
        8,
        8,
        32,
    ]
    assert check_fleet(checked, start=hours(0), end=hours(4)) == ()
    assert check_fleet(checked, start=hours(6), end=None) == ()
    (fault,) = check_fleet(checked, start=hours(0), end=None)
    assert "8 H100 more" in fault.message and "2026-03-01 04:00" in fault.message


def test_stated_capacity_wins_over_measured():
    checked = timeline(measured={("east", "h100"): 64, ("west", "h100"): 16})
    assert capacity_at(checked, hours(0)) == {("east", "h100"): 32, ("west", "h100"): 16}


def test_future_revision_of_another_workspace_counts():
    checked = timeline(
        revisions=(
            span("a-x", 0, None, line("h100", 16)),
            span("b-y", 10, 12, line("h100", 24)),
        )
    )
    assert check_fleet(checked, start=hours(0), end=hours(10)) == ()
    assert check_fleet(checked, start=hours(12), end=None) == ()
    assert len(check_fleet(checked, start=hours(0), end=hours(11))) == 1


def test_a_change_that_makes_nothing_worse_is_no_fault():
    before = timeline(revisions=(span("a-x", 0, None, line("h100", 40)),))
    lower = replace(
        before, revisions=(*before.revisions, span("a-x", 0, None, line("h100", 36), number=2))
    )
    higher = replace(
        before, revisions=(*before.revisions, span("a-x", 0, None, line("h100", 41), number=2))
    )
    assert check_fleet(lower, start=hours(0), end=None, before=before) == ()
    assert len(check_fleet(higher, start=hours(0), end=None, before=before)) == 1


def test_latest_start_wins_then_the_higher_number_and_reverts_after_its_end():
    revisions = (
        span("a-x", 0, None, line("h100", 1), number=1),
        span("a-x", 5, 7, line("h100", 2), number=2),
        span("a-x", 5, 6, line("h100", 3), number=3),
    )
    seen = [in_force_at(revisions, hours(h))["a-x"].number for h in (0, 4.99, 5, 6, 7)]
    assert seen == [1, 1, 3, 2, 1]


def test_envelope_names_committed_and_ceiling_of_the_account_only():
    before = timeline(
        revisions=(span("a-x", 0, None, line("h100", 8)), span("b-y", 0, None, line("h100", 99))),
        envelopes={("a", "h100"): EnvelopeLimits(committed=16, ceiling=24)},
    )
    after = replace(
        before, revisions=(*before.revisions, span("a-z", 0, None, line("h100", 9, 25)))
    )
    faults = check_envelope(
        after, account="a", start=hours(0), end=None, before=before, fields={"h100": "lines.0"}
    )
    assert {(fault.field, fault.code) for fault in faults} == {
        ("lines.0.committed", "exceeds_envelope"),
        ("lines.0.ceiling", "exceeds_envelope"),
    }
    assert check_envelope(before, account="a", start=hours(0), end=None, before=before) == ()


def test_without_an_envelope_everything_has_to_be_asked_for():
    before = timeline()
    after = timeline(revisions=(span("a-x", 0, None, line("h100", 1)),))
    faults = check_envelope(after, account="a", start=hours(0), end=None, before=before)
    assert {fault.field for fault in faults} == {"flavors.h100.committed", "flavors.h100.ceiling"}


def test_faults_of_the_fleet_say_how_much_from_when_and_what_to_do():
    """Two flavors, each at its worst instant, the first of equals."""
    flavors = {"h100": FlavorTerms("h100", name="H100"), "l4": FlavorTerms("l4")}
    checked = timeline(
        flavors=flavors,
        revisions=(
            span("a-x", 0, 9, line("h100", 40), line("l4", 1)),
            span("a-y", 4, 5, line("h100", 2)),
            span("a-z", 6, 7, line("h100", 2)),
        ),
    )
    words = "Ask for {} fewer, or ask an admin to add capacity."
    assert check_fleet(checked, start=hours(0), end=None) == (
        Fault(
            "flavors.h100",
            "exceeds_capacity",
            "This is 10 H100 more than the fleet can promise from 2026-03-01 04:00 UTC on. "
            + words.format(10),
        ),
        Fault(
            "flavors.l4",
            "exceeds_capacity",
            "This is 1 l4 more than the fleet can promise. " + words.format(1),
        ),
    )


def test_an_excess_that_ended_before_counts_as_the_changes_own():
    """The edges of what stood are looked at, too."""
    over = span("a-x", 0, 5, line("h100", 40))
    before = timeline(revisions=(over,))
    after = timeline(revisions=(replace(over, valid_until=None),))
    (fault,) = check_fleet(after, start=hours(0), end=None, before=before)
    assert "from 2026-03-01 05:00 UTC on" in fault.message
    assert check_fleet(after, start=hours(0), end=hours(5), before=before) == ()
    more = timeline(revisions=(over, span("a-y", 3, 4, line("h100", 1))))
    (fault,) = check_fleet(more, start=hours(0), end=None, before=before)
    assert "from 2026-03-01 03:00 UTC on" in fault.message


def test_level_of_a_flavor_adds_up_over_workspaces_pools_and_clusters():
    checked = timeline(
        flavors={"h100": FlavorTerms("h100", factor=Fraction(3, 2)), "l4": FlavorTerms("l4")},
        capacities=(
            DatedGpus("east", "h100", 5, hours(-100)),
            DatedGpus("west", "h100", 4, hours(-100)),
        ),
        revisions=(span("a-x", 0, None, line("h100", 6)), span("b-y", 0, None, line("h100", 5))),
        pool_amounts=tuple(
            DatedGpus(pool, "h100", gpus, hours(0))
            for pool, gpus in (("own", 1), ("two", 2), ("shared", 3), ("nobodys", 4))
        ),
        pool_accounts={"own": "a", "two": "b", "shared": None},
    )
    first, second = levels_at(checked, hours(0))
    assert first == FleetLevel(hours(0), "h100", 11, 3, 7, 9, 13)
    assert (first.promised, first.excess) == (21, 8)
    assert second == FleetLevel(hours(0), "l4", 0, 0, 0, 0, 0)


def test_reasons_of_an_envelope_name_the_amount_and_what_is_allowed():
    before = timeline(
        revisions=(span("a-x", 0, None, line("h100", 8)),),
        envelopes={("a", "h100"): EnvelopeLimits(committed=16, ceiling=24)},
    )
    added = span("a-z", 2, None, line("h100", 9, 25)), span("a-w", 5, None, line("h100", 1))
    after = replace(before, revisions=(*before.revisions, *added))
    given = {"account": "a", "end": None, "before": before}
    want = (
        Fault(
            "flavors.h100.committed",
            "exceeds_envelope",
            "The account would have 17 H100 committed, and its envelope allows 16. An admin has to "
            "accept this.",
        ),
        Fault(
            "flavors.h100.ceiling",
            "exceeds_envelope",
            "The burst limit would be 25 H100, and a workspace of this account may have 24. An "
            "admin has to accept this.",
        ),
    )
    assert check_envelope(after, start=hours(0), **given) == want
    assert check_envelope(after, start=hours(0), **{**given, "end": hours(2)}) == ()
    assert check_envelope(after, start=hours(0), **{**given, "account": "b"}) == ()
    lower = replace(after, revisions=(span("a-z", 0, None, line("h100", 8, 24)),))
    assert check_envelope(lower, start=hours(0), **{**given, "before": after}) == ()


def test_what_was_beyond_an_envelope_before_is_named_once_it_grows():
    limits = {("a", "h100"): EnvelopeLimits(committed=4, ceiling=99)}
    before = timeline(revisions=(span("a-x", 0, None, line("h100", 8)),), envelopes=limits)
    for gpus, want in ((8, 0), (9, 1)):
        after = replace(before, revisions=(span("a-x", 0, None, line("h100", gpus)),))
        faults = check_envelope(after, account="a", start=hours(0), end=None, before=before)
        assert len(faults) == want


def test_what_comes_after_the_window_is_not_judged():
    over = span("a-x", 0, 5, line("h100", 8))
    before, after = (timeline(revisions=(row,)) for row in (over, replace(over, valid_until=None)))
    given = {"account": "a", "before": before, "start": hours(0)}
    assert check_envelope(after, end=hours(4), **given) == ()
    assert len(check_envelope(after, end=hours(6), **given)) == 2


def test_rooms_tell_what_a_change_takes_of_envelope_and_fleet():
    envelopes = {("a", "h100"): EnvelopeLimits(committed=20)}
    neighbours = span("a-y", 0, None, line("h100", 7)), span("b-z", 0, None, line("h100", 9))
    before = timeline(
        revisions=(span("a-x", 0, None, line("h100", 4)), *neighbours), envelopes=envelopes
    )
    after = replace(
        before,
        revisions=(span("a-x", 0, None, line("h100", 14), line("l4", 2)), *neighbours),
        pool_amounts=(DatedGpus("shared", "h100", 3, hours(0)),),
        pool_accounts={"shared": None},
    )
    given = {"account": "a", "namespace": "a-x", "instant": hours(0)}
    found = rooms(before, after, flavors=["l4", "h100"], **given)
    assert found == (
        Room("envelope", "l4", limit=0, others=0, before=0, after=2),
        Room("envelope", "h100", limit=20, others=7, before=4, after=14),
        Room("fleet", "h100", limit=32, others=19, before=4, after=14),
    )
    assert [room.excess for room in found] == [2, 1, 1]
    stood = rooms(after, before, flavors=["h100"], **given)
    assert [(room.others, room.before, room.after, room.excess) for room in stood] == [
        (7, 14, 4, 0),
        (16, 14, 4, 0),
    ]
    new = rooms(timeline(), timeline(), flavors=["h100"], **given)
    assert new == (
        Room("envelope", "h100", limit=0, others=0, before=0, after=0),
        Room("fleet", "h100", limit=32, others=0, before=0, after=0),
    )


def test_pool_of_an_account_stays_within_its_envelope():
    checked = timeline(envelopes={("a", "h100"): EnvelopeLimits(pool=8)})

    def faults(account: str, gpus: int) -> tuple[Fault, ...]:
        return check_pool_envelope(checked, account=account, flavor="h100", gpus=gpus, field="gpus")

    assert faults("a", 8) == faults("b", 0) == ()
    assert faults("a", 9) == (
        Fault(
            "gpus",
            "exceeds_envelope",
            "9 H100 in the account's pool are more than its envelope of 8 allows. Raise the "
            "envelope first, or lower the amount.",
        ),
    )
    assert [fault.code for fault in faults("b", 1)] == ["exceeds_envelope"]


spans = st.builds(
    lambda owner, start, length, gpus, number: span(
        f"a-{owner}",
        start,
        None if length is None else start + length,
        line("h100", gpus),
        number=number,
    ),
    st.sampled_from("xyz"),
    st.integers(0, 20),
    st.one_of(st.none(), st.integers(1, 10)),
    st.integers(0, 30),
    st.integers(1, 50),
)


@settings(max_examples=150)
@given(st.lists(spans, max_size=6, unique_by=lambda s: (s.namespace, s.number)))
def test_law_the_sweep_over_edges_sees_what_every_instant_sees(revisions):
    checked = timeline(revisions=tuple(revisions))
    by_edges = max(
        (
            level.excess
            for instant in edges(checked, start=hours(0), end=hours(40))
            for level in levels_at(checked, instant)
        ),
        default=0,
    )
    by_minutes = max(
        level.excess for half in range(80) for level in levels_at(checked, hours(half / 2))
    )
    assert by_edges == by_minutes
    assert (check_fleet(checked, start=hours(0), end=hours(40)) == ()) is (by_minutes == 0)
