"""What the rows of one charge have in common: who, when, which invoice, which commitment.

Pure. Most of it repeats from hour to hour, so it is made once and copied.

Source: spec money, sections 2.2 and 2.3.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import Any

from budgets.charging.rows import ChargeRow, RowKind
from budgets.exports.focus import values
from budgets.exports.focus.columns import COLUMNS, OWN, Version
from budgets.exports.focus.source import (
    PLATFORM,
    Commitment,
    FocusInput,
    Names,
    WorkloadShare,
)

SERVICE_CATEGORY, SERVICE_SUBCATEGORY = "Compute", "Containers"
COMMITMENT_TYPE = "Committed GPUs"
ELIGIBLE = json.dumps({"CommitmentPrograms": [{"ProgramType": COMMITMENT_TYPE}]})
EMPTY: dict[str, Any] = dict.fromkeys(
    [*COLUMNS[Version.V1_2], *COLUMNS[Version.V1_4], *(column.name for column in OWN)]
)
_WORDS = {
    RowKind.FLOOR: "Committed floor of {flavor}",
    RowKind.BURST: "{flavor} above the committed floor",
    RowKind.LENDING_CREDIT: "Credit for committed {flavor} that others used",
    RowKind.LENDING_FUNDING: "Funding of the lending credits",
    RowKind.PREEMPTION_CREDIT: "Credit for work that was preempted",
    RowKind.PREEMPTION_FUNDING: "Funding of the preemption credits",
    RowKind.ADJUSTMENT: "Adjustment",
    RowKind.ROUNDING: "Rounding to the payable amount",
    RowKind.CORRECTION: "Correction",
}


def invoice_id(row: ChargeRow) -> str:
    """The statement's number, or a provisional id while none is issued."""
    return row.statement or f"PROVISIONAL-{row.account or PLATFORM}-{row.period}"


def corrects_earlier(row: ChargeRow, period_start: datetime) -> bool:
    """Whether it changes what an earlier period billed: a correction, or a credit note."""
    return row.kind is RowKind.CORRECTION or row.start < period_start


