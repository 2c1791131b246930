"""Clusters and workloads. A kubeconfig only ever comes in."""

from __future__ import annotations

from functools import partial
from typing import Any

from rest_framework import serializers

from clusters.models import Cluster, GuardIncident, NominationWay, WorkloadState
from clusters.selectors.bars import BudgetBar
from clusters.selectors.cluster_detail import (
    ClusterDetail,
    DriftRow,
    ObjectRow,
    ShiftRow,
    StoredPreflight,
    StoredRow,
    TreeGroup,
)
from clusters.selectors.fleet import ClusterRow, visible_clusters
from clusters.selectors.guard import IncidentRow, NominationRow
from clusters.selectors.sync import SyncPlace
from clusters.selectors.workload_detail import TimelineEntry, WorkloadDetail, WorkloadHours
from clusters.selectors.workloads import WorkloadRow
from clusters.services.inspection import ContextRow, KubeconfigReport
from clusters.services.registration import Departure
from portal.api.serializers.base import NamedField, RecordSerializer, Strict
from portal.api.serializers.budgets import ManifestSerializer

MOST_TEXT = 200_000


cluster_field = partial(NamedField, visible_clusters, "slug", max_length=40)


class ClusterSerializer(RecordSerializer[ClusterRow]):
    """A cluster in one line: what it is, whether it answers, how far its sync is."""

    without = ("mode_label",)
    role = serializers.ChoiceField(Cluster.Role.choices)
    mode = serializers.ChoiceField(Cluster.Mode.choices)
    state = serializers.ChoiceField(Cluster.State.choices)


class ObjectSerializer(RecordSerializer[ObjectRow]):
    """One object that the portal wants, or has, on a cluster."""


class TreeGroupSerializer(RecordSerializer[TreeGroup]):
    """The objects of one budget, account, pool or flavor."""


class DriftSerializer(RecordSerializer[DriftRow]):
    """One field that somebody else changed."""


class PreflightRowSerializer(RecordSerializer[StoredRow]):
    """One thing that was looked at."""

    state = serializers.CharField(help_text="ok, warn or fault")


class PreflightSerializer(RecordSerializer[StoredPreflight]):
    """Everything that was looked at, at one instant."""


class ShiftSerializer(RecordSerializer[ShiftRow]):
    """Who works on one role of a cluster."""


class NominationSerializer(RecordSerializer[NominationRow]):
    """How the portal nominates workers beside a live Kueue."""

    way = serializers.ChoiceField(NominationWay.Way.choices)


class IncidentSerializer(RecordSerializer[IncidentRow]):
    """A known defect of Kueue that the guard met: what was found, what was done, and when."""

    without = ("label", "state_label")
    defect = serializers.ChoiceField(GuardIncident.Defect.choices)
    state = serializers.ChoiceField(GuardIncident.State.choices)


class ClusterDetailSerializer(RecordSerializer[ClusterDetail]):
    """A cluster with its objects, drift and preflight; ``planned`` while writing is off."""

    without = ("dispatch", "under_way")
    drift_policy = serializers.ChoiceField(Cluster.DriftPolicy.choices)
    guard = serializers.ChoiceField(Cluster.Guard.choices)
    planned = ManifestSerializer(many=True)


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


class ContextSerializer(RecordSerializer[ContextRow]):
    """One context to choose, and what speaks against it."""

    without = ("is_current",)


class ReportSerializer(RecordSerializer[KubeconfigReport]):
    """The contexts of a kubeconfig, and what is wrong with it as a whole."""

    without = ("current",)


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


class DepartureSerializer(RecordSerializer[Departure]):
    """What becomes of a cluster, and what stays on it."""


class TokenEndSerializer(serializers.Serializer[Any]):
    """When the new token of the multikueue identity ends."""

    expires_at = serializers.DateTimeField()


class RightsSerializer(serializers.Serializer[Any]):
    """The roles and admission policies that an admin applies on a cluster."""

    yaml = serializers.CharField()


class WorkloadSerializer(RecordSerializer[WorkloadRow]):
    """One job as it was last seen."""

    without = ("phase_label", "flavors", "is_remote_copy")
    phase = serializers.ChoiceField(WorkloadState.Phase.choices)
    why = serializers.CharField(
        allow_blank=True,
        help_text="Why it waits, in one sentence; empty while nothing is known of it.",
    )
    gpus = serializers.DictField(
        child=serializers.IntegerField(),
        help_text='Flavor to GPUs; before admission the request stands under "".',
    )


class MomentSerializer(RecordSerializer[TimelineEntry]):
    """One step of a job's life."""


class WorkloadHoursSerializer(RecordSerializer[WorkloadHours]):
    """GPU-seconds of a job on one cluster and flavor, by class."""


class WorkloadDetailSerializer(RecordSerializer[WorkloadDetail]):
    """A job with its time line and its copies on workers."""

    usage = WorkloadHoursSerializer(many=True)


class BarSerializer(RecordSerializer[BudgetBar]):
    """One flavor of a budget now, whole GPUs; never what is billed."""


class PlaceSerializer(RecordSerializer[SyncPlace]):
    """How far one cluster is behind a budget."""

    generation = serializers.IntegerField(allow_null=True)
    observed_generation = serializers.IntegerField(allow_null=True)


class NowSerializer(serializers.Serializer[Any]):
    """A budget at this moment: what is held, and which clusters follow."""

    bars = BarSerializer(many=True)
    sync = PlaceSerializer(many=True)
