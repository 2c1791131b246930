"""Volume steps: graduated, in the order of time, alike for every workspace and hour."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.charging import Rate, Rates, RowKind, Tier, charge
from budgets.charging.tiers import Steps, averages
from budgets.metering import HourFact, Usage
from budgets.units import HOUR_S, Period, UnitsError
from tests.builders import hours

START = hours(0)
STEPS = Steps(Decimal("3.00"), (Tier(10, Decimal("2.00")), Tier(20, Decimal("1.00"))))


def rate(start=START, **more) -> Rate:
    given = {
        "committed": Decimal("2"),
        "burst": Decimal("3"),
        "lending_credit": Decimal("0.5"),
        "tiers": {RowKind.BURST: STEPS.tiers},
        **more,
    }
    return Rate("h100", start, **given)


def fact(hour: int, workspace: str, *, burst: int = 0, committed: int = 0, lent: int = 0):
    at = START + timedelta(hours=hour)
    seconds = [gpus * HOUR_S for gpus in (committed, 0, lent, committed - lent, burst, 0)]
    return HourFact(at, at, workspace, "h100", *seconds)


def charged(*facts: HourFact, card: Rates | None = None):
    usage = Usage(Period(START, START + timedelta(days=1)), facts, ())
    names = sorted({row.workspace for row in facts})
    return charge(usage, card or Rates([rate()], currency="EUR"), workspaces=names)


@pytest.mark.parametrize(
    ("begun", "ended", "want"),
    [
        pytest.param(0, 10, 30, id="up to the first bound"),
        pytest.param(0, 25, 55, id="through all steps"),
        pytest.param(15, 25, 15, id="from within one"),
        pytest.param(30, 40, 10, id="beyond the last"),
        pytest.param(5, 5, 0, id="nothing"),
    ],
)
def test_what_a_volume_costs(begun: int, ended: int, want: int):
    assert STEPS.cost(begun * HOUR_S, ended * HOUR_S) == want


@given(st.lists(st.integers(0, 40 * HOUR_S), min_size=1, max_size=8))
def test_parts_of_a_volume_cost_what_the_whole_does(parts: list[int]):
    prices = averages((STEPS, seconds) for seconds in parts)
    total = sum((p * s / HOUR_S for p, s in zip(prices, parts, strict=True)), Fraction(0))
    assert total == STEPS.cost(0, sum(parts))


def test_an_account_reaches_its_steps_together_and_pays_alike():
    found = charged(fact(0, "a", burst=15), fact(1, "b", burst=5), fact(2, "a", burst=5))

    # 25 GPU-hours of the account cost 55; a used four fifths of them.
    assert {line.workspace: line.exact for line in found.lines} == {"a": 44, "b": 11}
    assert sum(line.exact for line in found.lines) == STEPS.cost(0, 25 * HOUR_S)


def test_a_volume_runs_on_when_the_rate_changes():
    later = rate(START + timedelta(hours=1), burst=Decimal("6"), tiers={})
    card = Rates([rate(), later], currency="EUR")
    found = charged(fact(0, "a", burst=15), fact(1, "a", burst=10), card=card)
    assert found.lines[0].exact == 30 + 5 * 2 + 10 * 6

    stepped = rate(START + timedelta(hours=1), tiers={RowKind.BURST: (Tier(20, Decimal("1")),)})
    card = Rates([rate(), stepped], currency="EUR")
    found = charged(fact(0, "a", burst=15), fact(1, "a", burst=10), card=card)
    assert found.lines[0].exact == 30 + 5 * 2 + 5 * 3 + 5 * 1


def test_a_lender_gets_its_share_of_what_the_floor_came_to():
    tiers = {RowKind.FLOOR: (Tier(10, Decimal("1")),)}
    card = Rates([rate(tiers=tiers)], currency="EUR")
    found = charged(fact(0, "a", committed=20, lent=8), card=card)
    exact = {line.kind: line.exact for line in found.lines}

    assert exact[RowKind.FLOOR] == 30
    assert exact[RowKind.LENDING_CREDIT] == -Fraction(8) * Fraction(30, 20) / 2
    assert found.platform_funding.amount == Decimal("6")


def test_a_card_that_was_averaged_over_the_account_charges_one_workspace_right():
    whole = [fact(0, "a", burst=15), fact(1, "b", burst=5), fact(2, "a", burst=5)]
    card = Rates([rate()], currency="EUR").averaged(
        (row.flavor, row.hour, row.committed, row.burst) for row in whole
    )
    assert not card.has_tiers
    assert charged(whole[1], card=card).lines[0].exact == 11


def test_a_card_without_steps_is_itself():
    card = Rates([rate(tiers={})], currency="EUR")
    assert card.averaged([]) is card


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Tier(0, Decimal(1)), id="a bound at zero"),
        pytest.param(lambda: Tier(1, Decimal(-1)), id="a negative price"),
        pytest.param(
            lambda: Steps(Decimal(1), (Tier(5, Decimal(1)), Tier(5, Decimal(1)))), id="two alike"
        ),
    ],
)
def test_steps_that_are_none_are_refused(make):
    with pytest.raises(UnitsError):
        make()
