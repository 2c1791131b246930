"""What the rows of one charge have in common: who, when, which invoice, which commitment.

Pure. Most of it repeats from hour to hour, so it is made once and copied: what a function with a
cache returns is not to be changed.

Source: spec money, sections 2.2 and 2.3.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

from budgets.charging.rows import ChargeRow, RowKind
from budgets.exports.focus import values
from budgets.exports.focus.columns import EVERY, OWN
from budgets.exports.focus.source import PLATFORM, Commitment, FocusInput, FocusNames, WorkloadShare

Document = dict[str, Any]

SERVICE_CATEGORY, SERVICE_SUBCATEGORY = "Compute", "Containers"
COMMITMENT_TYPE = "Committed GPUs"
ELIGIBLE = json.dumps({"CommitmentPrograms": [{"ProgramType": COMMITMENT_TYPE}]})
EMPTY: Document = dict.fromkeys([*EVERY, *(column.name for column in OWN)])
_WORDS = {
    RowKind.FLOOR: "Committed GPUs of {flavor}",
    RowKind.BURST: "Burst GPUs of {flavor}",
    RowKind.LENDING_CREDIT: "Credit for committed {flavor} that others used",
    RowKind.LENDING_FUNDING: "Funding of the lending credits",
    RowKind.PREEMPTION_CREDIT: "Credit for work that was preempted",
    RowKind.PREEMPTION_FUNDING: "Funding of the preemption credits",
    RowKind.ADJUSTMENT: "Adjustment",
    RowKind.ROUNDING: "Rounding to the payable amount",
    RowKind.CORRECTION: "Correction",
}
_REPEATED = attrgetter(
    "account",
    "workspace",
    "flavor",
    "kind",
    "class_of",
    "period",
    "statement",
    "currency",
    "rate_card",
    "cluster",
    "region",
)
_MOST_KEPT = 20_000


def invoice_id(row: ChargeRow) -> str:
    """The statement's number, or a provisional id while none is issued."""
    return row.statement or f"PROVISIONAL-{row.account or PLATFORM}-{row.period}"


def corrects_earlier(row: ChargeRow, period_start: datetime) -> bool:
    """Whether it changes what an earlier period billed: a correction, or a credit note."""
    return row.kind is RowKind.CORRECTION or row.start < period_start


class Base:
    """Makes and keeps the common part of the rows, for one file."""

    def __init__(self, names: FocusNames) -> None:
        self.names = names
        self._kept: dict[tuple[object, ...], Document] = {}

    def row(self, given: FocusInput, columns: Document) -> Document:
        """A new document: the common part, the row's own time, and these columns."""
        row = given.row
        is_correction = corrects_earlier(row, self.names.periods[row.period][0])
        key = (_REPEATED(row), is_correction, given.is_complete, given.note)
        common = self._kept.get(key)
        if common is None:
            if len(self._kept) > _MOST_KEPT:
                self._kept.clear()
            common = self._kept[key] = self._made(given)
        document = common | columns
        document["ChargePeriodStart"], document["ChargePeriodEnd"] = row.start, row.end
        return document

    def name_of(self, commitment: Commitment) -> str:
        """Its CommitmentDiscountName."""
        name = self.names.workspaces.get(commitment.namespace, commitment.namespace)
        return f"{name}: committed {commitment.flavor}, revision {commitment.revision}"

    def _made(self, given: FocusInput) -> Document:
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

    def resource(self, document: Document, row: ChargeRow, share: WorkloadShare | None) -> None:
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


@lru_cache(maxsize=4_096)
def named(commitment: Commitment, name: str) -> Document:
    """The columns that name a commitment."""
    return {
        "CommitmentDiscountCategory": "Usage",
        "CommitmentDiscountId": commitment.key,
        "CommitmentDiscountName": name,
        "CommitmentDiscountType": COMMITMENT_TYPE,
        "x_BudgetRevisionId": f"{commitment.namespace}/{commitment.revision}",
        "x_UsageClass": "committed",
    }


def _own_resource(commitment: Commitment, name: str) -> Document:
    """Of a floor that is bought, used or not: it is its own resource."""
    return {
        **named(commitment, name),
        "CommitmentDiscountUnit": values.GPU_HOURS,
        "ResourceId": commitment.key,
        "ResourceName": name,
        "ResourceType": "Budget commitment",
    }


@lru_cache(maxsize=4_096)
def bought(commitment: Commitment, name: str) -> Document:
    """Columns of a bought floor."""
    return {
        **_own_resource(commitment, name),
        **_sku(f"gpu-commitment/{commitment.flavor}", "hourly", "Committed GPU time"),
        "ChargeCategory": values.PURCHASE,
        "ChargeFrequency": values.RECURRING,
        "PricingCategory": values.STANDARD,
    }


@lru_cache(maxsize=4_096)
def covered(commitment: Commitment, name: str, status: str) -> Document:
    """Columns of use, or want of use, of a floor."""
    document = {
        **_own_resource(commitment, name),
        **_sku(f"gpu/{commitment.flavor}", "on-demand", "GPU time"),
        "ChargeCategory": values.USAGE,
        "ChargeFrequency": values.USAGE_BASED,
        "CommitmentDiscountStatus": status,
        "CommitmentProgramEligibilityDetails": ELIGIBLE,
        "PricingCategory": values.COMMITTED,
    }
    if commitment.is_reserved:
        document["CapacityReservationId"] = f"{commitment.key}/reserved"
        document["CapacityReservationStatus"] = status
    return document


@lru_cache(maxsize=4_096)
def above(flavor: str, is_dynamic: bool) -> Document:
    """Columns of use above the floor."""
    return {
        **_sku(f"gpu/{flavor}", "spot" if is_dynamic else "on-demand", "GPU time"),
        "ChargeCategory": values.USAGE,
        "ChargeFrequency": values.USAGE_BASED,
        "CommitmentProgramEligibilityDetails": None if is_dynamic else ELIGIBLE,
        "PricingCategory": values.DYNAMIC if is_dynamic else values.STANDARD,
        "x_UsageClass": "spot" if is_dynamic else "burst",
    }


def _sku(sku: str, tier: str, meter: str) -> Document:
    flavor = sku.partition("/")[2]
    return {
        "SkuId": sku,
        "SkuPriceId": f"{sku}/{tier}",
        "SkuMeter": meter,
        "SkuPriceDetails": json.dumps({"GpuCount": 1, "x_ResourceFlavor": flavor}),
    }
