"""FOCUS files in memory: written, changed in one place, checked."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path

from budgets.exports import FORMATS, About
from budgets.exports.focus import FocusInput, Version, focus_rows, focus_table
from budgets.exports.focus.check import FocusFinding, check_file
from budgets.exports.focus.reading import FocusFile, Texts, open_focus
from tests.exports.charges import NAMES, START, story

ABOUT = About("FOCUS", START, {"period": "2026-03"}, "Europe/Berlin", START, rate_cards=("1",))


def write(
    path: Path, version: Version, source: Iterable[FocusInput], *, shape: str = "csv"
) -> Path:
    with path.open("wb") as file:
        rows = focus_rows(source, NAMES, version)
        FORMATS[shape].writer()(file, focus_table(version), rows, ABOUT)
    return path


def texts_of(version: Version, folder: Path) -> list[Texts]:
    """The story's rows as the checker reads them."""
    path = write(folder / "story.csv", version, story())
    with open_focus(path) as opened:
        return list(opened.rows)


def check(rows: list[Texts], version: Version, **more: object) -> list[FocusFinding]:
    return list(check_file(FocusFile(tuple(rows[0]), iter(rows)), version, **more))


def found_in(rows: list[Texts], version: Version, plant: Callable[[list[Texts]], None]):
    """The (row, column, rule) findings after something was planted."""
    plant(rows)
    return {(f.row, f.column, f.rule) for f in check(rows, version)}


def in_memory(shape: str, table, rows) -> bytes:
    file = io.BytesIO()
    FORMATS[shape].writer()(file, table, rows, ABOUT)
    return file.getvalue()
