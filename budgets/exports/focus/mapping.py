"""Charge rows → rows of the Cost and Usage dataset, the same for FOCUS 1.2 and 1.4.

The floor of an hour is a Purchase of what was committed, with EffectiveCost 0, and Usage rows of
it: one for each workload that used it and one for the rest, which bear the effective cost. Burst is
ordinary usage. Credits stand beside all that and are never netted. What the exact rows of an
invoice miss of the payable is a row of its own, so that their sum is the payable to the cent.

Pure. Source: spec money, section 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Context, Decimal
from fractions import Fraction
from operator import itemgetter

from budgets.charging.rows import ChargeRow, RowKind
from budgets.exports.focus import amounts, values
from budgets.exports.focus.base import Base, Document, above, bought, covered, invoice_id, named
from budgets.exports.focus.columns import Version, focus_table
from budgets.exports.focus.source import Commitment, FocusInput, FocusNames, WorkloadShare
from budgets.exports.table import Cell

ZERO = Decimal(0)
EXACT = Context(prec=60)


def focus_rows(
    source: Iterable[FocusInput], names: FocusNames, version: Version
) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of a FOCUS file in the columns of :func:`focus_table`.

    Args:
        source: Charge rows, read once. The rows of one invoice need not be together.
        names: Names and billing periods.
        version: Of the specification; decides about the columns alone.

    Raises:
        KeyError: A row's billing period is not in ``names``.

    O(1) memory but for a sum per invoice.
    """
    cut = itemgetter(*focus_table(version).names)
    for document in documents(source, names):
        yield cut(document)


def documents(source: Iterable[FocusInput], names: FocusNames) -> Iterator[Document]:
    """Yield each row as column → value, with the columns of both versions."""
    base = Base(names)
    payable: dict[str, Decimal] = {}
    billed: dict[str, int] = {}
    examples: dict[str, ChargeRow] = {}
    for given in source:
        row = given.row
        invoice = invoice_id(row)
        if invoice not in examples:
            examples[invoice], payable[invoice], billed[invoice] = row, ZERO, 0
        payable[invoice] = EXACT.add(payable[invoice], row.amount)
        if row.kind is RowKind.ROUNDING:
            continue  # the row below says what the exact rows of FOCUS miss
        for document, units in _rows(given, base):
            billed[invoice] += units
            yield document
    for invoice, example in examples.items():
        missing = amounts.units(Fraction(payable[invoice])) - billed[invoice]
        if missing:
            yield _rounding(example, missing, base)


def _rows(given: FocusInput, base: Base) -> Iterator[tuple[Document, int]]:
    """Yield (document, its billed cost in 10⁻¹⁵) of one charge row."""
    row = given.row
    kind = row.kind
    if kind is RowKind.CORRECTION:
        kind = row.class_of or RowKind.ADJUSTMENT
    if kind is RowKind.FLOOR and given.commitment is not None:
        yield from _floor(given, given.commitment, base)
    elif kind is RowKind.BURST:
        yield from _burst(given, base)
    else:
        yield _plain(given, kind, base)


def _floor(given: FocusInput, commitment: Commitment, base: Base) -> Iterator[tuple[Document, int]]:
    """The purchase of the hour's floor, and the use that it covers."""
    row = given.row
    total = amounts.units(row.exact)
    if row.gpu_seconds:
        yield _purchase(given, commitment, base, total), total
    yield from _covered(given, commitment, base, total)


def _purchase(given: FocusInput, commitment: Commitment, base: Base, total: int) -> Document:
    row = given.row
    document = base.row(given, bought(commitment, base.name_of(commitment)))
    hours = amounts.gpu_hours(row.gpu_seconds)
    if not row.unit_price or total == amounts.cost(row.gpu_seconds, row.unit_price):
        quantity = hours
    else:  # under fixed 730 h a month the priced hours are not those of the clock
        quantity = amounts.decimal(amounts.units(row.exact / Fraction(row.unit_price)))
    own_price = amounts.price(row.unit_price)
    _costs(document, billed=total, effective=0, contracted=total, listed=total)
    _prices(document, quantity, own_price, own_price)
    document["x_GpuSeconds"] = row.gpu_seconds
    _apply(document, commitment, hours)
    return document


def _covered(
    given: FocusInput, commitment: Commitment, base: Base, total: int
) -> Iterator[tuple[Document, int]]:
    """The Used rows of a floor, one a workload, and the Unused one.

    They are billed nothing and listed at the on-demand price.
    """
    row, name = given.row, base.name_of(commitment)
    pieces = [*_split(given.shares, "committed_used", row.used_gpu_seconds)]
    unused = row.gpu_seconds - row.used_gpu_seconds
    weights = [seconds for _, seconds in pieces]
    if row.gpu_seconds:
        effective = amounts.parts(total, [*weights, unused], whole=row.gpu_seconds)
    else:  # a correction that moves use and leaves the floor as it was
        effective = [amounts.cost(seconds, row.unit_price) for seconds in weights]
        effective.append(-sum(effective))
    list_price = row.list_unit_price if row.list_unit_price is not None else row.unit_price
    shown = amounts.price(list_price)

    def of_floor(status: str, seconds: int, cost: int) -> Document:
        document = base.row(given, covered(commitment, name, status))
        listed = amounts.cost(seconds, list_price)
        _costs(document, billed=0, effective=cost, contracted=listed, listed=listed)
        quantity = amounts.gpu_hours(seconds)
        _prices(document, quantity, shown, shown)
        document["x_GpuSeconds"] = seconds
        _apply(document, commitment, quantity)
        return document

    for (share, seconds), cost in zip(pieces, effective, strict=False):
        used = of_floor(values.USED, seconds, cost)
        base.resource(used, row, share)
        _consumed(used, seconds)
        yield used, 0
    if unused:
        yield of_floor(values.UNUSED, unused, effective[-1]), 0


