"""Forecasts in made-up fleets hold about as often as they say; halved ranges would not.

The whole run, with its figures, is ``python -m tests.forecast``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.forecast import Asked, figures, simulate

SEED, WAITS, FLEETS = 5, 400, 2
NEAR = 0.07
"""Of some hundred waits; of ten thousand it is less."""


@pytest.fixture(scope="module")
def asked() -> list[Asked]:
    fleets = simulate(SEED, WAITS, fleets=FLEETS)
    return [each for fleet in fleets for each in fleet.asked]


def halved(found: Asked) -> Asked:
    """The same with a range half as wide around its middle."""
    earliest, latest = found.stated.earliest, found.stated.latest
    assert earliest is not None and latest is not None
    quarter = (latest - earliest) / 4
    return replace(
        found, stated=replace(found.stated, earliest=earliest + quarter, latest=latest - quarter)
    )


def test_stated_ranges_hold_as_often_as_they_say(asked: list[Asked]):
    found = figures(asked)
    assert found.asked == WAITS
    assert found.held == pytest.approx(found.stated, abs=NEAR)


def test_ranges_half_as_wide_would_not(asked: list[Asked]):
    found = figures([halved(each) for each in asked])
    assert found.held < found.stated - NEAR


def test_ranges_are_not_widened_to_everything(asked: list[Asked]):
    found = figures(asked)
    assert found.median_hours < 4 * found.median_hours_as_played


def test_the_same_seed_gives_the_same_figures():
    first, again = (simulate(3, 20, fleets=1)[0].asked for _ in range(2))
    assert figures(first) == figures(again)
