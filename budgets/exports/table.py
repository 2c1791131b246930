"""Columns and rows that every file format is written from.

Pure: no Django, no clock. A row is a tuple in the order of the table's columns, each value None
or of the type of its kind; so one source of rows gives the same figures in every format.
As text they are plain decimals, UTC times, and texts that no spreadsheet takes for a formula.

Source: spec money, section 2.1 (plain decimals, times with ``Z``); issue 6, section 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from budgets.errors import Fault, reject_any

Cell = str | int | Decimal | datetime | None
Row = Sequence[Cell]


class CellKind(StrEnum):
    """What a column holds: its Python type, and how a format shows it."""

    TEXT = "text"  # str
    INTEGER = "integer"  # int
    DECIMAL = "decimal"  # Decimal of at most 15 decimals: a quantity or a price
    AMOUNT = "amount"  # Decimal of at most 15 decimals: money
    TIME = "time"  # datetime, UTC, whole seconds
    JSON = "json"  # str, a JSON object


DECIMAL_KINDS = frozenset({CellKind.DECIMAL, CellKind.AMOUNT})


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name in the file, what it holds, a sentence for the picker, and its unit.

    Spreadsheets show the unit in the title; where the name says it already it is empty.
    """

    name: str
    kind: CellKind = CellKind.TEXT
    help: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of an export, in order.

    Attributes:
        name: Stem of file and sheet names, such as ``charges``.
        columns: At least one, names unique.
        digits: Decimals to which a spreadsheet shows amounts: those of the currency.
    """

    name: str
    columns: tuple[Column, ...]
    digits: int = 2

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(column.name for column in self.columns)


def pick(table: Table, names: Sequence[str]) -> tuple[Table, Callable[[Row], Row]]:
    """Return the table of the chosen columns and the function that cuts a row to them.

    Args:
        table: All columns there are.
        names: The wanted ones, in the wanted order; empty for all.

    Raises:
        Rejected: Unknown or repeated names, all of them at once, at ``columns``.
    """
    if not names:
        return table, lambda row: row
    known = {column.name: at for at, column in enumerate(table.columns)}
    faults = [
        Fault(
            "columns",
            "unknown",
            f"{name[:80]!r} is not a column of {table.name}. Choose from: {', '.join(known)}.",
        )
        for name in names
        if name not in known
    ]
    repeated = sorted({name for name in names if names.count(name) > 1})
    faults += [
        Fault("columns", "repeated", f"{name[:80]!r} is named twice; name each column once.")
        for name in repeated
    ]
    reject_any(faults)
    places = [known[name] for name in names]
    chosen = Table(table.name, tuple(table.columns[at] for at in places), table.digits)
    return chosen, lambda row: [row[at] for at in places]


# Besides the usual four: their full-width twins, and white space that a spreadsheet drops.
FORMULA_STARTS = frozenset("=+-@\t\r\n＝＋－＠")
_NUMBER = re.compile(r"-?\d+(\.\d+|/\d+)?", re.ASCII)
_SPACED_FORMULA = re.compile(r"\s+[=+\-@＝＋－＠]")


def decimal_text(value: Decimal) -> str:
    """Return a plain decimal: no exponent, no plus, no thousands mark, as many digits as it has."""
    return f"{value:f}"


def is_formula(text: str) -> bool:
    """Whether a spreadsheet may take the text for a formula; a plain number or fraction is none."""
    if not text or not (text[0] in FORMULA_STARTS or text[0].isspace()):
        return False
    if text[0] in FORMULA_STARTS:
        return _NUMBER.fullmatch(text) is None
    return _SPACED_FORMULA.match(text) is not None


def defused(text: str) -> str:
    """Return the text so that no spreadsheet takes it for a formula; plain numbers stay."""
    return f"'{text}" if is_formula(text) else text
