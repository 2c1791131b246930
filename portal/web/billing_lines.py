"""Statement lines in words: what each is for, at which price, and where it leads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from budgets.charging import RowKind
from budgets.models import StatementLine
from budgets.models.billing import INVOICE_DETAILS
from budgets.selectors.billing import Part, StatementChanges, StatementSheet
from budgets.selectors.billing.looks import LineChange
from portal.web.numbers import price_text

ONE_PERSON = (
    "One person ran this installation alone: nobody else approved its prices, adjustments and "
    "voided statements."
)
WORDS: Mapping[str, str] = {
    RowKind.FLOOR: "Committed GPUs",
    RowKind.BURST: "Burst",
    RowKind.LENDING_CREDIT: "Credit for lending",
    RowKind.LENDING_FUNDING: "Funding of lending credits",
    RowKind.PREEMPTION_CREDIT: "Credit for preempted work",
    RowKind.PREEMPTION_FUNDING: "Funding of preemption credits",
    RowKind.ADJUSTMENT: "Adjustment",
    RowKind.ROUNDING: "Rounding",
    RowKind.CORRECTION: "Correction",
}


@dataclass(frozen=True, slots=True)
class LineView:
    """One line as the page shows it.

    Attributes:
        line: The stored line.
        words: What it is for.
        price: Per GPU-hour, in the currency of the rate cards; how many when it changed.
        cards: Version ids of the rate cards.
        leads_on: Whether it has hours to look into.
    """

    line: StatementLine
    words: str
    price: str
    cards: str
    leads_on: bool


def billed_to(sheet: StatementSheet) -> list[tuple[str, str]]:
    """What the accountants of a statement's account asked for, by name; only on a whole one."""
    told = sheet.statement.billed_to if sheet.is_whole else {}
    return [(words, told[name]) for name, words in INVOICE_DETAILS.items() if name in told]


def part_views(sheet: StatementSheet) -> list[tuple[Part, list[LineView]]]:
    """The parts of a sheet, each with its lines in words."""
    return [(part, [line_view(line) for line in part.lines]) for part in sheet.parts]


def change_views(changes: StatementChanges) -> list[tuple[LineChange, str]]:
    """Every line that moved, with what it is for in words."""
    return [(row, _words(*row.place[2:4], row.place[4].partition("#")[0])) for row in changes.lines]


def line_view(line: StatementLine) -> LineView:
    """One line in words."""
    kind = line.class_of or line.kind
    prices = list(dict.fromkeys(_price(part, kind) for part in line.parts if part["card"]))
    cards = sorted({part["card"] for part in line.parts if part["card"]})
    return LineView(
        line=line,
        words=_words(line.kind, line.class_of, line.text),
        price=prices[0] if len(prices) == 1 else f"{len(prices)} prices" if prices else "",
        cards=", ".join(f"#{card}" for card in cards[:5]) + (" …" if len(cards) > 5 else ""),
        leads_on=bool(line.flavor and line.workspace_id),
    )


def _words(kind: str, class_of: str, text: str) -> str:
    if class_of:
        what = WORDS[class_of]
        return f"{WORDS[kind]} {text}: {what[0].lower()}{what[1:]}"
    return f"{WORDS[kind]}: {text}" if text else WORDS[kind]


def price_steps(line: StatementLine) -> list[dict[str, Any]]:
    """Every price of a line with its GPU-seconds, in order of time."""
    kind = line.class_of or line.kind
    return [
        {
            "since": part["from"].replace("T", " ").replace(":00Z", " UTC"),
            "card": part["card"],
            "price": _price(part, kind) if part["card"] else "none",
            "gpu_seconds": part["gpu_seconds"],
        }
        for part in line.parts
    ]


def _price(part: Mapping[str, Any], kind: str) -> str:
    if kind == RowKind.BURST:
        listed = Decimal(part["burst"])
    elif kind == RowKind.LENDING_CREDIT:
        listed = Decimal(part["committed"]) * Decimal(part["lending_credit"])
    else:
        listed = Decimal(part["committed"])
    averages = part.get("averages")
    paid = _average(averages, part, kind) if averages else listed
    return price_text(listed) if paid == listed else f"{price_text(paid)} on average"


def _average(averages: Mapping[str, str], part: Mapping[str, Any], kind: str) -> Decimal:
    """What volume steps came to, to eight places; the exact fraction is on the line."""
    exact = Fraction(averages[RowKind.BURST if kind == RowKind.BURST else RowKind.FLOOR])
    if kind == RowKind.LENDING_CREDIT:
        exact *= Fraction(part["lending_credit"])
    return round(Decimal(exact.numerator) / exact.denominator, 8)
