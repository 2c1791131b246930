"""Accounts, flavors, workspaces, capacity and envelopes."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import selectors
from budgets import services as promises
from budgets.models import Account, Flavor
from portal.api.paging import CREATED, NAMESPACE, SLUG, page
from portal.api.schema import PAGED, paged
from portal.api.serializers import fleet as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import (
    ARCHIVED,
    View,
    account_named,
    actor,
    checked,
    flag,
    flavor_named,
)

MADE = status.HTTP_201_CREATED


class AccountsView(View):
    """Accounts in which the caller sees something."""

    query = (*PAGED, ARCHIVED)

    @extend_schema(responses=paged(shapes.AccountSerializer))
    def get(self, request: Request) -> Response:
        rows = selectors.visible_accounts(
            actor(request), include_archived=flag(request, "archived")
        )
        return page(request, rows, shapes.AccountSerializer, SLUG)

    @extend_schema(request=shapes.AccountInput, responses={201: shapes.AccountSerializer})
    def post(self, request: Request) -> Response:
        made = promises.create_account(actor(request), **checked(shapes.AccountInput, request))
        return Response(shapes.AccountSerializer(made).data, status=MADE)


class AccountPart(View):
    """One visible account."""

    def found(self, request: Request, slug: str) -> Account:
        return selectors.account_for(actor(request), slug)


class AccountView(AccountPart):
    """One account."""

    @extend_schema(responses=shapes.AccountSerializer)
    def get(self, request: Request, slug: str) -> Response:
        return Response(shapes.AccountSerializer(self.found(request, slug)).data)

    @extend_schema(request=shapes.NameInput, responses=shapes.AccountSerializer)
    def patch(self, request: Request, slug: str) -> Response:
        account = self.found(request, slug)
        given = checked(shapes.NameInput, request)
        made = promises.edit_account(actor(request), account=account, name=given["name"])
        return Response(shapes.AccountSerializer(made).data)


class ArchiveAccountView(AccountPart):
    """Puts an account away, once its workspaces and its pool are; nothing leaves the books."""

    @extend_schema(request=ReasonInput, responses=shapes.AccountSerializer)
    def post(self, request: Request, slug: str) -> Response:
        account = self.found(request, slug)
        reason = checked(ReasonInput, request)["reason"]
        made = promises.archive_account(actor(request), account=account, reason=reason)
        return Response(shapes.AccountSerializer(made).data)


class FlavorsView(View):
    """Kinds of GPU nodes."""

    query = (*PAGED, ARCHIVED)

    @extend_schema(responses=paged(shapes.FlavorSerializer))
    def get(self, request: Request) -> Response:
        rows = selectors.visible_flavors(actor(request), include_archived=flag(request, "archived"))
        return page(request, rows, shapes.FlavorSerializer, SLUG)

    @extend_schema(request=shapes.FlavorInput, responses={201: shapes.FlavorSerializer})
    def post(self, request: Request) -> Response:
        made = promises.create_flavor(actor(request), **checked(shapes.FlavorInput, request))
        return Response(shapes.FlavorSerializer(made).data, status=MADE)


class FlavorPart(View):
    """One flavor, archived ones too."""

    def found(self, request: Request, slug: str) -> Flavor:
        return selectors.visible_flavors(actor(request), include_archived=True).get(slug=slug)


class FlavorView(FlavorPart):
    """One kind of GPU node."""

    @extend_schema(responses=shapes.FlavorSerializer)
    def get(self, request: Request, slug: str) -> Response:
        return Response(shapes.FlavorSerializer(self.found(request, slug)).data)

    @extend_schema(request=shapes.FlavorChanges, responses=shapes.FlavorSerializer)
    def patch(self, request: Request, slug: str) -> Response:
        flavor = self.found(request, slug)
        changes = checked(shapes.FlavorChanges, request)
        made = promises.edit_flavor(actor(request), flavor=flavor, **changes)
        return Response(shapes.FlavorSerializer(made).data)


class ArchiveFlavorView(FlavorPart):
    """Takes a flavor out of use, once nothing is promised of it."""

    @extend_schema(request=ReasonInput, responses=shapes.FlavorSerializer)
    def post(self, request: Request, slug: str) -> Response:
        flavor = self.found(request, slug)
        reason = checked(ReasonInput, request)["reason"]
        made = promises.archive_flavor(actor(request), flavor=flavor, reason=reason)
        return Response(shapes.FlavorSerializer(made).data)


class WorkspacesView(View):
    """Visible workspaces, of one account with ``account``."""

    query = (*PAGED, ARCHIVED, OpenApiParameter("account", str))

    @extend_schema(responses=paged(shapes.WorkspaceSerializer))
    def get(self, request: Request) -> Response:
        rows = selectors.visible_workspaces(
            actor(request), include_archived=flag(request, "archived")
        )
        if account := request.query_params.get("account"):
            rows = rows.filter(account__slug=account)
        return page(request, rows, shapes.WorkspaceSerializer, NAMESPACE)

    @extend_schema(request=shapes.WorkspaceInput, responses={201: shapes.WorkspaceSerializer})
    def post(self, request: Request) -> Response:
        given = checked(shapes.WorkspaceInput, request)
        user = actor(request)
        made = promises.create_workspace(
            user,
            account=account_named(user, given["account"]),
            slug=given["slug"],
            name=given["name"],
            home_flavor=flavor_named(user, given["home_flavor"], "home_flavor"),
        )
        return Response(shapes.WorkspaceSerializer(made).data, status=MADE)


class WorkspaceView(View):
    """One workspace."""

    @extend_schema(responses=shapes.WorkspaceSerializer)
    def get(self, request: Request, namespace: str) -> Response:
        found = selectors.workspace_for(actor(request), namespace)
        return Response(shapes.WorkspaceSerializer(found).data)

    @extend_schema(request=shapes.WorkspaceChanges, responses=shapes.WorkspaceSerializer)
    def patch(self, request: Request, namespace: str) -> Response:
        user = actor(request)
        workspace = selectors.workspace_for(user, namespace)
        given = checked(shapes.WorkspaceChanges, request)
        if "home_flavor" in given:
            given["home_flavor"] = flavor_named(user, given["home_flavor"], "home_flavor")
        made = promises.edit_workspace(user, workspace=workspace, **given)
        return Response(shapes.WorkspaceSerializer(made).data)


class ArchiveWorkspaceView(View):
    """Closes a workspace: nothing new starts, what runs goes on, the books stay."""

    @extend_schema(request=ReasonInput, responses=shapes.WorkspaceSerializer)
    def post(self, request: Request, namespace: str) -> Response:
        user = actor(request)
        workspace = selectors.workspace_for(user, namespace)
        reason = checked(ReasonInput, request)["reason"]
        made = promises.archive_workspace(user, workspace=workspace, reason=reason)
        return Response(shapes.WorkspaceSerializer(made).data)


class CapacitiesView(View):
    """Capacity as admins state it, newest first; for platform roles."""

    query = (*PAGED, OpenApiParameter("cluster", str), OpenApiParameter("flavor", str))

    @extend_schema(responses=paged(shapes.CapacitySerializer))
    def get(self, request: Request) -> Response:
        rows = selectors.visible_capacities(actor(request))
        if cluster := request.query_params.get("cluster"):
            rows = rows.filter(cluster=cluster)
        if flavor := request.query_params.get("flavor"):
            rows = rows.filter(flavor__slug=flavor)
        return page(request, rows, shapes.CapacitySerializer, CREATED)

    @extend_schema(request=shapes.CapacityInput, responses={201: shapes.CapacitySerializer})
    def post(self, request: Request) -> Response:
        given = checked(shapes.CapacityInput, request)
        given["flavor"] = flavor_named(actor(request), given["flavor"])
        made = promises.set_capacity(actor(request), **given)
        return Response(shapes.CapacitySerializer(made).data, status=MADE)


class EnvelopesView(View):
    """Envelopes of the accounts in which the caller sees something."""

    query = (*PAGED, OpenApiParameter("account", str))

    @extend_schema(responses=paged(shapes.EnvelopeSerializer))
    def get(self, request: Request) -> Response:
        rows = selectors.visible_envelopes(actor(request))
        if account := request.query_params.get("account"):
            rows = rows.filter(account__slug=account)
        return page(request, rows, shapes.EnvelopeSerializer, CREATED)

    @extend_schema(request=shapes.EnvelopeInput, responses=shapes.EnvelopeSerializer)
    def put(self, request: Request) -> Response:
        """Sets what an account may promise itself of one flavor."""
        user = actor(request)
        given = checked(shapes.EnvelopeInput, request)
        given["account"] = account_named(user, given["account"])
        given["flavor"] = flavor_named(user, given["flavor"])
        return Response(shapes.EnvelopeSerializer(promises.set_envelope(user, **given)).data)