class Base:
    """Makes and keeps the common part of the rows, for one file."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._kept: dict[tuple[object, ...], dict[str, Any]] = {}
        self._commitments: dict[Commitment, dict[str, Any]] = {}
        self._bursts: dict[tuple[str, bool], dict[str, Any]] = {}
        self._covered: dict[tuple[Commitment, str], dict[str, Any]] = {}

    def common(self, given: FocusInput) -> dict[str, Any]:
        """The part that does not depend on hour and quantity; not to be changed."""
        row = given.row
        key = (
            row.account,
            row.workspace,
            row.flavor,
            row.kind,
            row.class_of,
            row.period,
            row.statement,
            row.currency,
            row.rate_card,
            row.cluster,
            row.region,
            corrects_earlier(row, self.names.periods[row.period][0]),
            given.is_complete,
            given.note,
        )
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) > 20_000:
                self._kept.clear()
            found = self._kept[key] = self._made(given)
        return found

    def _made(self, given: FocusInput) -> dict[str, Any]:
        row, names = given.row, self.names
        start, end = names.periods[row.period]
        account = row.account or PLATFORM
        invoice = invoice_id(row)
        is_correction = corrects_earlier(row, start)
        words = _WORDS[row.class_of or row.kind]
        text = words.format(flavor=row.flavor or "all flavors")
        document = {
            **EMPTY,
            "BillingAccountId": account,
            "BillingAccountName": names.accounts.get(account, account),
            "BillingAccountType": "Account",
            "BillingCurrency": row.currency,
            "BillingPeriodStart": start,
            "BillingPeriodEnd": end,
            "ChargeClass": values.CORRECTION if is_correction else None,
            "ChargeDescription": f"Correction: {text}" if is_correction else given.note or text,
            "InvoiceId": invoice,
            "InvoiceDetailId": "/".join(
                (invoice, row.workspace or "account", row.flavor or "all", row.kind.value)
            ),
            "InvoiceIssuerName": names.provider,
            "PricingCurrency": row.currency,
            "ProviderName": names.provider,
            "PublisherName": names.provider,
            "ServiceProviderName": names.provider,
            "HostProviderName": names.hosts.get(row.cluster, names.provider),
            "ServiceCategory": SERVICE_CATEGORY,
            "ServiceSubcategory": SERVICE_SUBCATEGORY,
            "ServiceName": names.service,
            "RegionId": row.region or row.cluster or None,
            "RegionName": row.region or row.cluster or None,
            "x_Cluster": row.cluster or None,
            "x_Cohort": row.account or None,
            "x_MeterCompleteness": "complete" if given.is_complete else "partial",
            "x_RateCardId": str(row.rate_card) if row.rate_card else None,
            "x_ResourceFlavor": row.flavor or None,
        }
        if row.workspace:
            document["SubAccountId"] = row.workspace
            document["SubAccountName"] = names.workspaces.get(row.workspace, row.workspace)
            document["SubAccountType"] = "Workspace"
            document["Tags"] = json.dumps({"gpu-budget/workspace": row.workspace})
        return document

    def commitment(self, commitment: Commitment) -> dict[str, Any]:
        """The columns that name a commitment; not to be changed."""
        found = self._commitments.get(commitment)
        if found is None:
            name = self.names.workspaces.get(commitment.namespace, commitment.namespace)
            found = self._commitments[commitment] = {
                "CommitmentDiscountCategory": "Usage",
                "CommitmentDiscountId": commitment.key,
                "CommitmentDiscountName": f"{name}: committed {commitment.flavor}, "
                f"revision {commitment.revision}",
                "CommitmentDiscountType": COMMITMENT_TYPE,
                "x_BudgetRevisionId": f"{commitment.namespace}/{commitment.revision}",
                "x_UsageClass": "committed",
            }
        return found

    def purchase(self, commitment: Commitment) -> dict[str, Any]:
        """Columns of a bought floor; not to be changed."""
        found = self._covered.get((commitment, ""))
        if found is None:
            found = self._covered[commitment, ""] = self._bought(commitment)
        return found

    def _bought(self, commitment: Commitment) -> dict[str, Any]:
        return {
            **self.commitment(commitment),
            **self._as_resource(commitment),
            **_sku(f"gpu-commitment/{commitment.flavor}", "hourly", "Committed GPU time"),
            "ChargeCategory": values.PURCHASE,
            "ChargeFrequency": values.RECURRING,
            "CommitmentDiscountUnit": values.GPU_HOURS,
            "PricingCategory": values.STANDARD,
        }

    def covered(self, commitment: Commitment, *, status: str) -> dict[str, Any]:
        """Columns of use, or want of use, of a floor; not to be changed."""
        found = self._covered.get((commitment, status))
        if found is None:
            found = self._covered[commitment, status] = self._used(commitment, status)
        return found

    def _used(self, commitment: Commitment, status: str) -> dict[str, Any]:
        document = {
            **self.commitment(commitment),
            **self._as_resource(commitment),
            **_sku(f"gpu/{commitment.flavor}", "on-demand", "GPU time"),
            "ChargeCategory": values.USAGE,
            "ChargeFrequency": values.USAGE_BASED,
            "CommitmentDiscountStatus": status,
            "CommitmentDiscountUnit": values.GPU_HOURS,
            "CommitmentProgramEligibilityDetails": ELIGIBLE,
            "PricingCategory": values.COMMITTED,
        }
        if commitment.is_reserved:
            document["CapacityReservationId"] = f"{commitment.key}/reserved"
            document["CapacityReservationStatus"] = status
        return document

    def _as_resource(self, commitment: Commitment) -> dict[str, Any]:
        return {
            "ResourceId": commitment.key,
            "ResourceName": self.commitment(commitment)["CommitmentDiscountName"],
            "ResourceType": "Budget commitment",
        }

    def burst(self, given: FocusInput) -> dict[str, Any]:
        """Columns of use above the floor; not to be changed."""
        key = (given.row.flavor, given.is_dynamic)
        found = self._bursts.get(key)
        if found is None:
            found = self._bursts[key] = self._above(given)
        return found

    def _above(self, given: FocusInput) -> dict[str, Any]:
        tier = "spot" if given.is_dynamic else "on-demand"
        return {
            **_sku(f"gpu/{given.row.flavor}", tier, "GPU time"),
            "ChargeCategory": values.USAGE,
            "ChargeFrequency": values.USAGE_BASED,
            "CommitmentProgramEligibilityDetails": None if given.is_dynamic else ELIGIBLE,
            "PricingCategory": values.DYNAMIC if given.is_dynamic else values.STANDARD,
            "x_UsageClass": "spot" if given.is_dynamic else "burst",
        }

    def plain(self, given: FocusInput, kind: RowKind) -> dict[str, Any]:
        """Columns of a credit or an adjustment."""
        is_lending = kind is RowKind.LENDING_CREDIT
        is_credit = is_lending or given.is_goodwill or kind is RowKind.PREEMPTION_CREDIT
        named = {}
        if is_lending and given.commitment is not None:
            named = self.commitment(given.commitment)
        return {
            **named,
            "ChargeCategory": values.CREDIT if is_credit else values.ADJUSTMENT,
            "ChargeFrequency": values.ONE_TIME,
            "x_GpuSeconds": given.row.gpu_seconds if is_lending else None,
        }

    def resource(
        self, document: dict[str, Any], row: ChargeRow, share: WorkloadShare | None
    ) -> None:
        """Say what used the GPUs: the workload, or the queue where no workload is known."""
        if share is None:
            document["ResourceId"] = f"queue/{row.workspace}"
            document["ResourceName"] = row.workspace
            document["ResourceType"] = "Queue"
            return
        document["ResourceId"] = f"workload/{share.cluster}/{share.uid}"
        document["ResourceName"] = share.name
        document["ResourceType"] = "Workload"
        document["x_WorkloadUid"] = share.uid
        document["x_Cluster"] = share.cluster
        document["HostProviderName"] = self.names.hosts.get(share.cluster, self.names.provider)
        if not row.region:
            document["RegionId"] = document["RegionName"] = share.cluster

    def contract(self, document: dict[str, Any], commitment: Commitment) -> None:
        """Apply the row's commitment quantity to the contract: the workspace's budget."""
        document["ContractApplied"] = (
            f'{{"Elements":[{{"ContractId":"{commitment.contract}",'
            f'"ContractCommitmentId":"{commitment.key}",'
            f'"ContractCommitmentAppliedQuantity":{document["CommitmentDiscountQuantity"]:f},'
            f'"ContractCommitmentAppliedUnit":"{values.GPU_HOURS}"}}]}}'
        )


def base_row(base: Base, given: FocusInput) -> dict[str, Any]:
    """A new document with the common part and the row's own time."""
    document = base.common(given).copy()
    document["ChargePeriodStart"] = given.row.start
    document["ChargePeriodEnd"] = given.row.end
    return document


@lru_cache(maxsize=1_024)
def _sku(sku: str, tier: str, meter: str) -> dict[str, Any]:
    flavor = sku.partition("/")[2]
    return {
        "SkuId": sku,
        "SkuPriceId": f"{sku}/{tier}",
        "SkuMeter": meter,
        "SkuPriceDetails": json.dumps({"GpuCount": 1, "x_ResourceFlavor": flavor}),
    }
