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

from clusters import selectors as seen
from clusters import services as enforcement
from clusters.models import Cluster
from portal.api.schema import paged
from portal.api.serializers import clusters as shapes
from portal.api.serializers.access import OperationSerializer
from portal.api.views.base import View, actor, admin, checked

HIDDEN = method_decorator(sensitive_variables())


def detail_answer(request: Request, slug: str, code: int = status.HTTP_200_OK) -> Response:
    """A cluster as it is now."""
    detail = seen.cluster_detail(actor(request), slug)
    return Response(shapes.ClusterDetailSerializer(detail).data, status=code)


class ClustersView(View):
    """All clusters; for platform roles."""

    @extend_schema(responses=paged(shapes.ClusterSerializer))
    def get(self, request: Request) -> Response:
        rows = seen.cluster_rows(actor(request))
        results = shapes.ClusterSerializer(rows, many=True).data
        return Response({"next": None, "results": results})

    @HIDDEN
    @extend_schema(request=shapes.ClusterInput, responses={201: shapes.ClusterDetailSerializer})
    def post(self, request: Request) -> Response:
        """Examines the cluster first; what it finds decides the modes on offer."""
        user = admin(request)
        made = enforcement.register_cluster(user, **checked(shapes.ClusterInput, request))
        return detail_answer(request, made.slug, status.HTTP_201_CREATED)


class InspectView(View):
    """The contexts of a kubeconfig with what speaks against each; nothing is stored."""

    @HIDDEN
    @extend_schema(request=shapes.InspectInput, responses={200: shapes.ReportSerializer})
    def post(self, request: Request) -> Response:
        admin(request)
        given = checked(shapes.InspectInput, request)
        report = enforcement.inspect_kubeconfig(given["kubeconfig"])
        return Response(shapes.ReportSerializer(report).data)


class ClusterPart(View):
    """A part of one cluster, for admins alone."""

    def cluster(self, request: Request, slug: str) -> Cluster:
        return seen.cluster_for(admin(request), slug)


class ClusterView(View):
    """One cluster with its objects, drift and newest preflight."""

    @extend_schema(responses=shapes.ClusterDetailSerializer)
    def get(self, request: Request, slug: str) -> Response:
        return detail_answer(request, slug)


class PreflightView(ClusterPart):
    """Looks at everything again, in the background; the operation shows how far it is."""

    @extend_schema(request=None, responses={202: OperationSerializer})
    def post(self, request: Request, slug: str) -> Response:
        cluster = self.cluster(request, slug)
        operation = enforcement.start_preflight(actor(request), cluster=cluster)
        operation.refresh_from_db()
        return Response(
            OperationSerializer(operation).data,
            status=status.HTTP_202_ACCEPTED,
            headers={"Location": reverse("api:operation", args=[operation.pk])},
        )


class KubeconfigView(ClusterPart):
    """A new credential for the same cluster, tried before the old one is forgotten."""

    @HIDDEN
    @extend_schema(request=shapes.KubeconfigInput, responses=shapes.ClusterDetailSerializer)
    def put(self, request: Request, slug: str) -> Response:
        cluster = self.cluster(request, slug)
        given = checked(shapes.KubeconfigInput, request)
        enforcement.rotate_kubeconfig(actor(request), cluster=cluster, **given)
        return detail_answer(request, slug)


class MultikueueTokenView(ClusterPart):
    """A new token for the manager's identity on this worker."""

    @extend_schema(request=None, responses={200: shapes.TokenEndSerializer})
    def post(self, request: Request, slug: str) -> Response:
        cluster = self.cluster(request, slug)
        ends = enforcement.rotate_multikueue_token(actor(request), cluster=cluster)
        return Response(shapes.TokenEndSerializer({"expires_at": ends}).data)


class SettingsView(ClusterPart):
    """The switches of a cluster, one at a time."""

    @extend_schema(request=shapes.SettingsInput, responses=shapes.ClusterDetailSerializer)
    def patch(self, request: Request, slug: str) -> Response:
        cluster = self.cluster(request, slug)
        given = checked(shapes.SettingsInput, request)
        reason = given.pop("reason")
        self.change(request, cluster, *next(iter(given.items())), reason)
        return detail_answer(request, slug)

    def change(self, request: Request, cluster: Cluster, name: str, value: Any, why: str) -> None:
        user = actor(request)
        match name:
            case "name":
                enforcement.edit_cluster(user, cluster=cluster, name=value)
            case "writes_enabled":
                enforcement.set_writes_enabled(user, cluster=cluster, enabled=value, reason=why)
            case "drift_policy":
                enforcement.set_drift_policy(user, cluster=cluster, policy=value)
            case "guard":
                enforcement.set_guard(user, cluster=cluster, guard=value, reason=why)
            case "mode":
                enforcement.set_mode(user, cluster=cluster, mode=value, reason=why)
            case "allows_local_jobs":
                enforcement.set_local_jobs(user, cluster=cluster, allowed=value)
            case "kueue_configuration":
                enforcement.set_kueue_configuration(user, cluster=cluster, configuration=value)


class ResolveView(ClusterPart):
    """After a restored backup: which side is right."""

    @extend_schema(request=shapes.ResolveInput, responses={200: shapes.ClusterDetailSerializer})
    def post(self, request: Request, slug: str) -> Response:
        cluster = self.cluster(request, slug)
        given = checked(shapes.ResolveInput, request)
        enforcement.resolve_block(
            actor(request),
            cluster=cluster,
            apply_ours=given["keep"] == "portal",
            reason=given["reason"],
        )
        return detail_answer(request, slug)


class DeregisterView(ClusterPart):
    """Lets a cluster go: drained, the portal's objects removed, its credentials forgotten."""

    @extend_schema(request=shapes.DeregisterInput, responses={202: shapes.DepartureSerializer})
    def post(self, request: Request, slug: str) -> Response:
        cluster = self.cluster(request, slug)
        given = checked(shapes.DeregisterInput, request)
        departure = enforcement.deregister_cluster(actor(request), cluster=cluster, **given)
        return Response(shapes.DepartureSerializer(departure).data, status=status.HTTP_202_ACCEPTED)


class RightsView(View):
    """The least rights and the admission policies of a cluster, to apply by an admin."""

    @extend_schema(responses=shapes.RightsSerializer)
    def get(self, request: Request, slug: str) -> Response:
        text = seen.generated_rights(actor(request), slug)
        return Response(shapes.RightsSerializer({"yaml": text}).data)
