"""Why a job waits, when it may start, and what-if."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

from clusters.explaining.stops import StopSource
from clusters.forecasting import Confidence
from portal.api.serializers.base import Strict


def _text(**options: Any) -> serializers.CharField:
    return serializers.CharField(allow_blank=True, **options)


def _moment() -> serializers.DateTimeField:
    return serializers.DateTimeField(allow_null=True)


class FlavorFindingSerializer(serializers.Serializer[Any]):
    """One flavor that was tried."""

    flavor = serializers.CharField()
    words = serializers.CharField()


class HolderSerializer(serializers.Serializer[Any]):
    """Who holds what is lacking; others' jobs stand together under what they may be called."""

    name = serializers.CharField()
    amounts = _text()
    protection = _text()
    since = _moment()


class CheckSerializer(serializers.Serializer[Any]):
    """One admission check."""

    name = serializers.CharField()
    state = serializers.CharField()
    message = _text()


class StopSerializer(serializers.Serializer[Any]):
    """Something that holds the whole queue."""

    kind = serializers.ChoiceField([item.value for item in StopSource], source="source")
    what = _text(help_text="The person, the cap or the place that is under maintenance.")
    since = _moment()
    until = _moment()
    note = _text(help_text="The reason that a person gave.")
    keeper = _text(help_text="Who may end it before; empty for nobody.")


class ExplainedSerializer(serializers.Serializer[Any]):
    """The evidence of one cluster."""

    sentence = serializers.CharField()
    reason = _text()
    message = _text()
    position = serializers.IntegerField(help_text="1 is next; 0 when it stands in no queue.")
    waiting = serializers.IntegerField()
    is_parked = serializers.BooleanField()
    flavors = FlavorFindingSerializer(many=True)
    holders = HolderSerializer(many=True)
    holders_more = serializers.IntegerField()
    checks = CheckSerializer(many=True)
    stops = StopSerializer(many=True, help_text="The strongest first; each of them has to go.")
    remedies = serializers.ListField(child=serializers.CharField())


class PlaceWhySerializer(serializers.Serializer[Any]):
    """Why a worker has not taken a job that has quota."""

    cluster = serializers.CharField()
    words = serializers.CharField()
    detail = ExplainedSerializer(allow_null=True)


class StartForecastSerializer(serializers.Serializer[Any]):
    """When a job is likely to start: a range, or why there is none."""

    confidence = serializers.ChoiceField([item.value for item in Confidence])
    earliest = _moment()
    latest = _moment()
    coverage = serializers.FloatField(
        help_text="Share of such forecasts that hold; 0 when it is unknown."
    )
    runs = serializers.IntegerField(
        help_text="Recorded runs behind it; 0 where others' jobs are among them."
    )
    why_unknown = _text()


class WhySerializer(serializers.Serializer[Any]):
    """Why a job waits."""

    is_waiting = serializers.BooleanField()
    sentence = _text()
    cluster = serializers.CharField()
    since = _moment()
    is_stale = serializers.BooleanField(help_text="The cluster's worker is not running.")
    detail = ExplainedSerializer(allow_null=True)
    places = PlaceWhySerializer(many=True)
    forecast = StartForecastSerializer(allow_null=True)


class WhatIfInput(Strict):
    """A question; which fields it needs depends on ``change``."""

    NEEDS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "raise": ("workspace", "flavor", "by"),
        "add": ("cluster", "flavor", "by"),
        "drain": ("cluster",),
    }
    ONLY_ADDED: ClassVar[tuple[str, ...]] = ("account", "pool")

    change = serializers.ChoiceField(["raise", "add", "drain"])
    workspace = serializers.CharField(required=False, help_text="Namespace; for raise.")
    cluster = serializers.CharField(required=False, help_text="A worker; for add and drain.")
    flavor = serializers.CharField(required=False)
    by = serializers.IntegerField(
        required=False, help_text="Whole GPUs, not 0; raise takes negative numbers, too."
    )
    account = serializers.CharField(required=False, help_text="Who gets added nodes, or")
    pool = serializers.CharField(required=False, help_text="the platform pool that gets them.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        needed = self.NEEDS[attrs["change"]]
        known = (*needed, *(self.ONLY_ADDED if attrs["change"] == "add" else ()), "change")
        faults = {
            name: [ErrorDetail(f"{attrs['change']} needs it.", "required")]
            for name in needed
            if name not in attrs
        }
        faults |= {
            name: [ErrorDetail(f"{attrs['change']} has no such field.", "unknown_field")]
            for name in attrs
            if name not in known
        }
        if faults:
            raise serializers.ValidationError(faults)
        return attrs


class JobOutcomeSerializer(serializers.Serializer[Any]):
    """What becomes of a job; others' jobs stand together under what they may be called."""

    name = serializers.CharField()
    amounts = _text()
    why = _text()


class CapacityChangeSerializer(serializers.Serializer[Any]):
    """Whose largest reach changes."""

    name = serializers.CharField()
    amounts = serializers.CharField()
    is_loss = serializers.BooleanField()


class WhatIfAnswerSerializer(serializers.Serializer[Any]):
    """What one cluster's engine says; counts are of all jobs for platform roles, else of own."""

    headline = serializers.CharField()
    started = JobOutcomeSerializer(many=True)
    preempted = JobOutcomeSerializer(many=True)
    stopped = JobOutcomeSerializer(many=True)
    started_count = serializers.IntegerField()
    preempted_count = serializers.IntegerField()
    stopped_count = serializers.IntegerField()
    capacity = CapacityChangeSerializer(many=True)
    took_ms = serializers.IntegerField()
    is_settled = serializers.BooleanField()


class QuestionSerializer(serializers.Serializer[Any]):
    """One cluster's part of a question."""

    id = serializers.UUIDField()
    cluster = serializers.CharField()
    state = serializers.ChoiceField(["waiting", "answered", "refused", "silent"])
    problem = _text()
    answer = WhatIfAnswerSerializer(allow_null=True)


class WhatIfSerializer(serializers.Serializer[Any]):
    """A question on its way: one part for each cluster; read each until it does not wait."""

    notes = serializers.ListField(
        child=serializers.CharField(), help_text="Why it could not be saved as it is."
    )
    questions = QuestionSerializer(many=True)


class SideSerializer(serializers.Serializer[Any]):
    """What one of the two said."""

    decision = _text()
    cluster_queue = _text()
    flavors = serializers.ListField(child=serializers.CharField())
    reason = _text()
    message = _text()


class DifferenceSerializer(serializers.Serializer[Any]):
    """One workload about which Kueue and the engine do not agree."""

    namespace = serializers.CharField()
    name = serializers.CharField()
    uid = serializers.CharField()
    kind = serializers.CharField()
    portal = SideSerializer()
    kueue = SideSerializer()
    count = serializers.IntegerField()
    first_seen_at = serializers.DateTimeField()
    seen_at = serializers.DateTimeField()


class ShadowReportSerializer(serializers.Serializer[Any]):
    """Decisions of Kueue on one cluster, compared with the engine's; the newest differences."""

    compared = serializers.IntegerField(allow_null=True)
    different = serializers.IntegerField()
    passed_over = serializers.IntegerField()
    since = _moment()
    rows = DifferenceSerializer(many=True)
