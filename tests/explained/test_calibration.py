"""Ranges that past forecasts move: how often they hold then, and what is never made of them."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta

import pytest

from clusters.forecasting import (
    NEWEST,
    Confidence,
    Correction,
    Outcome,
    StartForecast,
    corrected,
    correction_from,
)
from clusters.forecasting.calibration import LEAST

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = 3600.0


def told(low: float, high: float) -> StartForecast:
    """A range in seconds from now."""
    return StartForecast(
        Confidence.GOOD,
        earliest=NOW + timedelta(seconds=low),
        latest=NOW + timedelta(seconds=high),
        coverage=0.8,
        runs=40,
    )


def seconds(found: StartForecast) -> tuple[float, float]:
    assert found.earliest is not None and found.latest is not None
    return (found.earliest - NOW).total_seconds(), (found.latest - NOW).total_seconds()


def share_held(*, width: float, shift: float, count: int = 1500) -> tuple[float, float, float]:
    """Forecasts of one cluster, one after the other: held as played, as stated, width to width.

    Waits are lognormal around an hour; ranges as played are ``width`` times those that would hold
    in 8 of 10 cases, and ``shift`` times as late.
    """
    rng = random.Random(11)
    past: list[Outcome] = []
    played, stated, widths = 0, 0, []
    for _ in range(count):
        scale = rng.choice([0.5, 1.0, 6.0]) * HOUR
        half = 1.2816 * 0.6 * width
        low, high = (scale * shift * math.exp(sign * half) for sign in (-1, 1))
        waited = scale * rng.lognormvariate(0.0, 0.6)
        first, last = seconds(corrected(told(low, high), correction_from(past), now=NOW))
        played += low <= waited <= high
        stated += first <= waited <= last
        widths.append((last - first) / (high - low))
        past.append(Outcome(low, high, waited))
    return played / count, stated / count, sum(widths) / count


@pytest.mark.parametrize(
    ("width", "shift"),
    [
        pytest.param(1.0, 1.0, id="that hold as they are"),
        pytest.param(0.5, 1.0, id="half as wide as they have to be"),
        pytest.param(1.0, 0.4, id="far too early"),
        pytest.param(1.0, 2.5, id="far too late"),
        pytest.param(2.0, 1.0, id="twice as wide"),
    ],
)
def test_ranges_hold_as_often_as_they_say_after_a_while(width: float, shift: float):
    played, stated, ratio = share_held(width=width, shift=shift)
    assert stated == pytest.approx(0.8, abs=0.03)
    if (width, shift) == (1.0, 1.0):
        assert played == pytest.approx(0.8, abs=0.03)
        assert ratio == pytest.approx(1.0, abs=0.1), "what holds is left alone"
    if width == 2.0:
        assert played > 0.95 and ratio < 0.6, "it is not widened to everything"
    if width == 0.5 or shift != 1.0:
        assert played < 0.6


def test_few_past_forecasts_change_nothing():
    past = [Outcome(HOUR, 2 * HOUR, 9 * HOUR)] * (LEAST - 1)
    assert correction_from(past) == Correction()
    found = told(HOUR, 2 * HOUR)
    assert corrected(found, correction_from(past), now=NOW) is found
    assert correction_from([*past, past[0]]).count == LEAST


def test_only_the_newest_count():
    old, new = Outcome(HOUR, 2 * HOUR, 18 * HOUR), Outcome(HOUR, 2 * HOUR, 1.5 * HOUR)
    assert correction_from([*[old] * 500, *[new] * NEWEST]) == correction_from([new] * NEWEST)
    assert correction_from([new] * NEWEST).high < 1 < correction_from([old] * NEWEST).high


def test_each_end_is_moved_by_itself():
    late = [Outcome(HOUR, 2 * HOUR, (1 + number / 20) * HOUR) for number in range(100)]
    by = correction_from(late)
    low, high = seconds(corrected(told(HOUR, 2 * HOUR), by, now=NOW))
    assert high == pytest.approx(5.5 * HOUR, abs=0.1 * HOUR)
    assert low == pytest.approx(1.45 * HOUR, abs=0.1 * HOUR)


def test_where_ranges_would_have_to_say_nothing_none_is_told():
    held = [Outcome(HOUR, 2 * HOUR, 1.5 * HOUR)] * 45
    late = [Outcome(HOUR, 2 * HOUR, 60 * HOUR)] * 5
    assert correction_from([*held, *late[:4]]).high < 1
    found = corrected(told(HOUR, 2 * HOUR), correction_from([*held, *late * 2]), now=NOW)
    assert found.confidence is Confidence.UNKNOWN
    assert "started much later than was foreseen" in found.why_unknown
    assert (found.earliest, found.latest) == (None, None)


def test_what_is_moved_beyond_two_months_is_not_told():
    found = corrected(told(HOUR, 20 * 24 * HOUR), Correction(1.0, 4.0, 50), now=NOW)
    assert found.confidence is Confidence.UNKNOWN
    assert "too far ahead" in found.why_unknown


def test_a_range_has_no_end_before_its_beginning_and_none_in_the_past():
    low, high = seconds(corrected(told(HOUR, 2 * HOUR), Correction(3.0, 0.1, 50), now=NOW))
    assert low == pytest.approx(3 * HOUR, abs=180) and low <= high <= low + 60
    assert seconds(corrected(told(0, 60), Correction(0.1, 1.0, 50), now=NOW))[0] == 0.0


def test_a_range_is_in_whole_minutes_and_keeps_what_it_says():
    found = corrected(told(3601, 7201), Correction(1.1, 1.3, 50), now=NOW)
    low, high = seconds(found)
    assert low % 60 == high % 60 == 0
    assert (found.coverage, found.runs, found.confidence) == (0.8, 40, Confidence.GOOD)


def test_what_is_unknown_stays_unknown():
    unknown = StartForecast(Confidence.UNKNOWN, why_unknown="so")
    assert corrected(unknown, Correction(1, 2, 50), now=NOW) is unknown
