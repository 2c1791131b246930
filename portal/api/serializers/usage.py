"""Usage in GPU-seconds."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


def _amount() -> serializers.IntegerField:
    return serializers.IntegerField(allow_null=True)


class UsageRowSerializer(serializers.Serializer[Any]):
    """GPU-seconds of one step and key; null where a class has no meaning."""

    start = serializers.DateTimeField(allow_null=True)
    key = serializers.CharField(allow_blank=True)
    name = serializers.CharField()
    committed = _amount()
    committed_used = serializers.IntegerField()
    burst = serializers.IntegerField()
    borrowed = _amount()
    lent = _amount()
    idle = _amount()
    pending = _amount()


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
