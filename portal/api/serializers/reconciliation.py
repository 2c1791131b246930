"""What disagrees with the ledger, and the capacity identity by hour."""

from __future__ import annotations

from rest_framework import serializers

from budgets import models
from budgets.metering import CapacityFact
from budgets.selectors.billing.reconciliation import Reconciliation
from portal.api.serializers.base import RecordSerializer, Strict, name_of


class DiscrepancySerializer(serializers.ModelSerializer[models.Discrepancy]):
    """Something that blocks the close until it is settled; ``end`` null: it goes on."""

    proposed_by = name_of("proposed_by.username")
    decided_by = name_of("decided_by.username")

    class Meta:
        model = models.Discrepancy
        fields = [
            "id", "kind", "cluster", "subject", "flavor", "start", "end", "amount", "message",
            "samples", "state", "reason", "raised_at", "cleared_at", "proposed_by", "proposed_at",
            "decided_by", "decided_at",
        ]  # fmt: skip


class AcceptanceDecision(Strict):
    """Accept, by somebody else than the proposer, or put it back."""

    approve = serializers.BooleanField(source="is_approved")


class CapacityFactSerializer(RecordSerializer):
    """One flavor on one cluster in one UTC hour, GPU-seconds.

    The parts + unexplained − over_admitted = capacity.
    """

    record = CapacityFact
    unexplained = serializers.IntegerField()
    tolerance = serializers.IntegerField()
    is_explained = serializers.BooleanField()


class ReconciliationSerializer(RecordSerializer):
    """One UTC day of one cluster."""

    record = Reconciliation
    without = ("sums",)
