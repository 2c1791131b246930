"""CSV (RFC 4180, UTF-8): null is an empty field, formulas are defused."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any

from budgets.exports.about import About
from budgets.exports.table import CellKind, Row, Table, decimal_text, defused
from budgets.units import time_text

BATCH_ROWS = 2_000
NEW_LINE = "\r\n"
NULL = ""
_SPECIAL = re.compile(r'[",\r\n]')
SHOWN: dict[CellKind, Callable[[Any], str]] = {
    CellKind.TEXT: defused,
    CellKind.JSON: defused,
    CellKind.INTEGER: str,
    CellKind.DECIMAL: decimal_text,
    CellKind.AMOUNT: decimal_text,
    CellKind.TIME: time_text,
}


def write_csv(file: IO[bytes], table: Table, rows: Iterable[Row], about: About) -> int:
    """Write header and rows; ``about`` has no room here and lies beside the file.

    Returns:
        The number of data rows. Memory holds one batch of them.
    """
    file.write((",".join(_field(name) for name in table.names) + NEW_LINE).encode())
    # A line of nothing is no row to most readers, so a lone null is written as an empty text.
    null = NULL if len(table.columns) > 1 else _field("")
    shown = [SHOWN[column.kind] for column in table.columns]
    source = iter(rows)
    count = 0
    while batch := list(itertools.islice(source, BATCH_ROWS)):
        columns = [
            _fields(values, show, null)
            for values, show in zip(zip(*batch, strict=True), shown, strict=True)
        ]
        lines = map(",".join, zip(*columns, strict=True))
        file.write((NEW_LINE.join(lines) + NEW_LINE).encode())
        count += len(batch)
    return count


def shown_row(table: Table, row: Row) -> tuple[str, ...]:
    """Return the cells of a row as they stand in the file, without quotes; null is empty."""
    return tuple(
        "" if value is None else SHOWN[column.kind](value)
        for column, value in zip(table.columns, row, strict=True)
    )


def _fields(values: Sequence[Any], show: Callable[[Any], str], null: str) -> Sequence[str]:
    """The column as fields; each distinct value is made one once."""
    distinct = set(values)
    changed = {value: null if value is None else _field(show(value)) for value in distinct}
    if len(changed) == 1:
        return [changed.popitem()[1]] * len(values)
    if all(value is field for value, field in changed.items()):
        return values
    return [changed[value] for value in values]


def _field(text: str) -> str:
    """Quoted where it has to be; an empty text is quoted, so that it is told from null."""
    if text and _SPECIAL.search(text) is None:
        return text
    return '"' + text.replace('"', '""') + '"'
