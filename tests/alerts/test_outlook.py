"""The projection of a window to its end."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from budgets.outlook import Series, project
from budgets.units import Period

START = datetime(2026, 6, 1, tzinfo=UTC)  # a Monday
HOUR = timedelta(hours=1)
JUNE = Period(START, datetime(2026, 7, 1, tzinfo=UTC))


def series(days_before: int, until: datetime, amount) -> Series:
    first = until - timedelta(days=days_before)
    hours = [first + n * HOUR for n in range(days_before * 24)]
    return Series(first, until, {hour: float(amount(hour)) for hour in hours})


def office(hour: datetime) -> float:
    """Busy on weekdays from 8 to 18 UTC."""
    return 10.0 if hour.weekday() < 5 and 8 <= hour.hour < 18 else 0.0


def test_a_steady_use_is_carried_on_and_the_band_is_closed():
    now = START + timedelta(days=10)
    found = project(JUNE, series(20, now, lambda _: 2.0), spent=480.0, fixed=1.0)
    assert found.expected == pytest.approx(480 + 20 * 24 * 3)
    assert found.low == pytest.approx(found.high) == pytest.approx(found.expected)
    assert found.days_known == 20


def test_hours_of_the_week_are_learned():
    now = START + timedelta(days=14)  # Monday: 12 weekdays are left in June
    found = project(JUNE, series(28, now, office), spent=0.0, fixed=0.0)
    assert found.expected == pytest.approx(12 * 10 * 10)


def test_the_limit_is_reached_in_the_hour_that_takes_the_sum_there():
    now = START + timedelta(days=14)
    found = project(JUNE, series(28, now, office), spent=1000.0, fixed=0.0, limit=1150.0)
    # Monday brings 100, the next fifty come by the fifth hour of Tuesday.
    assert found.exhausted_at == now + timedelta(days=1, hours=12)
    over = project(JUNE, series(28, now, office), spent=1200.0, fixed=0.0, limit=1150.0)
    assert over.exhausted_at == now
    never = project(JUNE, series(28, now, office), spent=0.0, fixed=0.0, limit=1e6)
    assert never.exhausted_at is None


def test_what_is_promised_is_certain_however_wild_the_use():
    now = START + timedelta(days=10)
    dice = random.Random(1)
    wild = series(28, now, lambda _: dice.choice((0, 0, 0, 500)))
    found = project(JUNE, wild, spent=100.0, fixed=4.0)
    assert found.low >= 100 + 4.0 * 20 * 24
    assert found.low < found.expected < found.high


def test_without_history_nothing_is_expected_beyond_the_floor():
    found = project(JUNE, Series(START, START, {}), spent=0.0, fixed=2.0)
    assert found.expected == found.low == found.high == 2.0 * 720
    assert found.days_known == 0


def test_a_window_that_is_over_is_what_was_spent():
    found = project(JUNE, series(28, JUNE.end, office), spent=77.0, fixed=5.0)
    assert (found.low, found.expected, found.high) == (77.0, 77.0, 77.0)


def test_half_an_hour_counts_half():
    window = Period(START, START + timedelta(hours=1, minutes=30))
    found = project(window, Series(START, START, {}), spent=0.0, fixed=2.0)
    assert found.expected == 3.0


def test_four_of_five_windows_end_inside_the_band():
    """Calibration over histories with a pattern of the week and noise from day to day."""
    inside = total = 0
    for seed in range(200):
        dice = random.Random(seed)
        noise: dict[datetime, float] = {}

        def amount(hour: datetime, dice=dice, noise=noise) -> float:
            day = hour.replace(hour=0)
            factor = noise.setdefault(day, dice.lognormvariate(0, 0.4))
            return (office(hour) + 2) * factor * dice.uniform(0.5, 1.5)

        now = START + timedelta(days=14)
        known = series(28, now, amount)
        rest = sum(amount(now + n * HOUR) for n in range(16 * 24))
        found = project(JUNE, known, spent=0.0, fixed=0.0)
        inside += found.low <= rest <= found.high
        total += 1
    assert 0.72 <= inside / total <= 0.9
