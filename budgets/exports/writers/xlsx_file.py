"""XLSX: amounts as numbers to the cent with the exact value as text beside them.

A spreadsheet counts in binary with 15 digits, so no number in it can be exact; whoever needs the
exact value takes the column beside it. Written row by row, sheets split at the format's limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC
from decimal import Decimal
from fractions import Fraction
from typing import IO, Any

import xlsxwriter

from budgets.exports.about import About
from budgets.exports.table import (
    DECIMAL_KINDS,
    CellKind,
    Column,
    Row,
    Table,
    decimal_text,
    is_formula,
)
from budgets.units import quantise

SHEET_ROWS = 1_048_576
CELL_CHARACTERS = 32_767
TIME_CHARACTERS = len("2026-01-01 00:00:00") + 1
SAFE_INTEGER = 10**15
OPTIONS = {
    "constant_memory": True,
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "strings_to_numbers": False,
    "default_date_format": "yyyy-mm-dd hh:mm:ss",
    "remove_timezone": True,
}


def write_xlsx(
    file: IO[bytes],
    table: Table,
    rows: Iterable[Row],
    about: About,
    *,
    sheet_rows: int = SHEET_ROWS,
) -> int:
    """Write the rows to as many sheets as they need, and the label to the sheet ``About``.

    Args:
        file: Opened for writing, binary.
        table: ``digits`` are those of the amounts' numbers.
        rows: Read once.
        about: The label.
        sheet_rows: Rows of a sheet with its header; smaller in tests.

    Returns:
        The number of data rows. Memory does not grow with them; a temporary file does.
    """
    book = xlsxwriter.Workbook(file, OPTIONS)
    sheets = _Sheets(book, table, sheet_rows)
    count = 0
    for row in rows:
        sheets.add(row)
        count += 1
    label = book.add_worksheet("About")
    for at, (name, text) in enumerate(about.with_rows(count).lines()):
        label.write_string(at, 0, name)
        label.write_string(at, 1, text[:CELL_CHARACTERS])
    book.close()
    return count


class _Sheets:
    """Writes rows to the current sheet and begins the next when it is full."""

    def __init__(self, book: Any, table: Table, sheet_rows: int) -> None:
        self._book = book
        self._table = table
        self._limit = sheet_rows
        self._head = book.add_format({"bold": True})
        self._quoted = book.add_format({"quote_prefix": True})
        cents = "0" if not table.digits else "0." + "0" * table.digits
        self._cents = book.add_format({"num_format": cents})
        self._number = 0
        self._writers = self._plans()
        self._begin()

    def _begin(self) -> None:
        self._number += 1
        suffix = "" if self._number == 1 else f" {self._number}"
        self._sheet = self._book.add_worksheet(f"{self._table.name[:24]}{suffix}")
        self._sheet.freeze_panes(1, 0)
        place = 0
        for column in self._table.columns:
            for title in _titles(column):
                self._sheet.write_string(0, place, title, self._head)
                # A time that does not fit is shown as ###.
                self._sheet.set_column(place, place, max(len(title) + 2, TIME_CHARACTERS))
                place += 1
        self._next = 1

    def add(self, row: Row) -> None:
        """Write one row."""
        if self._next >= self._limit:
            self._begin()
        for (place, write), value in zip(self._writers, row, strict=True):
            if value is not None:
                write(self._next, place, value)
        self._next += 1

    def _plans(self) -> list[tuple[int, Callable[[int, int, Any], None]]]:
        """(first place, how to write) for each column."""
        known: dict[CellKind, Callable[[int, int, Any], None]] = {
            CellKind.TEXT: self._text,
            CellKind.JSON: self._text,
            CellKind.INTEGER: self._integer,
            CellKind.DECIMAL: self._decimal,
            CellKind.AMOUNT: self._amount,
            CellKind.TIME: self._time,
        }
        plans, place = [], 0
        for column in self._table.columns:
            plans.append((place, known[column.kind]))
            place += len(_titles(column))
        return plans

    def _text(self, row: int, place: int, value: str) -> None:
        # A text cell is no formula; the prefix keeps it a text when somebody edits it.
        shape = self._quoted if is_formula(value) else None
        self._sheet.write_string(row, place, value[:CELL_CHARACTERS], shape)

    def _integer(self, row: int, place: int, value: int) -> None:
        if abs(value) < SAFE_INTEGER:
            self._sheet.write_number(row, place, value)
        else:
            self._sheet.write_string(row, place, str(value))

    def _decimal(self, row: int, place: int, value: Decimal) -> None:
        self._sheet.write_number(row, place, float(value))
        self._sheet.write_string(row, place + 1, decimal_text(value))

    def _amount(self, row: int, place: int, value: Decimal) -> None:
        cents = quantise(Fraction(value), digits=self._table.digits)
        self._sheet.write_number(row, place, float(cents), self._cents)
        self._sheet.write_string(row, place + 1, decimal_text(value))

    def _time(self, row: int, place: int, value: Any) -> None:
        self._sheet.write_datetime(row, place, value.astimezone(UTC))


def _titles(column: Column) -> tuple[str, ...]:
    if column.kind in DECIMAL_KINDS:
        return column.name, f"{column.name} (exact)"
    unit = "UTC" if column.kind is CellKind.TIME else column.unit
    return (f"{column.name} ({unit})" if unit else column.name,)
