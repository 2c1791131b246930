"""Clusters: register, inspect, switch, let go. What comes in as a kubeconfig never goes out."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from budgets.models import Operation, User
from clusters import selectors as seen
from clusters import services as enforcement
from clusters.models import Cluster
from portal.api.schema import paged
from portal.api.serializers import clusters as shapes
from portal.api.serializers.access import OperationSerializer
from portal.api.views.base import ASKED, MADE, Handler, Shape, View, actor, admin, answers, deed
from portal.cluster_changes import CHANGES, SETTINGS

HIDDEN = method_decorator(sensitive_variables())


def change(name: str, shape: Shape, takes: Shape, code: int = status.HTTP_200_OK) -> Handler:
    """One of the changes of a cluster, at an address of its own."""

    def do(user: User, cluster: Cluster, **typed: Any) -> Any:
        return CHANGES[name].do(user, cluster, typed)

    return deed(do, shape, takes=takes, code=code, by=admin)


class ClustersView(View):
    """All clusters; for platform roles."""

    @extend_schema(responses=paged(shapes.ClusterSerializer))
    def get(self, request: Request) -> Response:
        results = shapes.ClusterSerializer(seen.cluster_rows(actor(request)), many=True).data
        return Response({"next": None, "results": results})

    @HIDDEN
    @answers(shapes.ClusterDetailSerializer, takes=shapes.ClusterInput, code=MADE, by=admin)
    def post(self, user: User, **given: Any) -> Any:
        """Examines the cluster first; what it finds decides the modes on offer."""
        made = enforcement.register_cluster(user, **given)
        return seen.cluster_detail(user, made.slug)


class InspectView(View):
    """The contexts of a kubeconfig with what speaks against each; nothing is stored."""

    @HIDDEN
    @answers(shapes.ReportSerializer, takes=shapes.InspectInput, by=admin)
    def post(self, user: User, kubeconfig: str) -> Any:
        return enforcement.inspect_kubeconfig(kubeconfig)


class ClusterPart(View):
    """A part of one cluster, for admins alone."""

    def found(self, user: User, slug: str) -> dict[str, Any]:
        return {"cluster": seen.cluster_for(user, slug)}


class ClusterDeed(ClusterPart):
    """A deed on one cluster, answered with the cluster as it is then."""

    def shown(self, user: User, made: Any, slug: str) -> seen.ClusterDetail:
        return seen.cluster_detail(user, slug)


class ClusterView(View):
    """One cluster with its objects, drift and newest preflight."""

    @answers(shapes.ClusterDetailSerializer)
    def get(self, user: User, slug: str) -> Any:
        return seen.cluster_detail(user, slug)


class PreflightView(ClusterPart):
    """Looks at everything again, in the background; the operation shows how far it is."""

    post = deed(enforcement.start_preflight, OperationSerializer, code=ASKED, by=admin)

    def shown(self, user: User, made: Operation, slug: str) -> Response:
        made.refresh_from_db()
        address = reverse("api:operation", args=[made.pk])
        told = OperationSerializer(made).data
        return Response(told, status=ASKED, headers={"Location": address})


class KubeconfigView(ClusterDeed):
    """A new credential for the same cluster, tried before the old one is forgotten."""

    put = HIDDEN(change("kubeconfig", shapes.ClusterDetailSerializer, shapes.KubeconfigInput))


class MultikueueTokenView(ClusterPart):
    """A new token for the manager's identity on this worker."""

    @answers(shapes.TokenEndSerializer, by=admin)
    def post(self, user: User, cluster: Cluster) -> Any:
        return {"expires_at": enforcement.rotate_multikueue_token(user, cluster=cluster)}


class SettingsView(ClusterDeed):
    """The switches of a cluster, one at a time."""

    @answers(shapes.ClusterDetailSerializer, takes=shapes.SettingsInput, by=admin)
    def patch(self, user: User, cluster: Cluster, **typed: Any) -> Any:
        (name,) = typed.keys() - {"reason"}
        return SETTINGS[name].do(user, cluster, typed)


class ResolveView(ClusterDeed):
    """After a restored backup: which side is right."""

    post = change("block", shapes.ClusterDetailSerializer, shapes.ResolveInput)


class DeregisterView(ClusterPart):
    """Lets a cluster go: drained, the portal's objects removed, its credentials forgotten."""

    post = change("deregister", shapes.DepartureSerializer, shapes.DeregisterInput, ASKED)


class RightsView(View):
    """The least rights and the admission policies of a cluster, to apply by an admin."""

    @answers(shapes.RightsSerializer)
    def get(self, user: User, slug: str) -> Any:
        return {"yaml": seen.generated_rights(user, slug)}
