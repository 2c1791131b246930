"""Rules that hold within one row: what goes with what, prices × quantities, periods.

Pure. Source: the requirements of FOCUS 1.2 and 1.4; spec money, sections 2.2 and 2.3.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Context, Decimal, InvalidOperation

from budgets.exports.focus import values
from budgets.exports.focus.columns import EVERY
from budgets.exports.focus.reading import Texts
from budgets.units import HOUR_S

TOLERANCE = Decimal("1e-9")
EXACT = Context(prec=60)
Found = Iterator[tuple[str, str, str]]
"""(column, rule, message)"""


class RowView:
    """One row with what the rules ask of it again and again."""

    def __init__(self, texts: Texts, present: frozenset[str]) -> None:
        self.texts, self.present = texts, present
        self.category = texts.get("ChargeCategory")
        self.is_correction = texts.get("ChargeClass") == values.CORRECTION
        self.commitment = texts.get("CommitmentDiscountId")
        self.status = texts.get("CommitmentDiscountStatus")
        self._numbers: dict[str, Decimal | None] = {}

    @property
    def is_charge(self) -> bool:
        """Usage or a purchase, and no correction: quantities and prices have to be there."""
        return not self.is_correction and self.category in (values.USAGE, values.PURCHASE)

    def number(self, name: str) -> Decimal | None:
        """The value as a number; None when null, absent or unreadable."""
        if name not in self._numbers:
            text = self.texts.get(name)
            try:
                value = None if text is None else Decimal(text)
            except InvalidOperation:
                value = None
            self._numbers[name] = value if value is None or value.is_finite() else None
        return self._numbers[name]

    def lacks(self, name: str) -> bool:
        """The column is there and null in this row."""
        return name in self.present and self.texts.get(name) is None

    def has(self, name: str) -> bool:
        """There is a value."""
        return self.texts.get(name) is not None


def check_row(view: RowView) -> Found:
    """Yield everything that is wrong within the row."""
    for rule in RULES:
        yield from rule(view)


def check_pairs(row: RowView) -> Found:
    """A name needs its id, a unit its quantity."""
    for column, owner in NEEDS:
        if row.has(column) and row.lacks(owner):
            yield column, "pair", f"leave it null where {owner} is null, or fill {owner} in"
    for column, owner in GOES_WITH:
        if row.has(owner) and row.lacks(column):
            yield column, "pair", f"fill it in where {owner} is"


def check_category(row: RowView) -> Found:
    """What the category of the charge allows and asks for."""
    if row.category == values.PURCHASE and row.texts.get("ChargeFrequency") == values.USAGE_BASED:
        yield "ChargeFrequency", "frequency", "a Purchase is One-Time or Recurring"
    for column in ("PricingCategory", "PricingQuantity", "SkuId", "SkuPriceId", *UNIT_PRICES):
        if row.category == values.TAX and row.has(column):
            yield column, "null", "leave it null in a Tax row"
        elif row.is_charge and row.lacks(column):
            yield column, "not_null", f"fill it in: {row.category} rows have it"
    is_consumed = row.category == values.USAGE and row.status != values.UNUSED
    if row.has("ConsumedQuantity") and not is_consumed:
        yield "ConsumedQuantity", "null", "leave it null: only Usage that is not Unused has it"
    elif is_consumed and not row.is_correction and row.lacks("ConsumedQuantity"):
        yield "ConsumedQuantity", "not_null", "fill in what was consumed"


def check_commitment(row: RowView) -> Found:
    """Where a commitment stands behind the row."""
    is_usage = row.category == values.USAGE
    is_committed = row.texts.get("PricingCategory") == values.COMMITTED
    if is_committed and not (is_usage and row.commitment):
        yield "PricingCategory", "commitment", "Committed is for Usage with a CommitmentDiscountId"
    if is_usage and row.commitment and row.has("PricingCategory") and not is_committed:
        yield "PricingCategory", "commitment", "use Committed for usage of a commitment"
    if row.status is not None and not is_usage:
        yield "CommitmentDiscountStatus", "null", "leave it null: only Usage rows have a status"
    if is_usage and row.commitment and row.lacks("CommitmentDiscountStatus"):
        yield "CommitmentDiscountStatus", "not_null", "say whether it was Used or Unused"
    counted = bool(row.commitment) and row.category in (values.USAGE, values.PURCHASE)
    if counted and not row.is_correction and row.lacks("CommitmentDiscountQuantity"):
        yield "CommitmentDiscountQuantity", "not_null", "fill in the quantity of the commitment"
    if not counted and row.has("CommitmentDiscountQuantity"):
        yield "CommitmentDiscountQuantity", "null", "leave it null but in Usage and Purchase"
    if not row.commitment or "ResourceId" not in row.present:
        return
    resource = row.texts.get("ResourceId")
    is_own = row.category == values.PURCHASE or row.status == values.UNUSED
    if is_own and resource != row.commitment:
        yield "ResourceId", "commitment", "a bought or unused commitment is its own resource"
    if row.status == values.USED and resource == row.commitment:
        yield "ResourceId", "commitment", "name the resource that used the commitment"


def check_commitment_costs(row: RowView) -> Found:
    """Bought once, borne by the use: never both in one row."""
    if not row.commitment:
        return
    if row.category == values.PURCHASE and row.number("EffectiveCost"):
        yield "EffectiveCost", "amortised", "0 in a Purchase: its Usage rows bear the cost"
    if row.category == values.USAGE and row.number("BilledCost"):
        yield "BilledCost", "amortised", "0 in Usage of a commitment: its Purchase is billed"


def check_reservation(row: RowView) -> Found:
    """Capacity reservations: a status in Usage rows, and only with an id."""
    has_id, status = row.has("CapacityReservationId"), row.texts.get("CapacityReservationStatus")
    if has_id and row.category == values.USAGE and row.lacks("CapacityReservationStatus"):
        yield "CapacityReservationStatus", "not_null", "say whether it was Used or Unused"
    if status and row.status and status != row.status:
        yield "CapacityReservationStatus", "commitment", "equal to CommitmentDiscountStatus here"


def check_products(row: RowView) -> Found:
    """Unit price × PricingQuantity = cost, to 10⁻⁹."""
    quantity = row.number("PricingQuantity")
    if quantity is None or row.is_correction:
        return
    for price_column, cost_column in PRODUCTS:
        price, cost = row.number(price_column), row.number(cost_column)
        if price is None or cost is None:
            continue
        product = EXACT.multiply(price, quantity)
        if abs(EXACT.subtract(product, cost)) > TOLERANCE:
            message = f"{price_column} × PricingQuantity is {product:f}; correct one of the three"
            yield cost_column, "price_times_quantity", message


def check_equal_costs(row: RowView) -> Found:
    """A credit or adjustment stands alone: its four costs are one."""
    if row.category not in (values.CREDIT, values.ADJUSTMENT):
        return
    billed = row.number("BilledCost")
    for column in ("EffectiveCost", "ListCost", "ContractedCost"):
        cost = row.number(column)
        if billed is not None and cost is not None and cost != billed:
            yield column, "equal_costs", f"equal to BilledCost {billed:f} in a {row.category} row"


def check_currency(row: RowView) -> Found:
    """Where pricing and billing currency are one, so are their figures."""
    pricing = row.texts.get("PricingCurrency")
    if pricing is None or pricing != row.texts.get("BillingCurrency"):
        return
    for column, other in COMPANIONS:
        if column in row.present and row.number(column) != row.number(other):
            yield column, "currency", f"equal to {other} where the currencies are equal"


def check_service(row: RowView) -> Found:
    """A subcategory has one category."""
    subcategory = row.texts.get("ServiceSubcategory")
    parent = None if subcategory is None else values.PARENTS.get(subcategory)
    if parent and parent != row.texts.get("ServiceCategory"):
        yield "ServiceSubcategory", "parent", f"it belongs to the category {parent!r}"


def check_periods(row: RowView) -> Found:
    """Half-open and in order; corrections alone reach back into an earlier billing period."""
    get = row.texts.get
    begun, ended = get("ChargePeriodStart"), get("ChargePeriodEnd")
    opened, closed = get("BillingPeriodStart"), get("BillingPeriodEnd")
    if begun is None or ended is None or opened is None or closed is None:
        return
    if begun >= ended:
        yield "ChargePeriodEnd", "period", f"later than ChargePeriodStart {begun}"
    if opened >= closed:
        yield "BillingPeriodEnd", "period", f"later than BillingPeriodStart {opened}"
    if row.is_correction:
        if ended > opened:
            message = "null in an open period: Correction is for charges of an earlier one"
            yield "ChargeClass", "correction", message
    elif begun < opened or ended > closed:
        message = f"within the billing period {opened} to {closed}, or ChargeClass Correction"
        yield "ChargePeriodStart", "period", message


def check_own(row: RowView) -> Found:
    """Our own columns, where they are there."""
    seconds, quantity = row.number("x_GpuSeconds"), row.number("PricingQuantity")
    is_metered = row.category == values.USAGE and row.texts.get("PricingUnit") == values.GPU_HOURS
    if is_metered and seconds is not None and quantity is not None:
        hours = EXACT.divide(seconds, Decimal(HOUR_S))
        if abs(EXACT.subtract(hours, quantity)) > TOLERANCE:
            yield "x_GpuSeconds", "own", f"{quantity:f} GPU-Hours are other GPU-seconds"
    for column, allowed in OWN_VALUES:
        text = row.texts.get(column)
        if text is not None and text not in allowed:
            yield column, "enum", f"use one of: {', '.join(sorted(allowed))}"


def check_contract(row: RowView) -> Found:
    """1.4: ContractApplied and CommitmentProgramEligibilityDetails have their shapes."""
    applied = _object(row.texts.get("ContractApplied"))
    if applied is not None:
        elements = applied.get("Elements")
        if not isinstance(elements, list) or not elements:
            yield "ContractApplied", "contract", 'give a list under "Elements"'
        else:
            yield from _elements(row, elements)
    eligible = _object(row.texts.get("CommitmentProgramEligibilityDetails"))
    if eligible is not None:
        programs = eligible.get("CommitmentPrograms")
        listed = programs if isinstance(programs, list) else []
        types = [p.get("ProgramType") if isinstance(p, dict) else None for p in listed]
        name = row.texts.get("CommitmentDiscountType")
        if not types or not all(isinstance(kind, str) for kind in types):
            message = 'give "CommitmentPrograms", each with its "ProgramType"'
            yield "CommitmentProgramEligibilityDetails", "contract", message
        elif name is not None and name not in types:
            message = f"name the row's CommitmentDiscountType {name!r}, too"
            yield "CommitmentProgramEligibilityDetails", "contract", message


def _elements(row: RowView, elements: list[object]) -> Found:
    for element in elements:
        document = element if isinstance(element, dict) else {}
        missing = [k for k in ("ContractId", "ContractCommitmentId") if not document.get(k)]
        if missing:
            yield "ContractApplied", "contract", f"give each element its {missing[0]}"
        cost = document.get("ContractCommitmentAppliedCost")
        quantity = document.get("ContractCommitmentAppliedQuantity")
        if cost is None and quantity is None:
            yield "ContractApplied", "contract", "give the applied cost or the applied quantity"
        if (quantity is None) is not (document.get("ContractCommitmentAppliedUnit") is None):
            yield "ContractApplied", "contract", "a quantity has a unit, and a unit a quantity"
        is_own = row.category == values.PURCHASE and len(elements) == 1
        if is_own and document.get("ContractCommitmentId") != row.texts.get("ResourceId"):
            yield "ContractApplied", "contract", "the ContractCommitmentId is the ResourceId here"


def _object(text: str | None) -> dict[str, object] | None:
    if text is None:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None  # the rule of the cell has said it
    return document if isinstance(document, dict) else None


UNIT_PRICES = ("ListUnitPrice", "ContractedUnitPrice")
PRODUCTS = (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost"))
NEEDS = tuple((column.name, column.needs) for column in EVERY.values() if column.needs)
GOES_WITH = tuple((column.name, column.goes_with) for column in EVERY.values() if column.goes_with)
COMPANIONS = tuple((column.name, column.equals) for column in EVERY.values() if column.equals)
OWN_VALUES = (
    ("x_UsageClass", frozenset({"committed", "burst", "spot"})),
    ("x_MeterCompleteness", frozenset({"complete", "partial"})),
)
RULES: tuple[Callable[[RowView], Found], ...] = (
    check_pairs,
    check_category,
    check_commitment,
    check_commitment_costs,
    check_reservation,
    check_products,
    check_equal_costs,
    check_currency,
    check_service,
    check_periods,
    check_own,
    check_contract,
)
