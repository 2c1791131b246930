"""The columns of the Cost and Usage dataset, FOCUS 1.2 (57) and 1.4 (65), and our own.

Source: FOCUS 1.2 and 1.4; spec money, sections 2.1 and 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
        is_mandatory: Has to be in every file.
        is_nullable: May be null in some row.
    """

    name: str
    kind: CellKind = CellKind.TEXT
    is_mandatory: bool = False
    is_nullable: bool = True


def _columns(
    names: str, kind: CellKind = CellKind.TEXT, *, mandatory: bool = False, nullable: bool = True
) -> dict[str, FocusColumn]:
    return {name: FocusColumn(name, kind, mandatory, nullable) for name in names.split()}


_SHARED = {
    **_columns(
        "BilledCost ContractedCost EffectiveCost ListCost",
        CellKind.AMOUNT,
        mandatory=True,
        nullable=False,
    ),
    **_columns(
        "BillingAccountId BillingCurrency ChargeCategory InvoiceIssuerName ServiceCategory "
        "ServiceName",
        mandatory=True,
        nullable=False,
    ),
    **_columns("BillingAccountName ChargeClass ChargeDescription PricingUnit", mandatory=True),
    **_columns("PricingQuantity", CellKind.DECIMAL, mandatory=True),
    **_columns(
        "BillingPeriodStart BillingPeriodEnd ChargePeriodStart ChargePeriodEnd",
        CellKind.TIME,
        mandatory=True,
        nullable=False,
    ),
    **_columns("ChargeFrequency ServiceSubcategory PricingCurrency", nullable=False),
    **_columns(
        "AvailabilityZone BillingAccountType CapacityReservationId CapacityReservationStatus "
        "CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName "
        "CommitmentDiscountStatus CommitmentDiscountType CommitmentDiscountUnit ConsumedUnit "
        "InvoiceId PricingCategory RegionId RegionName ResourceId ResourceName ResourceType "
        "SkuId SkuMeter SkuPriceId SubAccountId SubAccountName SubAccountType"
    ),
    **_columns(
        "CommitmentDiscountQuantity ConsumedQuantity ContractedUnitPrice ListUnitPrice "
        "PricingCurrencyContractedUnitPrice PricingCurrencyListUnitPrice",
        CellKind.DECIMAL,
    ),
    **_columns("PricingCurrencyEffectiveCost", CellKind.AMOUNT, nullable=False),
    **_columns("SkuPriceDetails Tags", CellKind.JSON),
}
_V1_2 = {
    **_SHARED,
    **_columns("ProviderName PublisherName", mandatory=True, nullable=False),
}
_V1_4 = {
    **_SHARED,
    **_columns("ServiceProviderName HostProviderName", mandatory=True, nullable=False),
    **_columns("AllocatedMethodId AllocatedResourceId AllocatedResourceName InvoiceDetailId"),
    **_columns(
        "AllocatedMethodDetails AllocatedTags CommitmentProgramEligibilityDetails ContractApplied",
        CellKind.JSON,
    ),
}
COLUMNS: dict[Version, dict[str, FocusColumn]] = {
    Version.V1_2: dict(sorted(_V1_2.items())),
    Version.V1_4: dict(sorted(_V1_4.items())),
}
"""Column ID → column, in the alphabetical order in which they are written."""

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
# Objects within objects are allowed here; everywhere else JSON is flat.
NESTED = frozenset(
    {"AllocatedMethodDetails", "CommitmentProgramEligibilityDetails", "ContractApplied"}
)


def focus_table(version: Version, *, digits: int = 2) -> Table:
    """Return the table that is written: FOCUS columns by name, then our own.

    Args:
        version: Of the specification.
        digits: Of the billing currency, for spreadsheets.
    """
    columns = [Column(c.name, c.kind) for c in COLUMNS[version].values()]
    return Table(f"focus-{version}", (*columns, *OWN), digits)
