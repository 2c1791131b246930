"""Charges of a period in full; rates, steps and what each of them refuses, word for word."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from budgets.charging import (
    Charges,
    FloorHours,
    LinePart,
    PreemptionTerms,
    Rate,
    Rates,
    RowKind,
    Tier,
    Unpriced,
    charge,
    read_ledger,
    work_out,
)
from budgets.charging.model import ChargeLine, Total
from budgets.charging.replay import IdentityError
from budgets.charging.tiers import Steps, averages
from budgets.metering import HourFact, Usage, meter
from budgets.units import HOUR_S, Money, Period, UnitsError
from tests.builders import hours
from tests.ledger.test_replay_ledger import example

FLOOR, BURST, CREDIT = RowKind.FLOOR, RowKind.BURST, RowKind.LENDING_CREDIT


def euros(amount: str) -> Money:
    return Money(Decimal(amount), "EUR")


def rate(start: float = 0, *, flavor="h100", committed="2", burst="3", credit="0.5", **more: Any):
    prices = (Decimal(text) for text in (committed, burst, credit))
    return Rate(flavor, hours(start), *prices, **more)


def fact(hour: int, workspace: str, flavor: str = "h100", *, committed=0, lent=0, burst=0):
    classes = (committed, 0, lent, committed - lent, burst, 0)
    return HourFact(hours(hour), hours(hour), workspace, flavor, *classes)


def test_period_comes_to_these_lines_and_totals():
    """Split where a rate changes, unpriced before the first; each line rounded once, to even."""
    first, second = rate(), rate(1, committed="0.005", burst="4.004", credit="1")
    other = rate(2, flavor="l4", burst="0.333")
    facts = (
        fact(2, "a", "l4", burst=1800),
        fact(1, "b", committed=3600, burst=3600),
        fact(0, "b", committed=3600, lent=1800),
        fact(0, "a", "l4", burst=60),
        fact(0, "c", committed=1800, lent=6),
    )
    card = Rates([second, other, first], currency="EUR")
    usage = Usage(Period(hours(0), hours(3)), facts, ())
    small, exact = Fraction(333, 2000), Fraction("5.509")
    assert charge(usage, card, workspaces=["z", "b", "a"]) == Charges(
        lines=(
            ChargeLine(
                "a",
                "l4",
                BURST,
                1860,
                small,
                euros("0.17"),
                (LinePart(None, 60), LinePart(other, 1800)),
            ),
            ChargeLine(
                "b",
                "h100",
                BURST,
                3600,
                Fraction("4.004"),
                euros("4.00"),
                (LinePart(second, 3600),),
            ),
            ChargeLine(
                "b",
                "h100",
                FLOOR,
                7200,
                Fraction("2.005"),
                euros("2.00"),
                (LinePart(first, 3600), LinePart(second, 3600)),
            ),
            ChargeLine(
                "b",
                "h100",
                CREDIT,
                1800,
                Fraction("-0.5"),
                euros("-0.50"),
                (LinePart(first, 1800),),
            ),
            ChargeLine(
                "c", "h100", FLOOR, 1800, Fraction(1), euros("1.00"), (LinePart(first, 1800),)
            ),
            ChargeLine(
                "c", "h100", CREDIT, 6, Fraction(-1, 600), euros("0.00"), (LinePart(first, 6),)
            ),
        ),
        totals=(
            Total("a", small, euros("0.00"), euros("0.17")),
            Total("b", exact, euros("0.01"), euros("5.51")),
            Total("c", Fraction(599, 600), euros("0.00"), euros("1.00")),
            Total("z", Fraction(0), euros("0.00"), euros("0.00")),
        ),
        platform_funding=euros("0.50"),
        platform_rounding=euros("0.00"),
        unpriced=(Unpriced("a", "l4", BURST, 60),),
    )


def test_nothing_costs_nothing():
    usage = Usage(Period(hours(0), hours(1)), (), ())
    nothing = Money(Decimal(0), "JPY")
    found = charge(usage, Rates([], currency="JPY"), workspaces=())
    assert found == Charges((), (), nothing, nothing, ())


def test_steps_of_a_period_are_averaged_over_all_workspaces():
    """Three GPU-hours of the account cost 3 + 2 + 2: each of them 7/3."""
    card = Rates([rate(tiers={BURST: (Tier(1, Decimal(2)),)})], currency="EUR")
    usage = Usage(
        Period(hours(0), hours(2)), (fact(0, "a", burst=7200), fact(1, "b", burst=3600)), ()
    )
    lines = charge(usage, card, workspaces=()).lines
    assert [(row.workspace, row.exact) for row in lines] == [
        ("a", Fraction(14, 3)),
        ("b", Fraction(7, 3)),
    ]


# Rates


@pytest.mark.parametrize(
    ("make", "want"),
    [
        pytest.param(
            lambda: rate(0.5),
            "a rate begins on a whole UTC hour, not 2026-03-01T00:30:00+00:00",
            id="within an hour",
        ),
        *(
            pytest.param(
                lambda name=name: rate(**{name: "-0.01"}),
                "the rate of h100 has a negative price",
                id=f"negative {name}",
            )
            for name in ("committed", "burst", "credit")
        ),
        pytest.param(
            lambda: Rates([rate(1), rate(0), rate(1)], currency="EUR"),
            "h100 has two rates from 2026-03-01T01:00:00+00:00",
            id="two at once",
        ),
        pytest.param(
            lambda: Rates([], currency="Taler"),
            "'Taler' is not an ISO 4217 currency code, such as EUR",
            id="no currency",
        ),
        pytest.param(
            lambda: Tier(0, Decimal(1)),
            "a step begins above 0 GPU-hours, not at 0",
            id="a step at zero",
        ),
        pytest.param(
            lambda: Tier(1, Decimal("-0.01")),
            "a step has the negative price -0.01",
            id="a negative step",
        ),
        *(
            pytest.param(
                lambda second=second: Steps(
                    Decimal(1), (Tier(5, Decimal(1)), Tier(second, Decimal(1)))
                ),
                f"the bounds [5, {second}] of steps do not rise",
                id=f"5 and {second}",
            )
            for second in (5, 4)
        ),
    ],
)
def test_refusal_says_what_is_wrong(make, want):
    with pytest.raises(UnitsError) as refused:
        make()
    assert str(refused.value) == want


def test_nothing_is_a_price():
    free = rate(committed="0", burst="0", credit="0")
    assert [free.of(kind) for kind in (FLOOR, BURST, CREDIT)] == [0, 0, 0]
    assert Tier(1, Decimal(0)).price == 0


def test_rate_has_a_price_of_each_kind_and_steps_of_each_class():
    tiers = {FLOOR: (Tier(5, Decimal(1)),)}
    plain = rate(tiers=tiers)
    assert [plain.of(kind) for kind in (FLOOR, BURST, CREDIT)] == [2, 3, -1]
    assert plain.steps(FLOOR) == Steps(Decimal(2), tiers[FLOOR])
    assert plain.steps(BURST) == Steps(Decimal(3), ())
    average = rate(averages={FLOOR: Fraction(4, 3)})
    assert [average.of(kind) for kind in (FLOOR, BURST, CREDIT)] == [
        Fraction(4, 3),
        3,
        Fraction(-2, 3),
    ]


def test_rate_in_force_is_the_newest_that_has_begun():
    first, second, other = rate(1), rate(5), rate(2, flavor="l4")
    card = Rates([second, other, first], currency="EUR")
    assert [card.rate_at("h100", hours(at)) for at in (0, 1, 4, 5, 99)] == [
        None,
        first,
        first,
        second,
        second,
    ]
    assert (card.rate_at("l4", hours(2)), card.rate_at("a100", hours(2))) == (other, None)


def test_only_a_floor_has_a_fixed_month():
    window = Period(hours(0), hours(365))
    fixed = Rates([], currency="EUR", floor_hours=FloorHours.FIXED_730)
    assert [fixed.factor(kind, window) for kind in (FLOOR, BURST, CREDIT)] == [2, 1, 1]
    assert Rates([], currency="EUR").factor(FLOOR, window) == 1


TERMS: dict[str, Any] = {
    "currency": "KWD",
    "floor_hours": FloorHours.FIXED_730,
    "preemption": PreemptionTerms(Decimal("0.5"), 30),
}


def terms_of(card: Rates) -> dict[str, Any]:
    return {name: getattr(card, name) for name in TERMS}


def test_card_is_averaged_rate_by_rate_on_the_same_terms():
    """What was used before the first rate counts for no step; a flavor without steps stays."""
    tiers = {FLOOR: (Tier(2, Decimal(1)),), BURST: (Tier(1, Decimal(2)),)}
    first, second = rate(0, tiers=tiers), rate(5, committed="4", burst="6")
    other = rate(0, flavor="l4")
    card = Rates([first, second, other], **TERMS)
    volume = [
        ("h100", hours(-1), 100 * HOUR_S, 100 * HOUR_S),
        ("h100", hours(0), 2 * HOUR_S, HOUR_S),
        ("h100", hours(5), HOUR_S, 0),
        ("h100", hours(4), HOUR_S, HOUR_S),
        ("l4", hours(0), HOUR_S, HOUR_S),
    ]
    found = card.averaged(volume)
    assert found.rate_at("h100", hours(0)) == replace(
        first, tiers={}, averages={FLOOR: Fraction(5, 3), BURST: Fraction(5, 2)}
    )
    assert found.rate_at("h100", hours(5)) == replace(
        second, tiers={}, averages={FLOOR: Fraction(4), BURST: Fraction(6)}
    )
    assert found.rate_at("l4", hours(0)) == other
    assert (terms_of(found), card.has_tiers, found.has_tiers) == (TERMS, True, False)
    unused = card.averaged([]).rate_at("h100", hours(0))
    assert unused is not None
    assert unused.averages == {FLOOR: 2, BURST: 3}


def test_first_rate_of_each_flavor_reaches_back():
    first, second, early = rate(3), rate(5), rate(-9, flavor="l4")
    found = Rates([first, second, early], **TERMS).reaching_back(hours(1))
    assert terms_of(found) == TERMS
    assert [found.rate_at("h100", hours(at)) for at in (0, 1, 4, 5)] == [
        None,
        replace(first, start=hours(1)),
        replace(first, start=hours(1)),
        second,
    ]
    assert found.rate_at("l4", hours(-9)) == early


def test_edges_are_the_rates_that_begin_within_a_window():
    starts = (-1, 0, 1, 4, 5, 6)
    card = Rates([*map(rate, starts), rate(9, flavor="l4")], currency="EUR")
    assert card.edges(Period(hours(0), hours(5))) == {
        "h100": frozenset({hours(1), hours(4)}),
        "l4": frozenset(),
    }


STEPS = Steps(Decimal(3), (Tier(10, Decimal(2)), Tier(20, Decimal(1))))


@pytest.mark.parametrize(
    ("begun", "ended", "want"),
    [
        pytest.param(0, 0, 0, id="nothing"),
        pytest.param(9, 11, 5, id="over a bound"),
        pytest.param(10, 12, 4, id="from a bound on"),
        pytest.param(10, 20, 20, id="from bound to bound"),
        pytest.param(0, 20, 50, id="up to the second bound"),
        pytest.param(5, 25, 40, id="over both"),
        pytest.param(20, 21, 1, id="beyond the last"),
    ],
)
def test_volume_costs_what_its_steps_say(begun, ended, want):
    assert STEPS.cost(begun * HOUR_S, ended * HOUR_S) == want


def test_part_without_use_has_the_price_of_the_next_hour():
    parts = [(STEPS, seconds * HOUR_S) for seconds in (0, 10, 0, 15, 0)]
    assert averages(parts) == [3, 3, 2, Fraction(25, 15), 1]


def test_result_that_contradicts_itself_is_a_defect_and_says_where(monkeypatch):
    """No ledger leads there: a meter that loses accounts and workloads stands in for a defect."""

    def forgetful(*given: Any) -> Usage:
        return replace(meter(*given), accounts=(), workloads=())

    monkeypatch.setattr("budgets.charging.replay.meter", forgetful)
    with pytest.raises(IdentityError) as refused:
        work_out(read_ledger(example()))
    hour = "at 2026-05-04 10:00:00+00:00"
    assert str(refused.value) == (
        f"vision/h100 {hour}: workloads do not add up to the hour by [14400, 14400]; "
        f"account acme/h100 {hour}: burst, lent, borrowed are off by [14400, 7200, 7200]"
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [("0.10000000000", "0.1"), ("1E-8", "0.00000001"), ("-0", "0"), ("1e3", "1000")],
)
def test_price_of_a_ledger_has_eight_decimals_that_are_not_zero(text, want):
    record = example()
    record["rates"][0]["burst"] = text
    price = read_ledger(record).rate_card.rate_at("h100", hours(64 * 24))
    assert price is not None
    assert price.burst == Decimal(want)


def test_pool_of_an_account_that_is_null_or_not_there_is_empty():
    record = example()
    del record["accounts"][0]["shared_pool"]
    (bare,) = read_ledger(record).pools.account_pools
    record["accounts"][0]["shared_pool"] = None
    assert read_ledger(record).pools.account_pools == (bare,)
    assert bare.changes[0].gpus == {}
