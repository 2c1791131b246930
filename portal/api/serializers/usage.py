"""Usage in GPU-seconds."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from budgets.amounts import AMOUNTS


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


class FreshnessSerializer(serializers.Serializer[Any]):
    """Up to when the facts are complete."""

    complete_until = serializers.DateTimeField(allow_null=True)
    late_clusters = serializers.ListField(child=serializers.CharField())
    clusters = serializers.DictField(child=serializers.DateTimeField(allow_null=True))
    estimated = serializers.BooleanField()


class UsageSerializer(serializers.Serializer[Any]):
    """Rows that add up to the totals."""

    unit = serializers.CharField()
    rows = UsageRowSerializer(many=True)
    totals = UsageRowSerializer()
    freshness = FreshnessSerializer()


class WorkloadUsageSerializer(serializers.Serializer[Any]):
    """GPU-seconds of one workload on one cluster and flavor within the range."""

    namespace = serializers.CharField()
    cluster = serializers.CharField()
    uid = serializers.CharField()
    workload = serializers.CharField()
    flavor = serializers.CharField()
    committed_used = serializers.IntegerField()
    burst = serializers.IntegerField()
    first = serializers.DateTimeField()
    last = serializers.DateTimeField()


class LendingRowSerializer(serializers.Serializer[Any]):
    """GPU-seconds of one workspace; of the rest of them where the namespace is empty."""

    namespace = serializers.CharField(allow_blank=True)
    account = serializers.CharField(allow_blank=True)
    lent = serializers.IntegerField()
    borrowed = serializers.IntegerField()
    burst = serializers.IntegerField()


class PairSerializer(serializers.Serializer[Any]):
    """GPU-seconds lent by one workspace to another; one that you may not see has no name."""

    account = serializers.CharField()
    lender = serializers.CharField(allow_blank=True)
    borrower = serializers.CharField(allow_blank=True)
    flavor = serializers.CharField()
    lent = serializers.IntegerField()


class CoverSerializer(serializers.Serializer[Any]):
    """What covered an account's burst: burst is the sum of the other four."""

    account = serializers.CharField(allow_blank=True)
    burst = serializers.IntegerField()
    from_pool = serializers.IntegerField()
    lent = serializers.IntegerField()
    from_platform = serializers.IntegerField()
    uncovered = serializers.IntegerField()


class LendingSerializer(serializers.Serializer[Any]):
    """Borrowed and lent; ``pairs`` is null when there are too many to match."""

    unit = serializers.CharField()
    rows = LendingRowSerializer(many=True)
    others = LendingRowSerializer(allow_null=True)
    total = LendingRowSerializer()
    pairs = PairSerializer(many=True, allow_null=True)
    pairs_total = serializers.IntegerField()
    covers = CoverSerializer(many=True)
    covers_total = CoverSerializer()


class FloorAdviceSerializer(serializers.Serializer[Any]):
    """The floor, in GPUs, that would have covered the use of 95 of 100 hours."""

    committed = serializers.IntegerField()
    enough = serializers.IntegerField()
    saved_hours = serializers.IntegerField()
    hours = serializers.IntegerField()
    hours_over = serializers.IntegerField()


class IdleSumsSerializer(serializers.Serializer[Any]):
    """GPU-seconds: committed = used + lent + idle."""

    committed = serializers.IntegerField()
    committed_used = serializers.IntegerField()
    lent = serializers.IntegerField()
    idle = serializers.IntegerField()


class IdleRowSerializer(IdleSumsSerializer):
    """One floor; ``committed_now`` in GPUs, null where the budget in force names no such flavor."""

    namespace = serializers.CharField()
    flavor = serializers.CharField()
    committed_now = serializers.IntegerField(allow_null=True)
    advice = FloorAdviceSerializer(allow_null=True)


class IdleSerializer(serializers.Serializer[Any]):
    """The idlest floors, the rest as one sum, and the total of both."""

    unit = serializers.CharField()
    rows = IdleRowSerializer(many=True)
    others = IdleSumsSerializer()
    hidden = serializers.IntegerField()
    totals = IdleSumsSerializer()
    saved_hours = serializers.IntegerField()
    judged_from = serializers.DateTimeField()


class CapacityUseRowSerializer(serializers.Serializer[Any]):
    """GPU-seconds: capacity = held + not_held; null where no capacity is stated."""

    cluster = serializers.CharField(allow_blank=True)
    flavor = serializers.CharField(allow_blank=True)
    committed_used = serializers.IntegerField()
    burst = serializers.IntegerField()
    race = serializers.IntegerField()
    reserved = serializers.IntegerField()
    undecided = serializers.IntegerField()
    outside = serializers.IntegerField()
    held = serializers.IntegerField()
    not_held = serializers.IntegerField(allow_null=True)
    capacity = serializers.IntegerField(allow_null=True)


class CapacityUseSerializer(serializers.Serializer[Any]):
    """Where the capacity went, up to ``end``, the last hour that every cluster has told."""

    unit = serializers.CharField()
    start = serializers.DateTimeField(allow_null=True)
    end = serializers.DateTimeField(allow_null=True)
    rows = CapacityUseRowSerializer(many=True)
    total = CapacityUseRowSerializer(allow_null=True)
