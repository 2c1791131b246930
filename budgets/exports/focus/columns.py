"""The columns of the Cost and Usage dataset, FOCUS 1.2 (57) and 1.4 (65), and our own: a row each.

What is written of a column, and what is checked of it and of those beside it, is read from here.

Source: FOCUS 1.2 and 1.4; spec money, sections 2.1 and 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from budgets.exports.focus import cells, values
from budgets.exports.table import CellKind, Column, Table


class Version(StrEnum):
    """The versions of FOCUS that are written and checked."""

    V1_2 = "1.2"
    V1_4 = "1.4"


@dataclass(frozen=True, slots=True)
class FocusColumn:
    """One column of the specification.

    Attributes:
        name: Column ID.
        kind: What it holds.
        of_value: What checks a value (not null); None: what all of its kind are checked by.
        is_mandatory: Has to be in every file.
        is_nullable: May be null in some row.
        needs: The column without whose value this one is null.
        goes_with: The column with whose value this one has one.
        equals: The column with the same figure, where pricing and billing currency are one.
    """

    name: str
    kind: CellKind = CellKind.TEXT
    of_value: cells.Check | None = None
    is_mandatory: bool = False
    is_nullable: bool = True
    needs: str = ""
    goes_with: str = ""
    equals: str = ""

    @property
    def check(self) -> cells.Check:
        """What checks a value (not null)."""
        return self.of_value or cells.OF_KIND[self.kind]


_AMOUNT, _DECIMAL, _TIME, _JSON = CellKind.AMOUNT, CellKind.DECIMAL, CellKind.TIME, CellKind.JSON
_text = partial(FocusColumn, kind=CellKind.TEXT)
_always = partial(FocusColumn, is_mandatory=True, is_nullable=False)
_mandatory = partial(FocusColumn, is_mandatory=True)
_filled = partial(FocusColumn, is_nullable=False)
_price = partial(FocusColumn, kind=_DECIMAL, of_value=cells.check_unsigned)
_nested = partial(FocusColumn, kind=_JSON, of_value=cells.check_object)
_used_or_not = cells.one_of({values.USED, values.UNUSED})


def _told_of(owner: str, name: str, of_value: cells.Check | None = None) -> FocusColumn:
    """A column that is filled where its owner is, and nowhere else."""
    return FocusColumn(name, of_value=of_value, needs=owner, goes_with=owner)


_SHARED = (
    _text("AvailabilityZone"),
    _always("BilledCost", _AMOUNT),
    _always("BillingAccountId"),
    _mandatory("BillingAccountName"),
    _text("BillingAccountType", goes_with="BillingAccountId"),
    _always("BillingCurrency", of_value=cells.check_currency),
    _always("BillingPeriodEnd", _TIME),
    _always("BillingPeriodStart", _TIME),
    _text("CapacityReservationId"),
    _text("CapacityReservationStatus", of_value=_used_or_not, needs="CapacityReservationId"),
    _always("ChargeCategory", of_value=cells.one_of(values.CHARGE_CATEGORIES)),
    _mandatory("ChargeClass", of_value=cells.one_of({values.CORRECTION})),
    _mandatory("ChargeDescription"),
    _filled("ChargeFrequency", of_value=cells.one_of(values.FREQUENCIES)),
    _always("ChargePeriodEnd", _TIME),
    _always("ChargePeriodStart", _TIME),
    _told_of(
        "CommitmentDiscountId", "CommitmentDiscountCategory", cells.one_of({"Spend", "Usage"})
    ),
    _text("CommitmentDiscountId"),
    _text("CommitmentDiscountName", needs="CommitmentDiscountId"),
    FocusColumn("CommitmentDiscountQuantity", _DECIMAL),
    _text("CommitmentDiscountStatus", of_value=_used_or_not, needs="CommitmentDiscountId"),
    _told_of("CommitmentDiscountId", "CommitmentDiscountType"),
    _told_of("CommitmentDiscountQuantity", "CommitmentDiscountUnit", cells.check_unit),
    FocusColumn("ConsumedQuantity", _DECIMAL),
    _told_of("ConsumedQuantity", "ConsumedUnit", cells.check_unit),
    _always("ContractedCost", _AMOUNT),
    _price("ContractedUnitPrice"),
    _always("EffectiveCost", _AMOUNT),
    _text("InvoiceId"),
    _always("InvoiceIssuerName"),
    _always("ListCost", _AMOUNT),
    _price("ListUnitPrice"),
    _text("PricingCategory", of_value=cells.one_of(values.PRICING_CATEGORIES)),
    _filled("PricingCurrency", of_value=cells.check_currency),
    _price("PricingCurrencyContractedUnitPrice", equals="ContractedUnitPrice"),
    _filled("PricingCurrencyEffectiveCost", _AMOUNT, equals="EffectiveCost"),
    _price("PricingCurrencyListUnitPrice", equals="ListUnitPrice"),
    _mandatory("PricingQuantity", _DECIMAL),
    _mandatory(
        "PricingUnit",
        of_value=cells.check_unit,
        needs="PricingQuantity",
        goes_with="PricingQuantity",
    ),
    _text("RegionId"),
    _told_of("RegionId", "RegionName"),
    _text("ResourceId"),
    _text("ResourceName", needs="ResourceId"),
    _told_of("ResourceId", "ResourceType"),
    _always("ServiceCategory", of_value=cells.one_of(values.SERVICES)),
    _always("ServiceName"),
    _filled("ServiceSubcategory", of_value=cells.one_of(values.PARENTS)),
    _text("SkuId"),
    _told_of("SkuId", "SkuMeter"),
    FocusColumn("SkuPriceDetails", _JSON, cells.check_price_details, needs="SkuPriceId"),
    _text("SkuPriceId", needs="SkuId"),
    _text("SubAccountId"),
    _told_of("SubAccountId", "SubAccountName"),
    _told_of("SubAccountId", "SubAccountType"),
    FocusColumn("Tags", _JSON),
)
_ONLY = {
    Version.V1_2: (_always("ProviderName"), _always("PublisherName")),
    Version.V1_4: (
        _nested("AllocatedMethodDetails", needs="AllocatedMethodId"),
        _text("AllocatedMethodId"),
        _text("AllocatedResourceId"),
        _text("AllocatedResourceName", needs="AllocatedResourceId"),
        FocusColumn("AllocatedTags", _JSON),
        _nested("CommitmentProgramEligibilityDetails"),
        _nested("ContractApplied"),
        _always("HostProviderName"),
        _told_of("InvoiceId", "InvoiceDetailId"),
        _always("ServiceProviderName"),
    ),
}
COLUMNS: dict[Version, dict[str, FocusColumn]] = {
    version: {row.name: row for row in sorted((*_SHARED, *only), key=lambda row: row.name)}
    for version, only in _ONLY.items()
}
"""Column ID → column, in the alphabetical order in which they are written."""
EVERY = {name: column for columns in COLUMNS.values() for name, column in columns.items()}

OWN = (
    Column("x_BudgetRevisionId", CellKind.TEXT, "Revision of the budget that was in force."),
    Column("x_Cluster", CellKind.TEXT, "Worker cluster, where the row belongs to one."),
    Column("x_Cohort", CellKind.TEXT, "Kueue cohort: that of the account."),
    Column("x_GpuSeconds", CellKind.INTEGER, "The quantity as the meter counts it."),
    Column("x_MeterCompleteness", CellKind.TEXT, "complete, or partial until a cluster reports."),
    Column("x_RateCardId", CellKind.TEXT, "Version of the rate card with the price."),
    Column("x_ResourceFlavor", CellKind.TEXT, "Kueue ResourceFlavor."),
    Column("x_UsageClass", CellKind.TEXT, "committed, burst or spot."),
    Column("x_WorkloadUid", CellKind.TEXT, "UID of the Workload that used it."),
)


def focus_table(version: Version, *, digits: int = 2) -> Table:
    """Return the table that is written: FOCUS columns by name, then our own.

    Args:
        version: Of the specification.
        digits: Of the billing currency, for spreadsheets.
    """
    columns = [Column(c.name, c.kind) for c in COLUMNS[version].values()]
    return Table(f"focus-{version}", (*columns, *OWN), digits)
