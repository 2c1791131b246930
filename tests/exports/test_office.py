"""A spreadsheet program opens our files: LibreOffice converts them and nothing is lost.

One start of the program for all files, for the start is what takes the time.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Callable
from decimal import Decimal

import pytest

from budgets.exports.datasets import charge_cells, table_of
from budgets.exports.focus import Version, focus_rows, focus_table
from tests.exports.charges import NAMES, many
from tests.exports.test_writers import ROWS, TABLE, in_memory

pytestmark = pytest.mark.office
# Comma, double quote, UTF-8, from line 1, values as they are shown and not as formulas.
FILTER = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,true,false"
LIMIT_S = 60


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[list[str]]]:
    """The rows of a file as the program read them."""
    folder = tmp_path_factory.mktemp("office")
    focus = list(focus_rows(many(5), NAMES, Version.V1_4))
    charges = [given.row for given in many(5)]
    files = {
        "book.xlsx": in_memory("xlsx", TABLE, ROWS),
        "text.csv": in_memory("csv", TABLE, ROWS),
        "focus.xlsx": in_memory("xlsx", focus_table(Version.V1_4), focus),
        "charges.xlsx": in_memory("xlsx", table_of("charges", digits=2), charge_cells(charges)),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    soffice = shutil.which("soffice")
    if soffice is None:
        pytest.skip("no soffice: install Debian's libreoffice-calc-nogui to run this test")
    command = [soffice, f"-env:UserInstallation=file://{folder}/profile", "--headless"]
    command += ["--convert-to", FILTER, "--outdir", str(folder / "out")]
    command += [str(folder / name) for name in files]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)

    def read(name: str) -> list[list[str]]:
        with (folder / "out" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.reader(file))

    return read


def test_numbers_and_texts_come_back(converted):
    book, text = converted("book"), converted("text")

    assert book[1][0] == "=HYPERLINK(1)"
    assert [row[5] for row in book[1:]] == ["-0.005", "0.015", "", "1234567890123.45"]
    assert text[1][0] == "'=HYPERLINK(1)"
    assert text[2][0] == ROWS[1][0]


@pytest.mark.parametrize("name", ["BilledCost", "EffectiveCost", "ListCost", "PricingQuantity"])
def test_sums_of_focus_are_the_same_to_the_last_digit(converted, name: str):
    table = focus_table(Version.V1_4)
    column = table.names.index(name)
    want = sum(row[column] or 0 for row in focus_rows(many(5), NAMES, Version.V1_4))
    head, *rows = converted("focus")
    # The number is to the cent; the exact value stands beside it as text.
    exact = head.index(f"{name} (exact)") if f"{name} (exact)" in head else head.index(name)

    assert sum(Decimal(row[exact] or 0) for row in rows) == want


def test_amounts_of_charges_add_up_to_the_cent(converted):
    head, *rows = converted("charges")
    want = sum((given.row.amount for given in many(5)), Decimal(0))
    assert sum(Decimal(row[head.index("amount")]) for row in rows) == want
