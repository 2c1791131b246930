"""The file formats: name → how it is written, its suffix and content type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import IO

from budgets.exports.about import About
from budgets.exports.table import Row, Table

TableWriter = Callable[[IO[bytes], Table, Iterable[Row], About], int]
"""Writes a table to an open file and returns the number of data rows."""


@dataclass(frozen=True, slots=True)
class Format:
    """One file format.

    Attributes:
        name: Key, and name of the module and function that write it.
        title: For people.
        suffix: Of the file's name.
        content_type: Media type.
    """

    name: str
    title: str
    suffix: str
    content_type: str

    def writer(self) -> TableWriter:
        """Return what writes it; its library is loaded now, for few processes ever need it."""
        module = import_module(f"{__name__}.{self.name}_file")
        writer: TableWriter = getattr(module, f"write_{self.name}")
        return writer


FORMATS = {
    shape.name: shape
    for shape in (
        Format("csv", "CSV", "csv", "text/csv; charset=utf-8"),
        Format(
            "xlsx",
            "Excel (XLSX)",
            "xlsx",
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        ),
        Format(
            "parquet",
            "Parquet",
            "parquet",
            "application/vnd.apache.parquet",
        ),
        Format("jsonl", "JSON Lines", "jsonl", "application/jsonl"),
    )
}
