"""Fleet and envelope checks at every instant of a window."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgets.plan import (
    DatedGpus,
    EnvelopeLimits,
    FlavorTerms,
    FleetTimeline,
    RevisionSpan,
    capacity_at,
    check_envelope,
    check_fleet,
    edges,
    in_force_at,
    levels_at,
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
