"""Usage in GPU-seconds."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from budgets import selectors
from budgets.amounts import AMOUNTS
from budgets.metering import FloorAdvice
from portal.api.serializers.base import RecordSerializer


class UsageRowSerializer(serializers.Serializer[Any]):
    """GPU-seconds of one step and key; null where a class has no meaning."""

    start = serializers.DateTimeField(allow_null=True)
    key = serializers.CharField(allow_blank=True)
    name = serializers.CharField()

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        amounts = {
            amount.name: serializers.IntegerField(allow_null=not amount.is_held)
            for amount in AMOUNTS
        }
        return {**super().get_fields(), **amounts}


class FreshnessSerializer(RecordSerializer[selectors.Freshness]):
    """Up to when the facts are complete."""


class UsageSerializer(serializers.Serializer[Any]):
    """Rows that add up to the totals."""

    unit = serializers.CharField()
    rows = UsageRowSerializer(many=True)
    totals = UsageRowSerializer()
    freshness = FreshnessSerializer()


class WorkloadUsageSerializer(RecordSerializer[selectors.WorkloadUsageRow]):
    """GPU-seconds of one workload on one cluster and flavor within the range."""


class LendingRowSerializer(RecordSerializer[selectors.LendingRow]):
    """GPU-seconds of one workspace; of the rest of them where the namespace is empty."""


class PairSerializer(RecordSerializer[selectors.PairRow]):
    """GPU-seconds lent by one workspace to another; one that you may not see has no name."""


class CoverSerializer(RecordSerializer[selectors.CoverRow]):
    """What covered an account's burst: burst is the sum of the other four."""


class LendingSerializer(RecordSerializer[selectors.Lending]):
    """Borrowed and lent; ``pairs`` is null when there are too many to match."""

    unit = serializers.CharField()


class FloorAdviceSerializer(RecordSerializer[FloorAdvice]):
    """The floor, in GPUs, that would have covered the use of 95 of 100 hours."""


class IdleSumsSerializer(serializers.Serializer[Any]):
    """GPU-seconds: committed = used + lent + idle."""

    committed = serializers.IntegerField()
    committed_used = serializers.IntegerField()
    lent = serializers.IntegerField()
    idle = serializers.IntegerField()


class IdleRowSerializer(RecordSerializer[selectors.IdleRow]):
    """One floor; ``committed_now`` in GPUs, null where the budget in force names no such flavor."""


class IdleSerializer(RecordSerializer[selectors.IdleTable]):
    """The idlest floors, the rest as one sum, and the total of both."""

    unit = serializers.CharField()
    others = IdleSumsSerializer()
    totals = IdleSumsSerializer()


class CapacityUseRowSerializer(RecordSerializer[selectors.CapacityRow]):
    """GPU-seconds: capacity = held + not_held; null where no capacity is stated."""

    held = serializers.IntegerField()
    not_held = serializers.IntegerField(allow_null=True)


class CapacityUseSerializer(RecordSerializer[selectors.CapacityUse]):
    """Where the capacity went, up to ``end``, the last hour that every cluster has told."""

    unit = serializers.CharField()
    start = serializers.DateTimeField(allow_null=True)
    end = serializers.DateTimeField(allow_null=True)
    total = CapacityUseRowSerializer(allow_null=True)
