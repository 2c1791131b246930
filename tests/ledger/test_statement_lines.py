"""The lines of a statement: their order, their roundings, and whom they are shared out among."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from budgets.charging import (
    Charges,
    Item,
    JobPart,
    LinePart,
    Rate,
    RowKind,
    assemble,
    funding_item,
    items_of,
    share_out,
)
from budgets.charging.model import ChargeLine
from budgets.units import Money
from tests.builders import hours

RATE = Rate("h100", hours(0), Decimal("2.00"), Decimal("3.00"), Decimal("0.5"), card=7)


def euros(amount: str) -> Money:
    return Money(Decimal(amount), "EUR")


def item(workspace: str, flavor: str, kind: RowKind, exact: str = "1", **more) -> Item:
    return Item(workspace, flavor, kind, Fraction(exact), **more)


def test_statement_has_workspaces_in_order_their_cents_and_the_account_last():
    bonus = {"text": "goodwill", "adjustment": 3}
    own = item("", "", RowKind.ADJUSTMENT, "-5", **bonus)
    funding = item("", "", RowKind.LENDING_FUNDING, "1/3", amount=euros("0.34"))
    late = item("b", "h100", RowKind.BURST, "10/3", gpu_seconds=4000)
    eighths = [
        item("a", "h100", RowKind.FLOOR, "1/8"),
        item("a", "l4", RowKind.FLOOR, "1/8"),
        item("a", "h100", RowKind.BURST, "1/8"),
    ]
    found = assemble([own, late, eighths[2], funding, eighths[1], eighths[0]], currency="EUR")
    assert found.lines == (
        *((eighth, euros("0.12")) for eighth in eighths),
        (Item("a", "", RowKind.ROUNDING, Fraction(0)), euros("0.02")),
        (late, euros("3.33")),
        (funding, euros("0.34")),
        (own, euros("-5.00")),
        (Item("", "", RowKind.ROUNDING, Fraction(0)), euros("-0.01")),
    )
    assert (found.currency, found.payable) == ("EUR", euros("-0.96"))


def test_statement_of_nothing_is_nothing():
    found = assemble([], currency="JPY")
    assert (found.lines, found.payable) == ((), Money(Decimal(0), "JPY"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            item("a", "z", RowKind.FLOOR), item("a", "b", RowKind.BURST), id="floor before burst"
        ),
        pytest.param(
            item("a", "b", RowKind.FLOOR, text="z"),
            item("a", "c", RowKind.FLOOR, text="y"),
            id="flavors by name",
        ),
        pytest.param(
            item("a", "b", RowKind.CORRECTION, class_of=RowKind.BURST, text="z"),
            item("a", "b", RowKind.CORRECTION, class_of=RowKind.FLOOR, text="y"),
            id="corrections by what they correct",
        ),
        pytest.param(
            item("a", "", RowKind.ADJUSTMENT, text="y", adjustment=2),
            item("a", "", RowKind.ADJUSTMENT, text="z", adjustment=1),
            id="then by their words",
        ),
        pytest.param(
            item("a", "", RowKind.ADJUSTMENT, adjustment=1),
            item("a", "", RowKind.ADJUSTMENT, adjustment=2),
            id="then by their key",
        ),
        pytest.param(
            item("a", "", RowKind.ADJUSTMENT),
            item("a", "", RowKind.ADJUSTMENT, adjustment=1),
            id="none before a key",
        ),
    ],
)
def test_lines_of_a_workspace_stand_in_one_order(first, second):
    for given in ([first, second], [second, first]):
        assert [line for line, _ in assemble(given, currency="EUR").lines] == [first, second]


PARTS = (LinePart(RATE, 3600), LinePart(None, 60))
LINES = (
    ChargeLine("vision", "h100", RowKind.FLOOR, 3660, Fraction(2), euros("2.00"), PARTS),
    ChargeLine("vision", "l4", RowKind.LENDING_CREDIT, 10, Fraction(-1, 3), euros("-0.33"), ()),
)
CHARGES = Charges(LINES, (), euros("0.33"), euros("0.00"), ())


def test_charged_lines_become_items_in_the_currency_of_the_statement():
    assert items_of(CHARGES) == [
        Item("vision", "h100", RowKind.FLOOR, Fraction(2), 3660, None, "", None, PARTS),
        Item("vision", "l4", RowKind.LENDING_CREDIT, Fraction(-1, 3), 10, None, "", None, ()),
    ]
    assert [row.exact for row in items_of(CHARGES, rate=Fraction(3, 2))] == [3, Fraction(-1, 2)]


def test_differences_of_a_closed_period_become_corrections_that_name_it():
    fixed, credit = RowKind.FLOOR, RowKind.LENDING_CREDIT
    words = "of 2026-03"
    assert items_of(CHARGES, corrects="2026-03") == [
        Item("vision", "h100", RowKind.CORRECTION, Fraction(2), 3660, fixed, words, None, PARTS),
        Item("vision", "l4", RowKind.CORRECTION, Fraction(-1, 3), 10, credit, words, None, ()),
    ]


def test_platform_carries_the_rounded_credits_and_knows_the_exact_ones():
    credits = [(Fraction(-1, 3), euros("-0.33")), (Fraction(-2, 3), euros("-0.67"))]
    given = {"text": "of acme", "currency": "EUR"}
    assert funding_item(RowKind.LENDING_FUNDING, credits, **given) == [
        Item("", "", RowKind.LENDING_FUNDING, Fraction(1), text="of acme", amount=euros("1.00"))
    ]
    assert funding_item(RowKind.LENDING_FUNDING, [], **given) == []


THIRD = Fraction(1, 3)


@pytest.mark.parametrize(
    ("jobs", "seconds", "exact", "amount", "want"),
    [
        pytest.param({}, 60, "1/3", "0.33", [(None, 60, "1/3", "0.33")], id="no jobs"),
        pytest.param(
            {("b", "1"): (1800, "1/3"), ("a", "9"): (900, "1/3"), ("a", "2"): (900, "1/3")},
            3600,
            "1",
            "1.00",
            [
                (("a", "2"), 900, "1/3", "0.34"),
                (("a", "9"), 900, "1/3", "0.33"),
                (("b", "1"), 1800, "1/3", "0.33"),
            ],
            id="of equals the first gets the missing cent",
        ),
        pytest.param(
            {("a", "1"): (5, "0.002"), ("a", "2"): (7, "0.009")},
            20,
            "0.02",
            "0.02",
            [
                (("a", "1"), 5, "0.002", "0.00"),
                (("a", "2"), 7, "0.009", "0.01"),
                (None, 8, "0.009", "0.01"),
            ],
            id="cents go to those that lost most",
        ),
        pytest.param(
            {("a", "1"): (5, "1/6"), ("a", "2"): (7, "1/2")},
            12,
            "1",
            "1.00",
            [
                (("a", "1"), 5, "1/6", "0.17"),
                (("a", "2"), 7, "1/2", "0.50"),
                (None, 0, "1/3", "0.33"),
            ],
            id="money that is left without its seconds",
        ),
        pytest.param(
            {("a", "1"): (5, "0")},
            12,
            "0",
            "0.00",
            [(("a", "1"), 5, "0", "0.00"), (None, 7, "0", "0.00")],
            id="seconds that are left and cost nothing",
        ),
        pytest.param(
            {("a", str(at)): (1, "-1/3") for at in range(3)},
            3,
            "-1",
            "-1.00",
            [
                (("a", "0"), 1, "-1/3", "-0.33"),
                (("a", "1"), 1, "-1/3", "-0.33"),
                (("a", "2"), 1, "-1/3", "-0.34"),
            ],
            id="a credit",
        ),
    ],
)
def test_line_is_shared_out_to_the_cent(jobs, seconds, exact, amount, want):
    given = {key: (count, Fraction(part)) for key, (count, part) in jobs.items()}
    found = share_out(given, gpu_seconds=seconds, exact=Fraction(exact), amount=euros(amount))
    assert found == [
        JobPart(key, count, Fraction(part), Decimal(cents)) for key, count, part, cents in want
    ]


@pytest.mark.parametrize(
    ("currency", "amount", "want"),
    [("JPY", "1", ["1", "0"]), ("KWD", "1.000", ["0.667", "0.333"])],
)
def test_parts_have_the_digits_of_the_currency(currency, amount, want):
    jobs = {("a", "1"): (2, 2 * THIRD), ("a", "2"): (1, THIRD)}
    money = Money(Decimal(amount), currency)
    found = share_out(jobs, gpu_seconds=3, exact=Fraction(1), amount=money)
    assert [str(part.amount) for part in found] == want


def test_amount_that_is_not_the_exact_one_rounded_is_not_shared_out():
    with pytest.raises(AssertionError) as refused:
        share_out({("a", "1"): (1, THIRD)}, gpu_seconds=1, exact=THIRD, amount=euros("0.35"))
    cents_missing, parts = 2, 1
    assert refused.value.args == ((cents_missing, parts),)
