"""The checker: one pass over a FOCUS file, every finding with row, column, value and rule.

Pure. Stricter than the validators that there are: it knows no rule that only advises, and the
identities of spec money 2.3 besides the rules of FOCUS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from budgets.exports.focus.columns import COLUMNS, Version
from budgets.exports.focus.reading import FocusFile, Texts
from budgets.exports.focus.rows import RowView, check_row
from budgets.exports.focus.sums import FocusFinding, Sums

KEPT_VALUES = 20_000


def check_file(
    file: FocusFile, version: Version, *, payables: Mapping[str, Decimal] | None = None
) -> Iterator[FocusFinding]:
    """Yield everything that is wrong with a file, in the order of its rows.

    Args:
        file: Read once.
        version: Of the specification that the file claims.
        payables: InvoiceId → payable; without it an invoice has to sum to whole minor units.

    Raises:
        FocusFileError: A row cannot be read; the rows after it are not looked at.

    One pass; memory grows with distinct invoices, commitments and prices.
    """
    yield from check_header(file.columns, version)
    cells = _Cells(file.columns, version)
    sums = Sums(payables or {})
    present = frozenset(file.columns)
    number = 0
    for number, texts in enumerate(file.rows, 1):
        yield from cells.check(number, texts)
        view = RowView(texts, present)
        for column, rule, message in check_row(view):
            yield FocusFinding(number, column, texts.get(column), rule, message)
        yield from sums.add(number, view)
    if not number:
        yield FocusFinding(0, "", None, "rows", "the file has no rows; export at least one charge")
    yield from sums.finish()


def check_header(names: tuple[str, ...], version: Version) -> Iterator[FocusFinding]:
    """Yield what is wrong with the columns."""
    known = COLUMNS[version]
    seen: set[str] = set()
    custom_begun = ""
    by_lower = {name.lower(): name for name in known}
    for name in names:
        if name in seen:
            yield FocusFinding(0, name, None, "column", "the column stands twice; keep one")
        seen.add(name)
        if name in known:
            if custom_begun:
                message = f"put it before {custom_begun}: own columns come last"
                yield FocusFinding(0, name, None, "column_order", message)
        elif name.startswith("x_"):
            custom_begun = custom_begun or name
        else:
            yield FocusFinding(0, name, None, "column", _stranger(name, version, by_lower))
    for name, column in known.items():
        if column.is_mandatory and name not in seen:
            message = f"FOCUS {version} has it in every file; add the column"
            yield FocusFinding(0, name, None, "column", message)


def _stranger(name: str, version: Version, by_lower: Mapping[str, str]) -> str:
    others = [other for other in Version if other != version and name in COLUMNS[other]]
    if others:
        return f"a column of FOCUS {others[0]}, not of {version}; leave it out"
    known = by_lower.get(name.strip().lower())
    if known:
        return f"spell it {known}"
    return "FOCUS has no such column; begin its name with x_"


class _Cells:
    """Checks single values and remembers those that were fine."""

    def __init__(self, names: tuple[str, ...], version: Version) -> None:
        known = COLUMNS[version]
        columns = [known[name] for name in names if name in known]
        self._checks = [
            (column.name, column.is_nullable, column.check, set[str]()) for column in columns
        ]

    def check(self, number: int, texts: Texts) -> Iterator[FocusFinding]:
        for name, is_nullable, rule, fine in self._checks:
            text = texts[name]
            if text is None:
                if not is_nullable:
                    yield FocusFinding(
                        number, name, None, "not_null", "fill it in: it is never null"
                    )
                continue
            if text in fine:
                continue
            fault = rule(text)
            if fault is not None:
                yield FocusFinding(number, name, text, *fault)
            else:
                if len(fine) >= KEPT_VALUES:
                    fine.clear()
                fine.add(text)
