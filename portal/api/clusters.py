"""Clusters: register, inspect, switch, let go. What comes in as a kubeconfig never goes out."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

from budgets.models import Operation, User
from clusters import selectors as seen
from clusters import services as enforcement
from clusters.models import Cluster, GuardIncident, NominationWay
from clusters.selectors.cluster_detail import (
    ClusterDetail,
    DriftRow,
    Leaving,
    ObjectRow,
    PreflightRow,
    ShiftRow,
    StoredPreflight,
    TreeGroup,
)
from clusters.selectors.fleet import ClusterRow, visible_clusters
from clusters.selectors.forecasts import ForecastsHeld
from clusters.selectors.guard import IncidentRow, NominationRow
from clusters.services.inspection import ContextRow, KubeconfigReport
from clusters.services.registration import Departure
from clusters.services.roles import Serving
from clusters.services.switches import NAMES_MOST
from portal.api.access import OperationSerializer
from portal.api.drafts import ClusterChangesSerializer, ManifestSerializer
from portal.api.schema import Shape, paged
from portal.api.shapes import NamedField, RecordSerializer, Strict
from portal.api.views import ASKED, MADE, Handler, Noun, View, actor, admin, answers, deed
from portal.cluster_changes import CHANGES, SETTINGS

HIDDEN = method_decorator(sensitive_variables())

MOST_TEXT = 200_000
SERVING = Serving.values
_REQUIRED = serializers.Field.default_error_messages["required"]


cluster_field = partial(NamedField, visible_clusters, "slug", max_length=40)


class ClusterSerializer(RecordSerializer[ClusterRow]):
    """A cluster in one line: what it is, whether it answers, how far its sync is."""

    without = ("mode_label", "reason")
    role = serializers.ChoiceField(Cluster.Role.choices)
    mode = serializers.ChoiceField(Cluster.Mode.choices)
    state = serializers.ChoiceField(Cluster.State.choices)


class ObjectSerializer(RecordSerializer[ObjectRow]):
    """One object that the portal wants, or has, on a cluster."""


class TreeGroupSerializer(RecordSerializer[TreeGroup]):
    """The objects of one budget, account, pool or flavor."""


class DriftSerializer(RecordSerializer[DriftRow]):
    """One field that somebody else changed."""


class PreflightRowSerializer(RecordSerializer[PreflightRow]):
    """One check of a preflight."""

    state = serializers.CharField(help_text="ok, warn or fault")


class PreflightSerializer(RecordSerializer[StoredPreflight]):
    """Everything that a preflight checked, at one moment."""


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


class ForecastsHeldSerializer(RecordSerializer[ForecastsHeld]):
    """Of the newest forecasts of when jobs start, how many held; null before one is over."""


class LeavingSerializer(RecordSerializer[Leaving]):
    """What is left on a cluster that is being drained, and the last error there."""


class ClusterDetailSerializer(RecordSerializer[ClusterDetail]):
    """A cluster with its objects, drift and preflight; ``planned`` while writing is off."""

    without = ("dispatch", "under_way")
    drift_policy = serializers.ChoiceField(Cluster.DriftPolicy.choices)
    guard = serializers.ChoiceField(Cluster.Guard.choices)
    planned = ManifestSerializer(many=True)


class KubeconfigInput(Strict):
    """A pasted kubeconfig and, where it has several contexts, which one; or ``own_account``."""

    kubeconfig = serializers.CharField(
        max_length=MOST_TEXT, trim_whitespace=False, write_only=True, required=False
    )
    context = serializers.CharField(  # type: ignore[assignment]  # as above
        max_length=200, required=False, allow_blank=True, default=""
    )
    own_account = serializers.BooleanField(
        default=False,
        help_text="In place of a kubeconfig: it is the cluster that the portal runs in, which "
        "signs in there by its own service account.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs["own_account"] and "kubeconfig" not in attrs:
            raise serializers.ValidationError({"kubeconfig": _REQUIRED}, code="required")
        return attrs


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
    """One switch at a time; ``reason`` where writing stops, or the mode or the role changes."""

    name = serializers.CharField(max_length=120, required=False)
    writes_enabled = serializers.BooleanField(required=False)
    drift_policy = serializers.ChoiceField(Cluster.DriftPolicy.choices, required=False)
    guard = serializers.ChoiceField(Cluster.Guard.choices, required=False)
    mode = serializers.ChoiceField(Cluster.Mode.choices, required=False)
    role = serializers.ChoiceField(SERVING, required=False)
    allows_local_jobs = serializers.BooleanField(required=False)
    kueue_configuration = serializers.DictField(required=False)
    operators = serializers.ListField(
        child=serializers.CharField(max_length=320), max_length=NAMES_MOST, required=False
    )
    gpu_namespaces = serializers.ListField(
        child=serializers.CharField(max_length=63),
        max_length=NAMES_MOST,
        required=False,
        allow_null=True,
        help_text="Other namespaces in which pods may ask for GPUs; null refuses nothing outside "
        "workspaces.",
    )
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if len(attrs.keys() - {"reason"}) != 1:
            message = "Change exactly one setting at a time; each is checked and logged alone."
            raise serializers.ValidationError(message, code="one_at_a_time")
        return attrs


class RoleInput(Strict):
    """What a cluster would be there for."""

    role = serializers.ChoiceField(SERVING)


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


def change(name: str, shape: Shape | None = None, **declared: Any) -> Handler:
    """One of the changes of a cluster, at an address of its own."""

    def do(user: User, cluster: Cluster, **typed: Any) -> Any:
        return CHANGES[name].do(user, cluster, typed)

    return deed(do, shape, by=admin, **declared)


class Clusters(Noun):
    """All clusters; for platform roles."""

    each = "One cluster with its objects, drift and newest preflight."
    shape = ClusterDetailSerializer
    lookup_field = lookup_value_converter = "slug"
    preflight = deed(
        enforcement.start_preflight,
        OperationSerializer,
        code=ASKED,
        by=admin,
        text="Checks everything again in the background; the operation shows how far it is.",
    )
    kubeconfig = HIDDEN(
        change(
            "kubeconfig",
            takes=KubeconfigInput,
            method="PUT",
            text="Stores a new credential for the same cluster; it is tried before the old one is "
            "forgotten.",
        )
    )
    resolve = change(
        "block", takes=ResolveInput, text="Says which side is right after a restored backup."
    )
    deregister = change(
        "deregister",
        DepartureSerializer,
        takes=DeregisterInput,
        code=ASKED,
        text="De-registers a cluster: it is drained, the portal's objects there are removed, and "
        "its credentials are forgotten.",
    )

    role = deed(
        enforcement.preview_role_change,
        ClusterChangesSerializer,
        takes=RoleInput,
        by=admin,
        many=True,
        only_reads=True,
        text="What another role would change on each cluster, object by object; nothing is saved.",
    )

    def found(self, user: User, slug: str) -> dict[str, Any]:
        """The cluster of a deed; what only reads is told its name."""
        is_read = self.request.method in SAFE_METHODS
        return {"slug": slug} if is_read else {"cluster": seen.cluster_for(user, slug)}

    def shown(self, user: User, made: Any, slug: str = "") -> Any:
        """The cluster as it is after a deed; of a preflight how far it is."""
        if isinstance(made, Operation):
            made.refresh_from_db()
            address = reverse("api:operation-detail", args=[made.pk])
            told = OperationSerializer(made).data
            return Response(told, status=ASKED, headers={"Location": address})
        return seen.cluster_detail(user, slug or made.slug) if isinstance(made, Cluster) else made

    @extend_schema(responses=paged(ClusterSerializer))
    def list(self, request: Request) -> Response:
        results = ClusterSerializer(seen.cluster_rows(actor(request)), many=True).data
        return Response({"next": None, "results": results})

    @HIDDEN
    @answers(takes=ClusterInput, code=MADE, by=admin)
    def create(self, user: User, **given: Any) -> Any:
        """Examines the cluster first; what it finds decides the modes on offer."""
        return enforcement.register_cluster(user, **given)

    @answers()
    def retrieve(self, user: User, slug: str) -> Any:
        return seen.cluster_detail(user, slug)

    @answers(RightsSerializer, method="GET")
    def rights(self, user: User, slug: str) -> Any:
        """The least rights and the admission policies of a cluster, to apply by an admin."""
        return {"yaml": seen.generated_rights(user, slug)}

    @answers(TokenEndSerializer, by=admin)
    def token(self, user: User, cluster: Cluster) -> Any:
        """A new token for the manager's identity on this worker."""
        return {"expires_at": enforcement.rotate_multikueue_token(user, cluster=cluster)}

    @answers(takes=SettingsInput, by=admin, method="PATCH", at="settings")
    def switch(self, user: User, cluster: Cluster, **typed: Any) -> Any:
        """The switches of a cluster, one at a time."""
        (name,) = typed.keys() - {"reason"}
        return SETTINGS[name].do(user, cluster, typed)


class InspectView(View):
    """The contexts of a kubeconfig with what speaks against each; nothing is stored."""

    @HIDDEN
    @answers(ReportSerializer, takes=InspectInput, by=admin)
    def post(self, user: User, kubeconfig: str) -> Any:
        return enforcement.inspect_kubeconfig(kubeconfig)
