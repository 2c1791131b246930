"""Clusters and workloads. A kubeconfig only ever comes in."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from clusters.models import Cluster, GuardIncident, NominationWay, WorkloadState
from portal.api.serializers.base import FaultSerializer, Strict
from portal.api.serializers.budgets import ManifestSerializer

MOST_TEXT = 200_000


def _text(**options: Any) -> serializers.CharField:
    return serializers.CharField(allow_blank=True, **options)


def _moment() -> serializers.DateTimeField:
    return serializers.DateTimeField(allow_null=True)


class ClusterSerializer(serializers.Serializer[Any]):
    """A cluster in one line: what it is, whether it answers, how far its sync is."""

    slug = serializers.CharField()
    name = serializers.CharField()
    role = serializers.ChoiceField(Cluster.Role.choices)
    mode = serializers.ChoiceField(Cluster.Mode.choices)
    state = serializers.ChoiceField(Cluster.State.choices)
    is_reachable = serializers.BooleanField()
    message = _text()
    last_contact_at = _moment()
    lost_since = _moment()
    kubernetes_version = _text()
    kueue_version = _text()
    latency_ms = serializers.IntegerField(allow_null=True)
    clock_skew_s = serializers.IntegerField(allow_null=True)
    watch_age_s = serializers.IntegerField(allow_null=True)
    object_count = serializers.IntegerField()
    synced_count = serializers.IntegerField()
    failed_count = serializers.IntegerField()
    drift_count = serializers.IntegerField()
    certificate_expires_at = _moment()
    multikueue_active = _text()
    multikueue_message = _text()
    writes_enabled = serializers.BooleanField()
    blocked_reason = _text()


class ObjectSerializer(serializers.Serializer[Any]):
    """One object that the portal wants, or has, on a cluster."""

    kind = serializers.CharField()
    namespace = _text()
    name = serializers.CharField()
    state = serializers.CharField()
    message = _text()
    changed_at = serializers.DateTimeField()


class TreeGroupSerializer(serializers.Serializer[Any]):
    """The objects of one budget, account, pool or flavor."""

    title = serializers.CharField()
    subject = _text()
    objects = ObjectSerializer(many=True)


class DriftSerializer(serializers.Serializer[Any]):
    """One field that somebody else changed."""

    kind = serializers.CharField()
    namespace = _text()
    name = serializers.CharField()
    field = serializers.CharField()
    wanted = serializers.JSONField(allow_null=True)
    found = serializers.JSONField(allow_null=True)
    manager = _text()
    noticed_at = serializers.DateTimeField()
    resolved_at = _moment()
    resolution = _text()


class PreflightRowSerializer(serializers.Serializer[Any]):
    """One thing that was looked at."""

    name = serializers.CharField()
    state = serializers.CharField(help_text="ok, warn or fault")
    found = serializers.CharField()
    advice = _text()


class PreflightSerializer(serializers.Serializer[Any]):
    """Everything that was looked at, at one instant."""

    checked_at = _moment()
    rows = PreflightRowSerializer(many=True)
    modes_on_offer = serializers.ListField(child=serializers.CharField())


class ShiftSerializer(serializers.Serializer[Any]):
    """Who works on one role of a cluster."""

    role = serializers.CharField()
    holder = serializers.CharField()
    heartbeat_at = serializers.DateTimeField()
    is_alive = serializers.BooleanField()
    outcome = _text()


class NominationSerializer(serializers.Serializer[Any]):
    """How the portal nominates workers beside a live Kueue."""

    way = serializers.ChoiceField(NominationWay.Way.choices)
    label = serializers.CharField()  # type: ignore[assignment]  # Field has a label of its own
    why = serializers.CharField()
    checked_at = serializers.DateTimeField()


class IncidentSerializer(serializers.Serializer[Any]):
    """A known defect of Kueue that the guard met: what was found, what was done, and when."""

    cluster = serializers.CharField()
    defect = serializers.ChoiceField(GuardIncident.Defect.choices)
    namespace = serializers.CharField()
    name = serializers.CharField()
    uid = serializers.CharField()
    worker = _text()
    found = serializers.CharField()
    done = _text()
    state = serializers.ChoiceField(GuardIncident.State.choices)
    noticed_at = serializers.DateTimeField()
    acted_at = _moment()
    ended_at = _moment()


class ClusterDetailSerializer(serializers.Serializer[Any]):
    """A cluster with its objects, drift and preflight; ``planned`` while writing is off."""

    row = ClusterSerializer()
    server = serializers.CharField()
    context = _text()  # type: ignore[assignment]  # Field has a context of its own
    user_kind = serializers.CharField()
    ca_fingerprint = _text()
    drift_policy = serializers.ChoiceField(Cluster.DriftPolicy.choices)
    guard = serializers.ChoiceField(Cluster.Guard.choices)
    allows_local_jobs = serializers.BooleanField()
    multikueue_token_expires_at = _moment()
    kueue_configuration = serializers.DictField()
    tree = TreeGroupSerializer(many=True)
    drifts = DriftSerializer(many=True)
    preflight = PreflightSerializer()
    shifts = ShiftSerializer(many=True)
    planned = ManifestSerializer(many=True)
    nomination = NominationSerializer(allow_null=True)
    incidents = IncidentSerializer(many=True)


class KubeconfigInput(Strict):
    """A pasted kubeconfig and, where it has several contexts, which one."""

    kubeconfig = serializers.CharField(max_length=MOST_TEXT, trim_whitespace=False, write_only=True)
    context = serializers.CharField(  # type: ignore[assignment]  # as above
        max_length=200, required=False, allow_blank=True, default=""
    )


class InspectInput(Strict):
    """A pasted kubeconfig."""

    kubeconfig = serializers.CharField(max_length=MOST_TEXT, trim_whitespace=False, write_only=True)


class ClusterInput(KubeconfigInput):
    """A new cluster; the slug is for ever."""

    slug = serializers.CharField(max_length=40)
    name = serializers.CharField(max_length=120)
    role = serializers.ChoiceField(Cluster.Role.choices)
    mode = serializers.ChoiceField(Cluster.Mode.choices)
    kueue_configuration = serializers.DictField(required=False)
    allows_local_jobs = serializers.BooleanField(required=False)


class ContextSerializer(serializers.Serializer[Any]):
    """One context to choose, and what speaks against it."""

    name = serializers.CharField()
    server = _text()
    user_kind = _text()
    ca_fingerprint = _text()
    faults = FaultSerializer(many=True)


class ReportSerializer(serializers.Serializer[Any]):
    """The contexts of a kubeconfig, and what is wrong with it as a whole."""

    contexts = ContextSerializer(many=True)
    faults = FaultSerializer(many=True)


class SettingsInput(Strict):
    """One switch at a time; ``reason`` where writing stops or the mode changes."""

    name = serializers.CharField(max_length=120, required=False)
    writes_enabled = serializers.BooleanField(required=False)
    drift_policy = serializers.ChoiceField(Cluster.DriftPolicy.choices, required=False)
    guard = serializers.ChoiceField(Cluster.Guard.choices, required=False)
    mode = serializers.ChoiceField(Cluster.Mode.choices, required=False)
    allows_local_jobs = serializers.BooleanField(required=False)
    kueue_configuration = serializers.DictField(required=False)
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if len(attrs.keys() - {"reason"}) != 1:
            message = "Change exactly one setting at a time; each is checked and logged alone."
            raise serializers.ValidationError(message, code="one_at_a_time")
        return attrs


class ResolveInput(Strict):
    """Which side is right after a restored backup."""

    keep = serializers.ChoiceField(["cluster", "portal"])
    reason = serializers.CharField(max_length=500)


class DeregisterInput(Strict):
    """``abandon`` forgets a cluster that is lost for good, without cleaning up."""

    reason = serializers.CharField(max_length=500)
    abandon = serializers.BooleanField(default=False)


class DepartureSerializer(serializers.Serializer[Any]):
    """What becomes of a cluster, and what stays on it."""

    state = serializers.CharField()
    stays = serializers.ListField(child=serializers.CharField())


class TokenEndSerializer(serializers.Serializer[Any]):
    """When the new token of the multikueue identity ends."""

    expires_at = serializers.DateTimeField()


class RightsSerializer(serializers.Serializer[Any]):
    """The roles and admission policies that an admin applies on a cluster."""

    yaml = serializers.CharField()


class WorkloadSerializer(serializers.Serializer[Any]):
    """One job as it was last seen."""

    cluster = serializers.CharField()
    uid = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    job_kind = _text()
    job_name = _text()
    queue = _text()
    priority = serializers.IntegerField()
    phase = serializers.ChoiceField(WorkloadState.Phase.choices)
    reason = _text()
    message = _text()
    why = _text(help_text="Why it waits, in one sentence; empty while nothing is known of it.")
    gpu_total = serializers.IntegerField()
    gpus = serializers.DictField(
        child=serializers.IntegerField(),
        help_text='Flavor to GPUs; before admission the request stands under "".',
    )
    worker = _text()
    evictions = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    reserved_at = _moment()
    admitted_at = _moment()
    finished_at = _moment()


class MomentSerializer(serializers.Serializer[Any]):
    """One step of a job's life."""

    at = serializers.DateTimeField()
    words = serializers.CharField()
    detail = _text()