def _burst(given: FocusInput, base: Base) -> Iterator[tuple[Document, int]]:
    """Usage above the floor, one row a workload."""
    row = given.row
    if not row.gpu_seconds:
        yield _plain(given, RowKind.ADJUSTMENT, base)
        return
    pieces = [*_split(given.shares, "burst", row.gpu_seconds)]
    total = amounts.units(row.exact)
    costs = amounts.parts(total, [seconds for _, seconds in pieces], whole=row.gpu_seconds)
    # What a spot price of the hour is listed at is that price.
    listed_at = None if given.is_dynamic else row.list_unit_price
    list_price = row.unit_price if listed_at is None else listed_at
    for (share, seconds), cost in zip(pieces, costs, strict=True):
        document = base.row(given, above(row.flavor, given.is_dynamic))
        base.resource(document, row, share)
        listed = amounts.cost(seconds, list_price)
        _costs(document, billed=cost, effective=cost, contracted=cost, listed=listed)
        quantity = amounts.gpu_hours(seconds)
        _prices(document, quantity, amounts.price(row.unit_price), amounts.price(list_price))
        document["x_GpuSeconds"] = seconds
        _consumed(document, seconds)
        yield document, cost


def _plain(given: FocusInput, kind: RowKind, base: Base) -> tuple[Document, int]:
    """A credit or an adjustment: four equal costs, no quantity."""
    total = amounts.units(given.row.exact)
    is_lending = kind is RowKind.LENDING_CREDIT
    is_credit = is_lending or given.is_goodwill or kind is RowKind.PREEMPTION_CREDIT
    lent_of = given.commitment if is_lending else None
    document = base.row(given, named(lent_of, base.name_of(lent_of)) if lent_of else {})
    document["ChargeCategory"] = values.CREDIT if is_credit else values.ADJUSTMENT
    document["ChargeFrequency"] = values.ONE_TIME
    document["x_GpuSeconds"] = given.row.gpu_seconds if is_lending else None
    _costs(document, billed=total, effective=total, contracted=total, listed=total)
    return document, total


def _rounding(example: ChargeRow, missing: int, base: Base) -> Document:
    """What makes the sum of an invoice the payable."""
    start, end = base.names.periods[example.period]
    row = ChargeRow(
        account=example.account,
        kind=RowKind.ROUNDING,
        start=start,
        end=end,
        exact=Fraction(missing, amounts.SCALE),
        amount=ZERO,
        currency=example.currency,
        period=example.period,
        statement=example.statement,
    )
    return _plain(FocusInput(row), RowKind.ROUNDING, base)[0]


def _split(
    shares: tuple[WorkloadShare, ...], name: str, total: int
) -> Iterator[tuple[WorkloadShare | None, int]]:
    """Yield (workload, its GPU-seconds); None for what no workload is known for.

    Where the workloads have more than the charge (a correction), nobody is named.
    """
    if not total:
        return
    taken = [(share, getattr(share, name)) for share in shares]
    known = sum(seconds for _, seconds in taken)
    if not 0 < known <= total:
        yield None, total
        return
    for share, seconds in taken:
        if seconds:
            yield share, seconds
    if known < total:
        yield None, total - known


def _costs(
    document: Document, *, billed: int, effective: int, contracted: int, listed: int
) -> None:
    document["BilledCost"] = amounts.decimal(billed)
    document["EffectiveCost"] = amounts.decimal(effective)
    document["PricingCurrencyEffectiveCost"] = document["EffectiveCost"]
    document["ContractedCost"] = amounts.decimal(contracted)
    document["ListCost"] = amounts.decimal(listed)


def _prices(document: Document, quantity: Decimal, contracted: Decimal, listed: Decimal) -> None:
    document["PricingQuantity"] = quantity
    document["PricingUnit"] = values.GPU_HOURS
    document["ContractedUnitPrice"] = contracted
    document["PricingCurrencyContractedUnitPrice"] = contracted
    document["ListUnitPrice"] = listed
    document["PricingCurrencyListUnitPrice"] = listed


def _consumed(document: Document, seconds: int) -> None:
    document["ConsumedQuantity"] = amounts.gpu_hours(seconds)
    document["ConsumedUnit"] = values.GPU_HOURS


def _apply(document: Document, commitment: Commitment, quantity: Decimal) -> None:
    """Apply a quantity to the commitment, and to its contract: the workspace's budget."""
    document["CommitmentDiscountQuantity"] = quantity
    document["ContractApplied"] = (
        f'{{"Elements":[{{"ContractId":"{commitment.contract}",'
        f'"ContractCommitmentId":"{commitment.key}",'
        f'"ContractCommitmentAppliedQuantity":{quantity:f},'
        f'"ContractCommitmentAppliedUnit":"{values.GPU_HOURS}"}}]}}'
    )
