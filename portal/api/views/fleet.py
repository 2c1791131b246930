"""Accounts, flavors, workspaces, capacity and envelopes."""

from __future__ import annotations

from typing import Any

from budgets import selectors
from budgets import services as promises
from budgets.models import User
from portal.api.paging import CREATED, NAMESPACE, SLUG
from portal.api.serializers import fleet as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import ARCHIVED, MADE, View, answers, deed, pages, shows


class AccountsView(View):
    """Accounts in which the caller sees something."""

    query = (ARCHIVED,)
    post = deed(
        promises.create_account, shapes.AccountSerializer, takes=shapes.AccountInput, code=MADE
    )

    @pages(shapes.AccountSerializer, SLUG)
    def get(self, user: User) -> Any:
        return selectors.visible_accounts(user, include_archived=self.flag("archived"))


class AccountPart(View):
    """One visible account."""

    def found(self, user: User, slug: str) -> dict[str, Any]:
        return {"account": selectors.account_for(user, slug)}


class AccountView(AccountPart):
    """One account."""

    get = shows(shapes.AccountSerializer)
    patch = deed(promises.edit_account, shapes.AccountSerializer, takes=shapes.NameInput)


class ArchiveAccountView(AccountPart):
    """Puts an account away, once its workspaces and its pool are; nothing leaves the books."""

    post = deed(promises.archive_account, shapes.AccountSerializer, takes=ReasonInput)


class FlavorsView(View):
    """Kinds of GPU nodes."""

    query = (ARCHIVED,)
    post = deed(
        promises.create_flavor, shapes.FlavorSerializer, takes=shapes.FlavorInput, code=MADE
    )

    @pages(shapes.FlavorSerializer, SLUG)
    def get(self, user: User) -> Any:
        return selectors.visible_flavors(user, include_archived=self.flag("archived"))


class FlavorPart(View):
    """One flavor, archived ones too."""

    def found(self, user: User, slug: str) -> dict[str, Any]:
        return {"flavor": selectors.visible_flavors(user, include_archived=True).get(slug=slug)}


class FlavorView(FlavorPart):
    """One kind of GPU node."""

    get = shows(shapes.FlavorSerializer)
    patch = deed(promises.edit_flavor, shapes.FlavorSerializer, takes=shapes.FlavorChanges)


class ArchiveFlavorView(FlavorPart):
    """Takes a flavor out of use, once nothing is promised of it."""

    post = deed(promises.archive_flavor, shapes.FlavorSerializer, takes=ReasonInput)


class WorkspacesView(View):
    """Visible workspaces, of one account with ``account``."""

    query = (ARCHIVED,)
    filters = {"account": "account__slug"}
    post = deed(
        promises.create_workspace,
        shapes.WorkspaceSerializer,
        takes=shapes.WorkspaceInput,
        code=MADE,
    )

    @pages(shapes.WorkspaceSerializer, NAMESPACE)
    def get(self, user: User) -> Any:
        return selectors.visible_workspaces(user, include_archived=self.flag("archived"))


class WorkspacePart(View):
    """One visible workspace."""

    def found(self, user: User, namespace: str) -> dict[str, Any]:
        return {"workspace": selectors.workspace_for(user, namespace)}


class WorkspaceView(WorkspacePart):
    """One workspace."""

    get = shows(shapes.WorkspaceSerializer)
    patch = deed(promises.edit_workspace, shapes.WorkspaceSerializer, takes=shapes.WorkspaceChanges)


class ArchiveWorkspaceView(WorkspacePart):
    """Closes a workspace: nothing new starts, what runs goes on, the books stay."""

    post = deed(promises.archive_workspace, shapes.WorkspaceSerializer, takes=ReasonInput)


class CapacitiesView(View):
    """Capacity as admins state it, newest first; for platform roles."""

    filters = {"cluster": "cluster", "flavor": "flavor__slug"}
    post = deed(
        promises.set_capacity, shapes.CapacitySerializer, takes=shapes.CapacityInput, code=MADE
    )

    @pages(shapes.CapacitySerializer, CREATED)
    def get(self, user: User) -> Any:
        return selectors.visible_capacities(user)


class EnvelopesView(View):
    """Envelopes of the accounts in which the caller sees something."""

    filters = {"account": "account__slug"}

    @pages(shapes.EnvelopeSerializer, CREATED)
    def get(self, user: User) -> Any:
        return selectors.visible_envelopes(user)

    @answers(shapes.EnvelopeSerializer, takes=shapes.EnvelopeInput)
    def put(self, user: User, **given: Any) -> Any:
        """Sets what an account may promise itself of one flavor."""
        return promises.set_envelope(user, **given)