class WorkloadHoursSerializer(serializers.Serializer[Any]):
    """GPU-seconds of a job on one cluster and flavor, by class."""

    cluster = serializers.CharField()
    flavor = serializers.CharField()
    committed_used = serializers.IntegerField()
    burst = serializers.IntegerField()
    first = serializers.DateTimeField()
    last = serializers.DateTimeField()


class WorkloadDetailSerializer(serializers.Serializer[Any]):
    """A job with its time line and its copies on workers."""

    row = WorkloadSerializer()
    sentence = serializers.CharField()
    timeline = MomentSerializer(many=True)
    copies = WorkloadSerializer(many=True)
    usage = WorkloadHoursSerializer(many=True)


class BarSerializer(serializers.Serializer[Any]):
    """One flavor of a budget now, whole GPUs; never what is billed."""

    flavor = serializers.CharField()
    flavor_name = serializers.CharField()
    committed = serializers.IntegerField()
    ceiling = serializers.IntegerField()
    used = serializers.IntegerField()
    committed_used = serializers.IntegerField()
    burst = serializers.IntegerField()
    lent = serializers.IntegerField()
    pending = serializers.IntegerField()
    cap = serializers.IntegerField(allow_null=True)
    on_workers = serializers.DictField(child=serializers.IntegerField())


class PlaceSerializer(serializers.Serializer[Any]):
    """How far one cluster is behind a budget."""

    cluster = serializers.CharField()
    state = serializers.CharField()
    is_synced = serializers.BooleanField()
    words = serializers.CharField()
    generation = serializers.IntegerField(allow_null=True)
    observed_generation = serializers.IntegerField(allow_null=True)


class NowSerializer(serializers.Serializer[Any]):
    """A budget at this moment: what is held, and which clusters follow."""

    bars = BarSerializer(many=True)
    sync = PlaceSerializer(many=True)
