"""What disagrees with the ledger, and the capacity identity by hour."""

from __future__ import annotations

from rest_framework import serializers

from budgets import models
from budgets.metering import CapacityFact
from budgets.selectors.billing.reconciliation import Reconciliation
from portal.api.serializers.base import RecordSerializer, RowSerializer, Strict


class DiscrepancySerializer(RowSerializer[models.Discrepancy]):
    """Something that blocks the close until it is settled; ``end`` null: it goes on."""

    told = [
        "id", "kind", "cluster", "subject", "flavor", "start", "end", "amount", "message",
        "samples", "state", "reason", "raised_at", "cleared_at", "proposed_by", "proposed_at",
        "decided_by", "decided_at",
    ]  # fmt: skip


class AcceptanceDecision(Strict):
    """Accept, by somebody else than the proposer, or put it back."""

    approve = serializers.BooleanField(source="is_approved")


class CapacityFactSerializer(RecordSerializer[CapacityFact]):
    """One flavor on one cluster in one UTC hour, GPU-seconds.

    The parts + unexplained − over_admitted = capacity.
    """

    unexplained = serializers.IntegerField()
    tolerance = serializers.IntegerField()
    is_explained = serializers.BooleanField()


class ReconciliationSerializer(RecordSerializer[Reconciliation]):
    """One UTC day of one cluster."""

    without = ("sums",)
