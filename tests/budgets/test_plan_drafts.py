"""What somebody asks for: its own faults, the form of three fields, and the part that is taken."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from budgets.errors import Fault, Rejected
from budgets.plan import (
    MOST_GPUS,
    FlavorTerms,
    Line,
    Part,
    RevisionDraft,
    check_draft,
    name_of,
    part_of,
    short_form_lines,
)
from tests.builders import hours, line

FLAVORS = {
    "h100": FlavorTerms("h100", name="H100"),
    "l4": FlavorTerms("l4"),
    "old": FlavorTerms("old", is_archived=True, name="Old one"),
}


def faults(*lines: Line, **draft: Any) -> list[tuple[str, str, str]]:
    found = check_draft(RevisionDraft(lines, **draft), flavors=FLAVORS, now=hours(0))
    return [(fault.field, fault.code, fault.message) for fault in found]


def test_flavor_is_called_by_its_name_else_by_its_slug():
    assert [name_of(flavor, FLAVORS) for flavor in ("h100", "l4", "new")] == ["H100", "l4", "new"]


@pytest.mark.parametrize(
    ("committed", "ceiling", "preferred", "want"),
    [
        pytest.param(4, 12, None, [line("h100", 4, 12, 4)], id="no other flavor"),
        pytest.param(4, 12, "", [line("h100", 4, 12, 4)], id="an empty choice"),
        pytest.param(4, 12, "h100", [line("h100", 4, 12, 4)], id="its own"),
        pytest.param(4, 12, "l4", [line("h100", 4), line("l4", 0, 8, 0)], id="burst elsewhere"),
        pytest.param(4, 4, "l4", [line("h100", 4), line("l4", 0)], id="no burst"),
        pytest.param(4, 3, "l4", [line("h100", 4, 3, 4)], id="a ceiling below the floor stays"),
    ],
)
def test_three_fields_become_lines(committed, ceiling, preferred, want):
    made = short_form_lines(
        home_flavor="h100", committed=committed, ceiling=ceiling, preferred=preferred
    )
    assert list(made) == want


def test_coherent_draft_has_no_fault():
    window = {"valid_from": hours(1), "valid_until": hours(2)}
    whole = line("h100", MOST_GPUS, MOST_GPUS), line("l4", 0)
    assert faults(*whole, preference=("l4", "h100"), **window) == []
    assert faults() == []


def test_draft_is_told_everything_at_once():
    found = faults(
        line("h100", 4, 2, 5),
        line("new", 1),
        line("h100", 1),
        line("old", 1),
        preference=("l4", "h100", "h100"),
        valid_until=hours(0),
    )
    assert found == [
        (
            "lines.0.ceiling",
            "ceiling_below_committed",
            "The burst limit of 2 is below the 4 committed GPUs. It counts the committed GPUs, "
            "too: enter at least as many.",
        ),
        (
            "lines.0.lendable",
            "lendable_above_committed",
            "Only committed GPUs can be lent: 5 to lend are more than the 4 committed.",
        ),
        ("lines.1.flavor", "unknown_flavor", "There is no flavor 'new'."),
        (
            "lines.2.flavor",
            "flavor_twice",
            "H100 has two lines; put both amounts on one line.",
        ),
        (
            "lines.3.flavor",
            "archived_flavor",
            "Old one is archived and can no longer be promised. Choose another flavor.",
        ),
        (
            "preference.0",
            "preference_without_line",
            "l4 is preferred but has no line. Add a line, or take it out of the preference.",
        ),
        (
            "preference",
            "preference_twice",
            "The preference names a flavor twice; name each flavor once.",
        ),
        (
            "valid_until",
            "empty_window",
            "The end has to be after the start; choose a later end, or leave it empty.",
        ),
    ]


def test_preferred_flavor_without_a_line_is_called_by_its_name():
    words = "H100 is preferred but has no line. Add a line, or take it out of the preference."
    found = faults(line("l4", 1), preference=("l4", "h100"))
    assert found == [("preference.1", "preference_without_line", words)]


@pytest.mark.parametrize("gpus", [-1, MOST_GPUS + 1, 1.5, True, "3", None])
@pytest.mark.parametrize("place", ["committed", "ceiling", "lendable"])
def test_gpus_that_are_no_whole_number_are_told_before_they_are_compared(place, gpus):
    odd = replace(line("h100", 8, 2, 8), **{place: gpus})
    words = f"{gpus} is not a number of whole GPUs between 0 and 1,000,000."
    assert faults(odd) == [(f"lines.0.{place}", "not_whole_gpus", words)]


NAIVE = "The time has no time zone; give one, such as Z for UTC."
FRACTION = "A budget begins and ends at a whole second. Leave the fraction out."
EMPTY = "The end has to be after the start; choose a later end, or leave it empty."
SPLIT = hours(3) + timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("start", "until", "want"),
    [
        pytest.param(None, hours(1), [], id="from now"),
        pytest.param(hours(-2), None, [], id="without an end"),
        pytest.param(None, hours(0), [("valid_until", "empty_window", EMPTY)], id="ends now"),
        pytest.param(hours(-2), hours(-1), [("valid_until", "empty_window", EMPTY)], id="is over"),
        pytest.param(
            hours(2), hours(2), [("valid_until", "empty_window", EMPTY)], id="ends as it begins"
        ),
        pytest.param(
            hours(1).replace(tzinfo=None),
            hours(-1).replace(tzinfo=None),
            [("valid_from", "naive_time", NAIVE), ("valid_until", "naive_time", NAIVE)],
            id="no time zones",
        ),
        pytest.param(
            SPLIT,
            SPLIT,
            [
                ("valid_from", "not_whole_seconds", FRACTION),
                ("valid_until", "not_whole_seconds", FRACTION),
            ],
            id="fractions of seconds",
        ),
    ],
)
def test_window_has_to_be_clear_and_to_last(start, until, want):
    assert faults(line("h100", 1), valid_from=start, valid_until=until) == want


WHOLE = RevisionDraft(
    lines=(line("h100", 8, 16), line("l4", 0, 4)),
    preference=("l4", "h100"),
    valid_from=hours(1),
    valid_until=hours(9),
    reason="a course",
)


def test_part_of_a_request_has_its_lines_its_end_and_what_is_left_of_the_preference():
    everything = part_of(WHOLE, Part(), flavors=FLAVORS)
    assert everything == WHOLE
    smaller = Part((line("h100", 8, 16), line("l4", 0, 0)), hours(8))
    assert part_of(WHOLE, smaller, flavors=FLAVORS) == RevisionDraft(
        lines=(line("h100", 8, 16),),
        preference=("h100",),
        valid_from=hours(1),
        valid_until=hours(8),
        reason="a course",
    )
    endless = replace(WHOLE, valid_until=None)
    assert part_of(endless, Part(valid_until=hours(99)), flavors=FLAVORS).valid_until == hours(99)


def test_line_that_asks_for_nothing_stays_where_that_is_what_is_asked():
    nothing = RevisionDraft(lines=(line("h100", 0), line("l4", 0)))
    assert part_of(nothing, Part(), flavors=FLAVORS) == nothing


def test_more_than_the_request_is_not_accepted():
    part = Part((line("h100", 9, 17), line("old", 1), line("l4", 0, 5)), hours(9.5))
    with pytest.raises(Rejected) as refused:
        part_of(WHOLE, part, flavors=FLAVORS)
    more = "The request asks for {} {} here; accept as many or fewer."
    assert refused.value.faults == (
        Fault("lines.0.committed", "more_than_asked", more.format(8, "H100")),
        Fault("lines.0.ceiling", "more_than_asked", more.format(16, "H100")),
        Fault("lines.1.flavor", "not_asked", "The request does not ask for Old one. Leave it out."),
        Fault("lines.2.ceiling", "more_than_asked", more.format(4, "l4")),
        Fault(
            "valid_until",
            "more_than_asked",
            "The request ends earlier. Choose its end or an earlier time.",
        ),
    )


def test_accepting_none_of_the_gpus_is_declining():
    with pytest.raises(Rejected) as refused:
        part_of(WHOLE, Part((line("h100", 0),)), flavors=FLAVORS)
    words = "This accepts none of the GPUs. Decline the request instead."
    assert refused.value.faults == (Fault("", "nothing_accepted", words),)
