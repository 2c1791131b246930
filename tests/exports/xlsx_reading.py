"""A workbook as lists of values, read as the format says, without what wrote it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from xml.etree import ElementTree

NAMES = {"m": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}
RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
Value = str | float | None


def sheets_of(path: Path) -> dict[str, list[list[Value]]]:
    """Sheet name → rows; numbers as floats, texts as texts; a formula raises."""
    with zipfile.ZipFile(path) as archive:
        relations = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
        targets = {row.attrib["Id"]: row.attrib["Target"] for row in relations}
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        return {
            sheet.attrib["name"]: _rows(archive.read(f"xl/{targets[sheet.attrib[RELATION]]}"))
            for sheet in book.iterfind("m:sheets/m:sheet", NAMES)
        }


def _rows(source: bytes) -> list[list[Value]]:
    rows: list[list[Value]] = []
    for row in ElementTree.fromstring(source).iterfind("m:sheetData/m:row", NAMES):
        rows += [[]] * (int(row.attrib["r"]) - 1 - len(rows))  # rows without a cell are left out
        cells: dict[int, Value] = {}
        for cell in row.iterfind("m:c", NAMES):
            assert cell.find("m:f", NAMES) is None, "a formula"
            cells[_column(cell.attrib["r"])] = _value(cell)
        rows.append([cells.get(at) for at in range(max(cells) + 1)] if cells else [])
    return rows


def _value(cell: ElementTree.Element) -> Value:
    if cell.attrib.get("t") == "inlineStr":
        return "".join(part.text or "" for part in cell.iterfind(".//m:t", NAMES))
    number = cell.find("m:v", NAMES)
    return None if number is None else float(number.text or 0)


def _column(place: str) -> int:
    number = 0
    for letter in place:
        if letter.isdigit():
            break
        number = number * 26 + ord(letter) - 64
    return number - 1
