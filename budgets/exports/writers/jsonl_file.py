"""JSON Lines: one object a row. Decimals are texts, because JSON numbers are read as floats."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import IO

from budgets.exports.about import About
from budgets.exports.table import CellKind, Row, Table, decimal_text
from budgets.units import time_text


def write_jsonl(file: IO[bytes], table: Table, rows: Iterable[Row], about: About) -> int:
    """Write one object a row, null where there is no value; ``about`` lies beside the file.

    Returns:
        The number of rows. Memory does not grow with them.
    """
    names = table.names
    nested = {column.name for column in table.columns if column.kind is CellKind.JSON}
    count = 0
    for row in rows:
        document = dict(zip(names, row, strict=True))
        for name in nested:
            value = document[name]
            if isinstance(value, str):
                document[name] = json.loads(value)
        text = json.dumps(document, default=_shown, ensure_ascii=False, separators=(",", ":"))
        file.write(text.encode() + b"\n")
        count += 1
    return count


def _shown(value: object) -> str:
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, datetime):
        return time_text(value)
    raise TypeError(f"no column holds a {type(value).__name__}")
