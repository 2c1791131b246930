"""Files of every format: formulas are harmless, nothing is lost, memory stays small."""

from __future__ import annotations

import csv
import io
import json
import re
import tracemalloc
import zipfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from budgets.errors import Rejected
from budgets.exports import FORMATS, CellKind, Column, Table, pick
from budgets.exports.datasets import table_of
from budgets.exports.focus import Version, focus_rows, focus_table
from budgets.exports.table import defused, is_formula
from budgets.exports.writers.xlsx_file import _titles, write_xlsx
from tests.exports.charges import NAMES, many
from tests.exports.focus_files import ABOUT, in_memory, write
from tests.exports.xlsx_reading import sheets_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TABLE = Table(
    "sample",
    (
        Column("name"),
        Column("count", CellKind.INTEGER),
        Column("price", CellKind.DECIMAL),
        Column("amount", CellKind.AMOUNT),
        Column("at", CellKind.TIME),
        Column("tags", CellKind.JSON),
    ),
)
ROWS = [
    ("=HYPERLINK(1)", 3, Decimal("2.12345678"), Decimal("-0.005"), NOON, '{"a":1}'),
    ('a "quoted", text\nof two lines', 10**16, Decimal("0.1"), Decimal("0.015"), NOON, None),
    (None, None, None, None, None, None),
    ("", -1, Decimal("1E-15"), Decimal("1234567890123.45"), NOON, "{}"),
]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("=1+1", True),
        ("+cmd|' /C calc'!A0", True),
        ("-2+3", True),
        ("@SUM(A1)", True),
        ("\t=1", True),
        ("\r=1", True),
        ("  =1+1", True),
        ("＝1+1", True),
        ("-12.5", False),
        ("-1/3", False),
        ("", False),
        ("acme", False),
        (" a = b", False),
        ("٣", False),
    ],
)
def test_formula_is_told_from_a_text(text: str, want: bool):
    assert is_formula(text) is want
    assert defused(text) == (f"'{text}" if want else text)


def test_csv_is_read_back_as_written():
    content = in_memory("csv", TABLE, ROWS)

    header, *rows = csv.reader(io.StringIO(content.decode(), newline=""))
    assert header == list(TABLE.names)
    assert rows[0][:5] == ["'=HYPERLINK(1)", "3", "2.12345678", "-0.005", "2026-03-01T12:00:00Z"]
    assert rows[1][0] == 'a "quoted", text\nof two lines'
    assert rows[2] == [""] * 6
    assert rows[3][2] == "0.000000000000001"
    assert content.count(b"\r\n") == 5
    assert content.splitlines()[-1].startswith(b'"",-1')


def test_csv_of_one_column_has_a_line_for_every_row():
    content = in_memory("csv", Table("one", (Column("name"),)), [("a",), (None,), ("b",)])

    assert list(csv.reader(io.StringIO(content.decode()))) == [["name"], ["a"], [""], ["b"]]


def test_jsonl_has_exact_texts_nulls_and_objects():
    first, _, third, _ = in_memory("jsonl", TABLE, ROWS).decode().splitlines()

    assert json.loads(first) == {
        "name": "=HYPERLINK(1)",
        "count": 3,
        "price": "2.12345678",
        "amount": "-0.005",
        "at": "2026-03-01T12:00:00Z",
        "tags": {"a": 1},
    }
    assert set(json.loads(third).values()) == {None}


def test_parquet_has_exact_types_and_row_groups(monkeypatch):
    from budgets.exports.writers import parquet_file

    monkeypatch.setattr(parquet_file, "GROUP_ROWS", 3)

    content = in_memory("parquet", TABLE, ROWS)

    table = pq.read_table(io.BytesIO(content))
    assert table["amount"].to_pylist() == [row[3] for row in ROWS]
    assert table["at"].to_pylist() == [row[4] for row in ROWS]
    assert pq.ParquetFile(io.BytesIO(content)).num_row_groups == 2


