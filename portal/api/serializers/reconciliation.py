"""What disagrees with the ledger, and the capacity identity by hour."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from budgets import models
from budgets.metering import CapacityFact
from portal.api.serializers.base import Strict, name_of


class DiscrepancySerializer(serializers.ModelSerializer[models.Discrepancy]):
    """Something that blocks the close until it is settled; ``end`` null: it goes on."""

    proposed_by = name_of("proposed_by.username")
    decided_by = name_of("decided_by.username")

    class Meta:
        model = models.Discrepancy
        fields = [
            "id",
            "kind",
            "cluster",
            "subject",
            "flavor",
            "start",
            "end",
            "amount",
            "message",
            "samples",
            "state",
            "reason",
            "raised_at",
            "cleared_at",
            "proposed_by",
            "proposed_at",
            "decided_by",
            "decided_at",
        ]


class AcceptanceDecision(Strict):
    """Accept, by somebody else than the proposer, or put it back."""

    approve = serializers.BooleanField()


class CapacityFactSerializer(serializers.Serializer[CapacityFact]):
    """One flavor on one cluster in one UTC hour, GPU-seconds.

    The parts + unexplained − over_admitted = capacity.
    """

    hour = serializers.DateTimeField()
    cluster = serializers.CharField()
    flavor = serializers.CharField()
    measured_s = serializers.IntegerField()
    committed_used = serializers.IntegerField()
    burst = serializers.IntegerField()
    race = serializers.IntegerField()
    undecided = serializers.IntegerField()
    outside = serializers.IntegerField()
    starting = serializers.IntegerField()
    free = serializers.IntegerField()
    down = serializers.IntegerField()
    over_admitted = serializers.IntegerField()
    unexplained = serializers.IntegerField()
    tolerance = serializers.IntegerField()
    capacity = serializers.IntegerField()
    by_pods = serializers.BooleanField()
    is_explained = serializers.BooleanField()


class ReconciliationSerializer(serializers.Serializer[Any]):
    """One UTC day of one cluster."""

    cluster = serializers.CharField()
    day = serializers.DateField()
    clusters = serializers.ListField(child=serializers.CharField())
    known_until = serializers.DateTimeField(allow_null=True)
    gaps = serializers.ListField(child=serializers.CharField())
    facts = CapacityFactSerializer(many=True)
