"""The figures of a page's tables, and whether each total comes from its rows.

Read from the HTML alone: headings, rows, and the rows of the foot. A table that is added is read
like the others. Hours stand rounded on a page and exact on hover: the exact ones count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from budgets.units import HOUR_S
from tests.web.normal_form import Element

EXACTLY = "GPU-seconds"
EXACT = re.compile(rf"(-?[\d,]+) {EXACTLY}")
ROUNDED = re.compile(r"(?:▲ )?([−-]?)(\d[\d,]*)(\.\d+)?(?: (GPUs?|GPU-hours|%|[A-Z]{3}))?")
TOTAL = re.compile(r"(Total|Together)\b")
MONEY = re.compile(r"[A-Z]{3}")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its unit; ``off`` is how far rounding may have moved it."""

    value: Decimal
    unit: str = ""
    off: Decimal = Decimal(0)

    def __str__(self) -> str:
        return f"{self.value:,} {self.unit}".rstrip()


@dataclass(frozen=True)
class Rule:
    """What a column of every row is made of: others of the same table, by their headings.

    Without any they are all that stand before it.
    """

    column: str
    plus: tuple[str, ...] = ()
    minus: tuple[str, ...] = ()


RULES = (
    Rule("Together", ("Cost",)),
    Rule("This month", ("Committed", "Burst", "Credits and other")),
    Rule("Change", ("This month",), ("Month before",)),
    Rule("Change", ("Now",), ("Before",)),
    Rule("Difference", ("At this card's prices",), ("At that month's prices",)),
    Rule("Committed", ("used", "lent", "idle")),
    Rule("Burst", ("Account's pool", "Lent", "Platform's pool", "Uncovered")),
    Rule("Capacity"),
    Rule("Day"),
)


def figure_of(text: str) -> Figure | None:
    """The one figure of a text that is nothing else."""
    found = ROUNDED.fullmatch(text)
    if found is None:
        return None
    sign, whole, places, unit = found.groups()
    value = Decimal(whole.replace(",", "") + (places or ""))
    is_rounded = bool(places) and not MONEY.fullmatch(unit or "")
    off = Decimal(5).scaleb(-len(places or "")) if is_rounded else Decimal(0)
    return Figure(-value if sign else value, "GPUs" if unit == "GPU" else unit or "", off)


def exact_figures(element: Element) -> list[Figure]:
    """Those whose exact GPU-seconds stand on hover."""
    titles = (EXACT.fullmatch(each.attributes.get("title") or "") for each in within(element))
    return [Figure(Decimal(t[1].replace(",", "")), EXACTLY) for t in titles if t]


def within(element: Element, *tags: str) -> Iterator[Element]:
    """The element and all that is in it, in order; those of some tags alone."""
    if not tags or element.tag in tags:
        yield element
    for child in element.elements:
        yield from within(child, *tags)


def text_of(element: Element) -> str:
    """Its words, with single spaces."""
    parts = (
        child if isinstance(child, str) else f" {text_of(child)} " for child in element.children
    )
    return " ".join("".join(parts).split())


@dataclass
class Cell:
    """What a cell says; more than one figure, or one among words, is none."""

    text: str
    figure: Figure | None


@dataclass
class Row:
    """Cells by the number of their column."""

    name: str
    cells: dict[int, Cell] = field(default_factory=dict)

    def figure(self, column: int) -> Figure | None:
        return self.cells[column].figure if column in self.cells else None


@dataclass
class Table:
    """A table as a reader sees it."""

    headings: list[str]
    rows: list[Row]
    totals: list[Row]

    def faults(self) -> Iterator[str]:
        """Each total that its rows do not come to, each column that others do not come to."""
        for total in self.totals:
            for column, cell in total.cells.items():
                where = f"column {self._heading(column)!r} of {total.name!r}"
                if cell.figure is None and re.search(r"\d", cell.text):
                    yield f"{where}: {cell.text!r} is no figure that can be added up"
                elif cell.figure is not None and cell.figure.unit != "%":
                    parts = [row.figure(column) for row in self.rows]
                    yield from _off(where, cell.figure, parts)
        for rule in RULES:
            yield from self._broken(rule)

    def _broken(self, rule: Rule) -> Iterator[str]:
        if not {rule.column, *rule.plus, *rule.minus} <= set(self.headings):
            return
        last = max(at for at, text in enumerate(self.headings) if text == rule.column)
        plus = rule.plus or tuple(self.headings[:last])
        for row in (*self.rows, *self.totals):
            whole = row.figure(last)
            parts = [
                Figure(-part.value, part.unit, part.off) if heading in rule.minus else part
                for at, heading in enumerate(self.headings)
                if heading in (*plus, *rule.minus) and at != last and (part := row.figure(at))
            ]
            if whole is not None and (parts or rule.plus):
                yield from _off(f"column {rule.column!r} of {row.name!r}", whole, parts)

    def _heading(self, column: int) -> str:
        return self.headings[column] if column < len(self.headings) else str(column)


def _off(where: str, total: Figure, parts: Sequence[Figure | None]) -> Iterator[str]:
    known = [part for part in parts if part is not None]
    if total.unit == EXACTLY and known and not any(part.unit == EXACTLY for part in known):
        total = Figure(total.value / HOUR_S)  # beside hours that stand there rounded alone
    same = [part for part in known if part.unit == total.unit]
    come_to = sum((part.value for part in same), Decimal(0))
    allowed = total.off + sum((part.off for part in same), Decimal(0))
    if abs(come_to - total.value) > allowed:
        yield f"{where} says {total}, and its parts come to {Figure(come_to, total.unit)}"


def tables_of(document: Element) -> list[Table]:
    """Every table of a page."""
    return [_table(element) for element in within(document, "table")]


def _table(element: Element) -> Table:
    head = [_row(row) for part in within(element, "thead") for row in within(part, "tr")]
    body = [_row(row) for part in within(element, "tbody") for row in within(part, "tr")]
    foot = [_row(row) for part in within(element, "tfoot") for row in within(part, "tr")]
    headings = head[-1].cells if head else {}
    return Table(
        headings=[
            headings[at].text if at in headings else ""
            for at in range(max(headings, default=-1) + 1)
        ],
        rows=[row for row in body if not TOTAL.match(row.name)],
        totals=[*foot, *(row for row in body if TOTAL.match(row.name))],
    )


def _row(element: Element) -> Row:
    cells = [each for each in element.elements if each.tag in ("td", "th")]
    row = Row(text_of(cells[0]) if cells else "")
    column = 0
    for cell in cells:
        text, exact = text_of(cell), exact_figures(cell)
        is_name = cell.attributes.get("scope") == "row"
        figure = exact[0] if len(exact) == 1 else None if exact or is_name else figure_of(text)
        row.cells[column] = Cell("" if is_name else text, figure)
        column += int(cell.attributes.get("colspan") or 1)
    return row