def test_xlsx_shows_cents_and_keeps_the_exact_text(tmp_path: Path):
    (tmp_path / "x.xlsx").write_bytes(in_memory("xlsx", TABLE, ROWS))

    sheets = sheets_of(tmp_path / "x.xlsx")
    header, first, second, _, last = sheets["sample"]
    assert header[3:6] == ["price (exact)", "amount", "amount (exact)"]
    assert first[0] == "=HYPERLINK(1)"
    assert first[2:6] == [2.12345678, "2.12345678", 0.0, "-0.005"]
    assert second[1] == str(10**16)
    assert second[4:6] == [0.02, "0.015"]
    assert last[4:6] == [1234567890123.45, "1234567890123.45"]
    assert ["Time zone", "Europe/Berlin"] in sheets["About"]


def test_xlsx_times_fit_their_columns_and_quantities_have_a_unit():
    assert _titles(table_of("usage").columns[-1])[0].endswith("(GPU-seconds)")
    with zipfile.ZipFile(io.BytesIO(in_memory("xlsx", TABLE, ROWS))) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml").decode()
    widths = [float(width) for width in re.findall(r'<col [^>]*width="([\d.]+)"', sheet)]
    assert widths and min(widths) >= len("2026-01-01 00:00:00")


def test_xlsx_formula_stays_a_text_when_it_is_edited():
    with zipfile.ZipFile(io.BytesIO(in_memory("xlsx", TABLE, ROWS))) as archive:
        styles = archive.read("xl/styles.xml").decode()

    assert 'quotePrefix="1"' in styles


def test_xlsx_begins_a_sheet_where_one_is_full(tmp_path: Path):
    table = Table("rows", (Column("n", CellKind.INTEGER),))
    with (tmp_path / "x.xlsx").open("wb") as file:
        count = write_xlsx(file, table, ([n] for n in range(25)), ABOUT, sheet_rows=11)

    sheets = sheets_of(tmp_path / "x.xlsx")
    assert count == 25
    assert [len(sheets[name]) for name in ("rows", "rows 2", "rows 3")] == [11, 11, 6]
    assert sheets["rows 3"] == [["n"], [20], [21], [22], [23], [24]]


def test_pick_cuts_rows_to_columns_in_their_order():
    table, cut = pick(TABLE, ["amount", "name"])

    assert table.names == ("amount", "name")
    assert cut(ROWS[0]) == [Decimal("-0.005"), "=HYPERLINK(1)"]
    assert pick(TABLE, [])[0] is TABLE


def test_pick_names_every_column_that_is_wrong():
    with pytest.raises(Rejected) as rejected:
        pick(TABLE, ["amount", "total", "owner", "amount"])

    assert [fault.code for fault in rejected.value.faults] == ["unknown", "unknown", "repeated"]


@pytest.mark.parametrize("shape", list(FORMATS))
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, shape: str, monkeypatch):
    from budgets.exports.writers import csv_file, parquet_file

    monkeypatch.setattr(parquet_file, "GROUP_ROWS", 500)
    monkeypatch.setattr(csv_file, "BATCH_ROWS", 500)
    in_memory(shape, TABLE, ROWS)  # what is loaded once does not count
    peaks = []
    for count in (1_000, 5_000):
        rows = ((f"name {n}", n, Decimal(n), Decimal(n), NOON, None) for n in range(count))
        with (tmp_path / "x").open("wb") as file:
            tracemalloc.start()
            FORMATS[shape].writer()(file, TABLE, rows, ABOUT)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    assert peaks[1] < 1.5 * peaks[0] + 100_000


def test_parquet_and_csv_have_the_same_sums_in_duckdb(tmp_path: Path):
    parquet = write(tmp_path / "x.parquet", Version.V1_4, many(5), shape="parquet")
    text = write(tmp_path / "x.csv", Version.V1_4, many(5))
    columns = ("BilledCost", "EffectiveCost", "ListCost", "PricingQuantity")
    names = focus_table(Version.V1_4).names
    rows = list(focus_rows(many(5), NAMES, Version.V1_4))
    want = tuple(sum(row[names.index(c)] or 0 for row in rows) for c in columns)

    sums = ", ".join(f"sum(CAST({name} AS DECIMAL(38, 15)))" for name in columns)
    with duckdb.connect() as database:
        by_parquet = database.execute(f"SELECT {sums} FROM read_parquet('{parquet}')").fetchone()
        by_csv = database.execute(
            f"SELECT {sums} FROM read_csv('{text}', all_varchar = true)"
        ).fetchone()

    assert by_parquet == by_csv == want
    table = pq.read_table(parquet)
    assert tuple(sum(v or 0 for v in table[c].to_pylist()) for c in columns) == want
