"""The checker: one pass over a FOCUS file, every finding with row, column, value and rule.

Pure. Stricter than the validators that there are: it knows no rule that only advises, and the
identities of spec money 2.3 besides the rules of FOCUS. Rules
over many rows are those of invoices, commitments, and names that belong to one parent; their memory
grows with the number of invoices, commitments and prices, never with the rows.

Source: FOCUS DiscountHandling and InvoiceHandling; spec money, section 2.3 (identities).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from budgets.exports.focus import values
from budgets.exports.focus.columns import COLUMNS, Version
from budgets.exports.focus.reading import FocusFile, Texts
from budgets.exports.focus.rows import EXACT, TOLERANCE, RowView, check_row
from budgets.units import UnitsError, currency_digits

ZERO = Decimal(0)
PARENTS = (
    ("SkuPriceId", "SkuId", "a SKU price has one SKU"),
    ("ServiceName", "ServiceCategory", "a service has one category"),
    ("CommitmentDiscountId", "CommitmentDiscountUnit", "a commitment has one unit"),
    ("CommitmentDiscountId", "BillingCurrency", "a commitment has one currency"),
    ("InvoiceId", "BillingAccountId", "an invoice has one billing account"),
    ("InvoiceId", "BillingCurrency", "an invoice has one currency"),
    ("InvoiceId", "BillingPeriodStart", "an invoice has one billing period; correct in a new one"),
    ("SubAccountId", "BillingAccountId", "a sub account has one billing account"),
)


@dataclass(slots=True)
class _Commitment:
    row: int
    rows: int = 0
    bought: Decimal = ZERO
    borne: Decimal = ZERO
    bought_quantity: Decimal = ZERO
    covered_quantity: Decimal = ZERO


@dataclass(slots=True)
class _Invoice:
    row: int
    currency: str
    rows: int = 0
    billed: Decimal = ZERO


class Sums:
    """Adds rows up and, at the end, says which identities do not hold.

    Args:
        payables: InvoiceId → what it asks to be paid, where that is known.
    """

    def __init__(self, payables: Mapping[str, Decimal]) -> None:
        self._payables = payables
        self._parents: list[dict[str, str]] = [{} for _ in PARENTS]
        self._commitments: dict[str, _Commitment] = {}
        self._invoices: dict[str, _Invoice] = {}

    def add(self, number: int, row: RowView) -> Iterator[FocusFinding]:
        """Count a row in; yield what contradicts an earlier one."""
        for (child, parent, message), known in zip(PARENTS, self._parents, strict=True):
            name, value = row.texts.get(child), row.texts.get(parent)
            if name is None or value is None:
                continue
            first = known.setdefault(name, value)
            if first != value:
                text = f"{child} {name!r} had {first!r} before: {message}"
                yield FocusFinding(number, parent, value, "parent", text)
        self._commit(number, row)
        invoice = row.texts.get("InvoiceId")
        if invoice is not None:
            currency = row.texts.get("BillingCurrency") or ""
            found = self._invoices.setdefault(invoice, _Invoice(number, currency))
            found.rows += 1
            found.billed = EXACT.add(found.billed, row.number("BilledCost") or ZERO)

    def _commit(self, number: int, row: RowView) -> None:
        if row.commitment is None or row.category not in (values.USAGE, values.PURCHASE):
            return
        found = self._commitments.setdefault(row.commitment, _Commitment(number))
        found.rows += 1
        quantity = row.number("CommitmentDiscountQuantity") or ZERO
        if row.category == values.PURCHASE:
            found.bought = EXACT.add(found.bought, row.number("BilledCost") or ZERO)
            found.bought_quantity = EXACT.add(found.bought_quantity, quantity)
        elif row.status in (values.USED, values.UNUSED):
            found.borne = EXACT.add(found.borne, row.number("EffectiveCost") or ZERO)
            found.covered_quantity = EXACT.add(found.covered_quantity, quantity)

    def finish(self) -> Iterator[FocusFinding]:
        """Yield the identities that do not hold, at the first row of their group."""
        for key, found in self._commitments.items():
            yield from _commitment_findings(key, found)
        for key, invoice in self._invoices.items():
            yield from self._invoice_findings(key, invoice)
        for key in self._payables.keys() - self._invoices.keys():
            message = f"no row has the invoice {key!r}; its charges are missing"
            yield FocusFinding(0, "InvoiceId", key, "payable", message)

    def _invoice_findings(self, key: str, found: _Invoice) -> Iterator[FocusFinding]:
        total = f"{found.billed:f}"
        payable = self._payables.get(key)
        if payable is not None:
            if abs(EXACT.subtract(found.billed, payable)) > TOLERANCE:
                message = f"BilledCost of invoice {key!r} sums to this; payable is {payable:f}"
                yield FocusFinding(found.row, "BilledCost", total, "payable", message)
            return
        try:
            cent = Decimal(1).scaleb(-currency_digits(found.currency))
        except UnitsError:
            return  # the rule of the cell has said it
        if (
            abs(EXACT.subtract(found.billed, found.billed.quantize(cent, context=EXACT)))
            > TOLERANCE
        ):
            message = (
                f"BilledCost of invoice {key!r} sums to this, which nobody can pay in "
                f"{found.currency}; add an Adjustment row that rounds it to the payable"
            )
            yield FocusFinding(found.row, "BilledCost", total, "payable", message)


def _commitment_findings(key: str, found: _Commitment) -> Iterator[FocusFinding]:
    room = TOLERANCE * found.rows
    if abs(EXACT.subtract(found.bought, found.borne)) > room:
        message = (
            f"EffectiveCost of the Usage of {key!r} sums to this, BilledCost of its Purchase to "
            f"{found.bought:f}; they are equal over whole charge periods"
        )
        yield FocusFinding(
            found.row, "EffectiveCost", f"{found.borne:f}", "commitment_cost", message
        )
    if abs(EXACT.subtract(found.bought_quantity, found.covered_quantity)) > room:
        message = (
            f"Used and Unused of {key!r} sum to this, its Purchase to "
            f"{found.bought_quantity:f}; what was bought is used or unused"
        )
        value = f"{found.covered_quantity:f}"
        yield FocusFinding(
            found.row, "CommitmentDiscountQuantity", value, "commitment_quantity", message
        )


SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class FocusFinding:
    """One thing that is wrong in a FOCUS file.

    Attributes:
        row: Data row, from 1; 0 for the header and the file as a whole.
        column: Column ID; empty for the file as a whole.
        value: The value found; None is null.
        rule: Stable name of the rule, such as ``enum``.
        message: What is wrong and the way out.
    """

    row: int
    column: str
    value: str | None
    rule: str
    message: str

    def __str__(self) -> str:
        shown = "null" if self.value is None else repr(self.value[:SHOWN_CHARACTERS])
        place = f"row {self.row}" if self.row else "file"
        return f"{place}: {self.column or '-'}: {shown}: {self.rule}: {self.message}"


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
            yield FocusFinding(0, name, None, "column", "the file has this column twice; keep one")
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
