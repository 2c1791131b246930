"""FOCUS files as rows of texts: CSV (gzip or not), Parquet, JSON Lines.

Every format gives the same texts for the same values, so that one set of rules checks them all.
Memory holds one batch. A null is None; an empty text stays an empty text.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, TextIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from budgets.exports.table import decimal_text
from budgets.units import time_text

GZIP_MAGIC, PARQUET_MAGIC = b"\x1f\x8b", b"PAR1"
FIELD_CHARACTERS = 10_000_000
Texts = dict[str, str | None]
_QUOTED_EMPTY = re.compile(r'(?:^|,)""(?=,|\r?\n|$)')


class FocusFileError(ValueError):
    """The file cannot be read as rows; the message says where."""


@dataclass(frozen=True, slots=True)
class FocusFile:
    """An opened file: its columns as they stand in it, and its rows, read once."""

    columns: tuple[str, ...]
    rows: Iterator[Texts]


@contextmanager
def open_focus(path: Path) -> Iterator[FocusFile]:
    """Open a file by what is in it, not by its name.

    Raises:
        FocusFileError: It is not there, no text, or no table. Rows raise it while they are read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise FocusFileError(f"cannot read {path}: {error.strerror}") from error
    if head == PARQUET_MAGIC:
        yield _parquet(path)
        return
    opener = gzip.open if head[:2] == GZIP_MAGIC else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as opened:
        yield _lines(cast(TextIO, opened), path)


def _lines(text: TextIO, path: Path) -> FocusFile:
    try:
        first = text.readline()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise FocusFileError(f"{path} is not UTF-8 text: {error}") from error
    if not first.strip():
        raise FocusFileError(f"{path} is empty; it has no header row")
    if first.lstrip().startswith("{"):
        columns = tuple(_document(first, 1))
        return FocusFile(columns, _json_rows(columns, first, text))
    csv.field_size_limit(FIELD_CHARACTERS)
    columns = tuple(next(csv.reader([first])))
    return FocusFile(columns, _csv_rows(columns, text))


def _csv_rows(columns: tuple[str, ...], text: TextIO) -> Iterator[Texts]:
    raw: list[str] = []

    def kept() -> Iterator[str]:
        for line in text:
            raw.append(line)
            yield line

    reader = csv.reader(kept(), strict=True)
    try:
        for number, cells in enumerate(reader, 1):
            if len(cells) != len(columns):
                raise FocusFileError(
                    f"row {number} has {len(cells)} fields and the header {len(columns)}; "
                    "quote texts with commas, quotes or line ends"
                )
            source = "".join(raw)
            raw.clear()
            if '""' in source and _QUOTED_EMPTY.search(source):
                empty = _quoted_empties(source)
                yield {
                    name: cell if cell or at in empty else None
                    for at, (name, cell) in enumerate(zip(columns, cells, strict=True))
                }
            else:
                yield {n: cell or None for n, cell in zip(columns, cells, strict=True)}
    except (csv.Error, UnicodeDecodeError, OSError, EOFError) as error:
        raise FocusFileError(f"line {reader.line_num + 1}: {error}") from error


def _quoted_empties(source: str) -> set[int]:
    """Places of fields that are written as two quotes: an empty text, which is not null."""
    found, place, at = set(), 0, 0
    while at < len(source):
        if source[at] != '"':
            until = source.find(",", at)
            at = len(source) if until < 0 else until
        else:
            end = at + 1
            while True:
                end = source.find('"', end)
                if source[end + 1 : end + 2] != '"':
                    break
                end += 2
            if end == at + 1:
                found.add(place)
            at = end + 1
        place, at = place + 1, at + 1
    return found


def _json_rows(columns: tuple[str, ...], first: str, text: TextIO) -> Iterator[Texts]:
    known = set(columns)
    for number, line in enumerate(chain([first], text), 1):
        document = _document(line, number)
        if document.keys() != known:
            odd = sorted(document.keys() ^ known)
            raise FocusFileError(f"row {number} has other keys than row 1: {', '.join(odd[:5])}")
        yield {name: _text(value) for name, value in document.items()}


def _document(line: str, number: int) -> dict[str, Any]:
    try:
        document = json.loads(line, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise FocusFileError(f"row {number} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise FocusFileError(f"row {number} is not a JSON object")
    return document


def _parquet(path: Path) -> FocusFile:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise FocusFileError(f"{path} is not a Parquet file: {error}") from error
    return FocusFile(tuple(file.schema_arrow.names), _parquet_rows(file))


def _parquet_rows(file: Any) -> Iterator[Texts]:
    try:
        for batch in file.iter_batches(batch_size=5_000):
            names = batch.schema.names
            columns = [[_text(value) for value in column.to_pylist()] for column in batch.columns]
            for cells in zip(*columns, strict=True):
                yield dict(zip(names, cells, strict=True))
    except pa.ArrowException as error:
        raise FocusFileError(f"the file ends before its rows do: {error}") from error


def _text(value: object) -> str | None:
    """A value as CSV would hold it; decimals without the zeros that a fixed scale adds."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat()
        return time_text(value) if not value.microsecond else value.isoformat()
    if isinstance(value, Decimal):
        text = decimal_text(value)
        if "." in text:
            text = text.rstrip("0")
            return f"{text}0" if text.endswith(".") else text
        return text
    if isinstance(value, dict | list):
        return json.dumps(value, default=_text)
    return str(value)
