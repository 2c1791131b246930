"""Prices, rounding and what a period without a price shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from budgets.charging import FloorHours, Rate, Rates, RowKind, charge
from budgets.metering import HourFact, Usage
from budgets.units import Period, UnitsError

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def rate(hour: int = 0, *, committed="2.00", burst="3.00", credit="0.5") -> Rate:
    start = NOON + timedelta(hours=hour)
    return Rate("h100", start, Decimal(committed), Decimal(burst), Decimal(credit))


def fact(hour: int = 0, *, committed: int = 0, lent: int = 0, burst: int = 0) -> HourFact:
    start = NOON + timedelta(hours=hour)
    return HourFact(start, start, "vision", "h100", committed, 0, lent, committed - lent, burst, 0)


def usage(*hours: HourFact) -> Usage:
    return Usage(Period(NOON, NOON + timedelta(hours=2)), hours, ())


def amounts(charges) -> dict[str, str]:
    return {line.kind.value: str(line.amount) for line in charges.lines}


def test_floor_is_paid_used_or_not_and_the_credit_goes_to_the_lender():
    charges = charge(
        usage(fact(committed=16 * 3600, lent=4 * 3600, burst=3600)),
        Rates([rate()], currency="EUR"),
        workspaces=["vision", "speech"],
    )
    assert amounts(charges) == {"floor": "32.00", "burst": "3.00", "lending_credit": "-4.00"}
    assert [(row.workspace, str(row.payable)) for row in charges.totals] == [
        ("speech", "0.00"),
        ("vision", "31.00"),
    ]
    assert str(charges.platform_funding) == "4.00"


def test_line_is_split_where_the_rate_changes():
    card = Rates([rate(), rate(1, burst="5.00")], currency="EUR")
    charges = charge(usage(fact(burst=3600), fact(1, burst=3600)), card, workspaces=["vision"])
    (line,) = charges.lines
    assert [(part.rate.start, part.gpu_seconds) for part in line.parts] == [
        (NOON, 3600),
        (NOON + timedelta(hours=1), 3600),
    ]
    assert str(line.amount) == "8.00"


def test_lines_are_rounded_once_and_the_rest_stands_on_a_line_of_its_own():
    card = Rates([rate(committed="0.005", burst="0.005")], currency="USD")
    charges = charge(usage(fact(committed=3600, burst=3600)), card, workspaces=["vision"])
    assert amounts(charges) == {"floor": "0.00", "burst": "0.00"}
    assert [(str(row.payable), str(row.rounding)) for row in charges.totals] == [("0.01", "0.01")]


def test_platform_rounding_makes_the_credits_balance():
    hours = [HourFact(NOON, NOON, name, "h100", 3600, 0, 3600, 0, 0, 0) for name in ("a", "b", "c")]
    card = Rates([rate(committed="0.004", credit="1")], currency="USD")
    charges = charge(usage(*hours), card, workspaces=["a", "b", "c"])
    assert str(charges.platform_funding) == "0.01"
    assert str(charges.platform_rounding) == "0.01"


def test_use_before_the_first_rate_costs_nothing_and_is_named():
    card = Rates([rate(1)], currency="USD")
    charges = charge(usage(fact(burst=3600), fact(1, burst=3600)), card, workspaces=["vision"])
    assert amounts(charges) == {"burst": "3.00"}
    assert [(row.kind, row.gpu_seconds) for row in charges.unpriced] == [(RowKind.BURST, 3600)]


def test_fixed_month_of_730_hours_charges_the_floor_alone():
    card = Rates([rate()], currency="USD", floor_hours=FloorHours.FIXED_730)
    hours = [fact(committed=3600, burst=3600), fact(1, committed=3600)]
    charges = charge(usage(*hours), card, workspaces=["vision"])
    assert amounts(charges) == {"floor": "1460.00", "burst": "3.00"}


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(
            lambda: Rate("h100", NOON.replace(minute=30), Decimal(1), Decimal(1), Decimal(0)),
            id="a rate within an hour",
        ),
        pytest.param(lambda: rate(committed="-1"), id="a negative price"),
        pytest.param(lambda: Rates([rate(), rate()], currency="USD"), id="two at once"),
        pytest.param(lambda: Rates([], currency="Taler"), id="an unknown currency"),
    ],
)
def test_rate_card_that_is_not_clear_is_refused(refused):
    with pytest.raises(UnitsError):
        refused()
