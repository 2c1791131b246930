"""Exact quantities: periods, money, whole shares."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.units import (
    CurrencyMismatch,
    Money,
    Period,
    UnitsError,
    apportion,
    currency_digits,
    from_seconds,
    month_period,
    quantise,
    to_seconds,
    utc,
    whole_shares,
)

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(NOON.replace(tzinfo=None), id="naive"),
        pytest.param(NOON.replace(microsecond=1), id="a fraction of a second"),
    ],
)
def test_time_that_is_not_exact_raises(moment):
    for refuse in (utc, to_seconds, lambda m: Period(m, NOON + timedelta(days=1))):
        with pytest.raises(UnitsError):
            refuse(moment)


def test_time_of_another_zone_becomes_utc():
    local = datetime(2026, 5, 4, 14, tzinfo=timezone(timedelta(hours=2)))
    period = Period(local, NOON + timedelta(hours=1))
    assert (period.start.tzinfo, period.start, period.seconds) == (UTC, NOON, 3600)
    assert from_seconds(to_seconds(local)) == NOON


def test_period_is_half_open_and_never_empty():
    period = Period(NOON, NOON + timedelta(seconds=10))
    assert NOON in period
    assert period.end not in period
    assert period.overlap(Period(period.end, period.end + timedelta(1))) is None
    with pytest.raises(UnitsError):
        Period(NOON, NOON)


def test_period_splits_at_utc_hours_with_clipped_edges():
    period = Period(NOON - timedelta(minutes=30), NOON + timedelta(minutes=75))
    assert [(hour.hour, part.seconds) for hour, part in period.utc_hours()] == [
        (11, 1800),
        (12, 3600),
        (13, 900),
    ]


@pytest.mark.parametrize(
    ("year", "month", "zone", "want_start", "want_hours"),
    [
        pytest.param(2026, 10, "Europe/Berlin", "2026-09-30T22:00", 745, id="clock goes back"),
        pytest.param(2026, 3, "Europe/Berlin", "2026-02-28T23:00", 743, id="clock goes forward"),
        pytest.param(2026, 12, "UTC", "2026-12-01T00:00", 744, id="over the year's end"),
        pytest.param(2026, 4, "Asia/Kolkata", "2026-03-31T18:30", 720, id="half-hour offset"),
    ],
)
def test_month_is_from_local_midnight_to_local_midnight(year, month, zone, want_start, want_hours):
    period = month_period(year, month, zone=ZoneInfo(zone))
    assert period.start.isoformat().startswith(want_start)
    assert period.seconds == want_hours * 3600


@pytest.mark.parametrize(
    ("currency", "want"), [("EUR", 2), ("JPY", 0), ("KWD", 3), ("CLF", 4), ("BHD", 3), ("KRW", 0)]
)
def test_currency_digits_are_those_of_iso_4217(currency, want):
    assert currency_digits(currency) == want


@pytest.mark.parametrize("currency", ["", "eur", "XXX", "DM"])
def test_currency_that_is_unknown_raises(currency):
    with pytest.raises(UnitsError):
        Money(Decimal(1), currency)


def test_money_of_two_currencies_does_not_mix():
    with pytest.raises(CurrencyMismatch):
        Money(Decimal(1), "EUR") + Money(Decimal(1), "USD")


@pytest.mark.parametrize("amount", [Decimal("1.001"), Decimal("NaN"), 1, 1.5])
def test_money_that_is_not_of_the_currency_raises(amount):
    with pytest.raises(UnitsError):
        Money(amount, "EUR")


@pytest.mark.parametrize(
    ("exact", "want"),
    [("0.005", "0.00"), ("0.015", "0.02"), ("-0.005", "0.00"), ("-0.015", "-0.02"), ("2", "2.00")],
)
def test_rounding_is_half_even_and_never_minus_zero(exact, want):
    assert str(Money.rounded(Fraction(exact), currency="USD")) == want


def test_rounding_does_not_depend_on_the_decimal_context():
    exact = Fraction("123456789012345678901234567890.125")
    with localcontext() as context:
        context.prec = 5
        found = Money.rounded(exact, currency="USD") + Money.rounded(exact, currency="USD")
    assert str(found) == "246913578024691357802469135780.24"


def test_negated_nothing_is_nothing():
    assert str(-Money.zero("USD")) == "0.00"


def test_largest_remainder_gives_ties_to_the_first():
    assert whole_shares([1, 1, 1], denominator=3, total=1) == (1, 0, 0)
    assert whole_shares([2, 3, 3], denominator=4, total=2) == (0, 1, 1)


def test_largest_remainder_refuses_shares_that_do_not_add_up():
    with pytest.raises(UnitsError):
        whole_shares([1], denominator=3, total=1)
    with pytest.raises(UnitsError):
        whole_shares([-1, 2], denominator=1, total=1)


@given(st.lists(st.integers(0, 10**6), min_size=1), st.integers(0, 10**9))
def test_apportioned_parts_add_up_and_are_a_rounding_of_the_exact_share(weights, total):
    if not sum(weights):
        weights = [1, *weights]
    parts = apportion(total, weights=weights)
    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - Fraction(total * weight, sum(weights))) < 1


def test_nothing_to_split_needs_no_weights():
    assert apportion(0, weights=[0]) == (0,)
    with pytest.raises(UnitsError):
        apportion(1, weights=[0])


@given(st.fractions(), st.integers(0, 4))
def test_quantised_amount_is_within_half_a_unit(exact, digits):
    found = quantise(exact, digits=digits)
    assert abs(Fraction(found) - exact) <= Fraction(1, 2 * 10**digits)
    assert -found.as_tuple().exponent == digits
