"""Hours as rows of an export, and dated price lists as the rates that price them."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from budgets.charging import (
    ChargeRow,
    FloorHours,
    HourPricer,
    Price,
    PriceList,
    Rate,
    Rates,
    RowKind,
    SpotPoint,
    Tier,
    merged_rates,
)
from budgets.units import Period
from tests.builders import hours

WHOLE = {"account": "acme", "workspace": "vision", "period": "2026-03"}


def rate(start: int = 0, *, committed="2.00", burst="3.00", credit="0.5", **more: Any) -> Rate:
    return Rate("h100", hours(start), Decimal(committed), Decimal(burst), Decimal(credit), **more)


def pricer(*rates: Rate, currency="EUR", exchange=None, length: int = 365, **card: Any):
    return HourPricer(
        Rates(rates, currency="USD", **card),
        flavor="h100",
        window=Period(hours(0), hours(length)),
        currency=currency,
        exchange=exchange,
        **WHOLE,
    )


def hour_of(made: HourPricer, kind: RowKind, at: int, seconds: int = 3600, used: int = 0):
    return made.row(kind, hours(at), (hours(at), hours(at + 1)), seconds, used)


def test_hour_is_priced_by_kind_in_the_currency_of_the_statement():
    """A floor of 730 hours in a window of 365 counts twice; its price is shown as it is listed."""
    terms = FloorHours.FIXED_730
    made = pricer(rate(card=7), exchange=Decimal("1.1"), floor_hours=terms)
    same = {"start": hours(2.5), "end": hours(3), "currency": "EUR", "flavor": "h100", **WHOLE}
    part = (hours(2.5), hours(3))
    listed = {"list_unit_price": Decimal("3.3"), "rate_card": 7, **same}
    assert made.row(RowKind.FLOOR, hours(2), part, 3600, 1800) == ChargeRow(
        kind=RowKind.FLOOR,
        gpu_seconds=3600,
        unit_price=Decimal("2.2"),
        exact=Fraction("4.4"),
        amount=Decimal("4.40"),
        used_gpu_seconds=1800,
        **listed,
    )
    assert made.row(RowKind.BURST, hours(2), part, 1800, 900) == ChargeRow(
        kind=RowKind.BURST,
        gpu_seconds=1800,
        unit_price=Decimal("3.3"),
        exact=Fraction("1.65"),
        amount=Decimal("1.65"),
        **listed,
    )
    assert made.row(RowKind.LENDING_CREDIT, hours(2), part, 7200, 0) == ChargeRow(
        kind=RowKind.LENDING_CREDIT,
        gpu_seconds=7200,
        unit_price=Decimal("-1.1"),
        exact=Fraction("-2.2"),
        amount=Decimal("-2.20"),
        **listed,
    )


def test_hour_before_the_first_rate_costs_nothing():
    assert hour_of(pricer(rate(5)), RowKind.BURST, 4) == ChargeRow(
        kind=RowKind.BURST,
        flavor="h100",
        start=hours(4),
        end=hours(5),
        gpu_seconds=3600,
        unit_price=Decimal(0),
        exact=Fraction(0),
        amount=Decimal(0),
        currency="EUR",
        **WHOLE,
    )


@pytest.mark.parametrize(
    ("kind", "prices", "currency", "want"),
    [
        pytest.param(
            RowKind.BURST, ["0.005"] * 4, "EUR", ["0.00", "0.01", "0.01", "0.00"], id="halves"
        ),
        pytest.param(
            RowKind.LENDING_CREDIT,
            ["0.005"] * 4,
            "EUR",
            ["0.00", "-0.01", "-0.01", "0.00"],
            id="halves of a credit",
        ),
        pytest.param(
            RowKind.BURST,
            ["0.003", "0.004", "0.0007", "0.0073"],
            "EUR",
            ["0.00", "0.01", "0.00", "0.01"],
            id="prices of different digits",
        ),
        pytest.param(RowKind.BURST, ["0.4"] * 4, "JPY", ["0", "1", "0", "1"], id="no cents"),
        pytest.param(RowKind.BURST, ["0.0016"] * 2, "KWD", ["0.002", "0.001"], id="three digits"),
    ],
)
def test_amounts_of_hours_are_steps_of_the_rounded_sum(kind, prices, currency, want):
    rates = [rate(at, committed=text, burst=text, credit="1") for at, text in enumerate(prices)]
    made = pricer(*rates, currency=currency)
    assert [str(hour_of(made, kind, at).amount) for at in range(len(prices))] == want


def test_each_kind_has_a_rounded_sum_of_its_own():
    made = pricer(rate(committed="0.006", burst="0.006"))
    found = [hour_of(made, kind, 0).amount for kind in (RowKind.FLOOR, RowKind.BURST)]
    assert found == [Decimal("0.01"), Decimal("0.01")]


def test_average_of_volume_steps_is_shown_to_fifteen_places_beside_the_listed_price():
    card = Rates([rate(tiers={RowKind.BURST: (Tier(2, Decimal("2.00")),)})], currency="EUR")
    averaged = card.averaged([("h100", hours(0), 0, 3 * 3600)])
    made = HourPricer(
        averaged,
        flavor="h100",
        window=Period(hours(0), hours(9)),
        currency="EUR",
        exchange=None,
        **WHOLE,
    )
    row = hour_of(made, RowKind.BURST, 0, 3 * 3600)
    assert (str(row.unit_price), row.list_unit_price) == ("2.666666666666667", Decimal("3.00"))
    assert (row.exact, str(row.amount)) == (Fraction(8), "8.00")
    credit = hour_of(made, RowKind.LENDING_CREDIT, 0)
    assert (str(credit.unit_price), credit.exact) == ("-1.000000000000000", Fraction(-1))


def test_no_digit_of_a_long_price_is_lost():
    """34 digits are more than a decimal context has by itself."""
    long = rate(committed="1234567.12345678", credit="0.12345678")
    row = hour_of(pricer(long, exchange=Decimal("1.2345678901")), RowKind.LENDING_CREDIT, 0)
    exact = Fraction("1234567.12345678") * Fraction("0.12345678") * Fraction("1.2345678901")
    assert Fraction(row.unit_price) == row.exact == -exact


def price(committed: str = "2", burst: str = "3", **more: Any) -> Price:
    return Price(Decimal(committed), Decimal(burst), Decimal("0.5"), **more)


def of_list(flavor: str, start: int, price: Price, card: int, burst: str | None = None) -> Rate:
    paid = price.burst if burst is None else Decimal(burst)
    credit = price.lending_credit
    return Rate(flavor, hours(start), price.committed, paid, credit, card, tiers=price.tiers)


def test_own_list_goes_before_the_platforms_flavor_by_flavor():
    first, second, own, other = price("2"), price("4"), price("1"), price("9")
    everybody = [
        PriceList(3, hours(10), {"b": other, "a": second}),
        PriceList(1, hours(0), {"a": other}),
        PriceList(2, hours(0), {"a": first}),
    ]
    assert merged_rates(everybody) == (
        of_list("a", 0, first, 2),
        of_list("a", 10, second, 3),
        of_list("b", 10, other, 3),
    )
    assert merged_rates(everybody, [PriceList(7, hours(5), {"a": own, "c": own})]) == (
        of_list("a", 0, first, 2),
        of_list("a", 5, own, 7),
        of_list("b", 10, other, 3),
        of_list("c", 5, own, 7),
    )
    assert merged_rates([]) == ()


def test_same_price_on_another_list_is_a_rate_of_its_own_and_a_dropped_flavor_keeps_its_last():
    steady = price()
    lists = [
        PriceList(card, hours(at), named)
        for card, at, named in ((1, 0, {"a": steady}), (2, 5, {"a": steady}), (3, 9, {}))
    ]
    assert merged_rates(lists) == (of_list("a", 0, steady, 1), of_list("a", 5, steady, 2))


def test_burst_follows_the_time_series_where_the_list_says_so():
    moving = price(is_dynamic=True)
    lists = [PriceList(1, hours(0), {"a": moving, "b": price(), "c": moving})]
    points = [
        SpotPoint(hours(at), Decimal(paid)) for at, paid in ((8, "6"), (4, "7"), (2, "5"), (4, "6"))
    ]
    found = merged_rates(lists, spot={"a": points, "b": points})
    assert found == (
        of_list("a", 0, moving, 1),
        of_list("a", 2, moving, 1, "5"),
        of_list("a", 4, moving, 1, "6"),
        of_list("b", 0, price(), 1),
        of_list("c", 0, moving, 1),
    )


def test_volume_steps_come_along_by_class():
    floor, burst = (Tier(10, Decimal("1")),), (Tier(20, Decimal("2")),)
    both = price(committed_tiers=floor, burst_tiers=burst)
    assert both.tiers == {RowKind.FLOOR: floor, RowKind.BURST: burst}
    assert price(burst_tiers=burst).tiers == {RowKind.BURST: burst}
    (found,) = merged_rates([PriceList(1, hours(0), {"a": both})])
    assert found.tiers == both.tiers
