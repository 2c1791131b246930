"""Accounts, flavors, workspaces, capacity, envelopes and pools, and what the fleet comes to."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rest_framework import serializers

from budgets import models, selectors
from budgets import services as promises
from budgets.models import PoolShare, User
from budgets.selectors.fleet.grid import FleetCell, FleetTotal
from clusters import services as enforcement
from portal.api.paging import BY_NAMESPACE, BY_SLUG, CREATED
from portal.api.shapes import (
    GpusField,
    InstantField,
    ReasonInput,
    RecordSerializer,
    RowSerializer,
    Strict,
    account_field,
    flavor_field,
)
from portal.api.views import DONE, MADE, Noun, View, answers, deed, finds, lists, shows
from portal.bounds import NAME, OVERSUBSCRIPTION, WEIGHT

SLUG: Any = {"max_length": 63}


class AccountSerializer(RowSerializer[models.Account]):
    """A customer."""

    told = "slug name fair_weight generation archived_at created_at"


class AccountInput(Strict):
    """A new customer; the slug is for ever."""

    slug = serializers.CharField(**SLUG)
    name = serializers.CharField(**NAME)


class NameInput(Strict):
    """The part of an account that can change."""

    name = serializers.CharField(**NAME)


class WeightInput(Strict):
    """A weight of fair sharing: 2 may borrow twice as much as 1 before others go first."""

    weight = serializers.DecimalField(**WEIGHT)
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True)


class FlavorSerializer(RowSerializer[models.Flavor]):
    """A kind of GPU node."""

    told = (
        "slug name resource_name node_labels node_taints tolerations gpus_per_node clock_start "
        "oversubscription_factor position generation archived_at"
    )


class FlavorChanges(Strict):
    """The parts of a flavor that can change; all are optional."""

    name = serializers.CharField(required=False, **NAME)
    resource_name = serializers.CharField(required=False, **NAME)
    node_labels = serializers.DictField(
        child=serializers.CharField(max_length=63, allow_blank=True), required=False
    )
    node_taints = serializers.ListField(
        child=serializers.DictField(child=serializers.CharField(max_length=317, allow_blank=True)),
        required=False,
        max_length=50,
    )
    tolerations = serializers.ListField(
        child=serializers.DictField(), required=False, max_length=50
    )
    gpus_per_node = serializers.IntegerField(required=False, min_value=1, max_value=1024)
    clock_start = serializers.ChoiceField(models.Flavor.ClockStart.choices, required=False)
    oversubscription_factor = serializers.DecimalField(required=False, **OVERSUBSCRIPTION)
    position = serializers.IntegerField(required=False, min_value=0, max_value=10_000)


class FlavorInput(FlavorChanges):
    """A new flavor; the slug is the ResourceFlavor's name and for ever."""

    slug = serializers.CharField(**SLUG)
    name = serializers.CharField(**NAME)


class WorkspaceSerializer(RowSerializer[models.Workspace]):
    """Who works under one budget."""

    told = "namespace account slug name home_flavor fair_weight archived_at created_at"


class WorkspaceInput(Strict):
    """A new workspace with an empty budget; its namespace is ``ACCOUNT-SLUG``."""

    account = account_field()
    slug = serializers.CharField(**SLUG)
    name = serializers.CharField(**NAME)
    home_flavor = flavor_field()


class WorkspaceChanges(Strict):
    """The parts of a workspace that can change; all are optional."""

    name = serializers.CharField(required=False, **NAME)
    home_flavor = flavor_field(required=False)


class CapacitySerializer(RowSerializer[models.Capacity]):
    """GPUs of a flavor on a worker as an admin states them."""

    told = "id cluster flavor gpus valid_from valid_until reason created_at"


class CapacityInput(Strict):
    """From now, when ``valid_from`` is left out."""

    cluster = serializers.CharField(max_length=40)
    flavor = flavor_field()
    gpus = GpusField()
    valid_from = InstantField(required=False, allow_null=True)
    valid_until = InstantField(required=False, allow_null=True)
    reason = serializers.CharField(max_length=200, required=False, allow_blank=True)


class EnvelopeSerializer(RowSerializer[models.Envelope]):
    """What an account may promise itself of one flavor without asking."""

    told = "account flavor committed ceiling pool"


class EnvelopeInput(Strict):
    """All three limits at once."""

    account = account_field()
    flavor = flavor_field()
    committed = GpusField()
    ceiling = GpusField()
    pool = GpusField()


class FleetCellSerializer(RecordSerializer[FleetCell]):
    """One flavor on one worker, whole GPUs."""

    flavor = serializers.CharField()
    cluster = serializers.CharField()


class FleetTotalSerializer(RecordSerializer[FleetTotal]):
    """One flavor over all workers; ``excess`` above 0 is promised beyond the limit."""

    flavor = serializers.CharField()


class FleetSerializer(serializers.Serializer[Any]):
    """Flavor by worker."""

    flavors = serializers.ListField(child=serializers.CharField())
    clusters = serializers.ListField(child=serializers.CharField())
    cells = FleetCellSerializer(many=True)
    totals = FleetTotalSerializer(many=True)


class Accounts(Noun):
    """Accounts in which the caller sees something."""

    each = "One account."
    shape = AccountSerializer
    lookup_field = lookup_value_converter = "slug"
    found = finds("account", selectors.account_for)
    list = lists(selectors.visible_accounts, BY_SLUG, can_be_archived=True)
    create = deed(promises.create_account, takes=AccountInput, code=MADE)
    retrieve = shows()
    partial_update = deed(promises.edit_account, takes=NameInput)
    weigh = deed(
        promises.weigh_account,
        takes=WeightInput,
        text="Sets the weight of fair sharing among accounts that draw on one platform pool.",
    )
    archive = deed(
        promises.archive_account,
        takes=ReasonInput,
        text="Archives an account whose workspaces and pool are archived; nothing leaves the "
        "books.",
    )


class Flavors(Noun):
    """Kinds of GPU nodes."""

    each = "One kind of GPU node."
    shape = FlavorSerializer
    lookup_field = lookup_value_converter = "slug"
    list = lists(selectors.visible_flavors, BY_SLUG, can_be_archived=True)
    create = deed(promises.create_flavor, takes=FlavorInput, code=MADE)
    retrieve = shows()
    partial_update = deed(promises.edit_flavor, takes=FlavorChanges)
    archive = deed(
        promises.archive_flavor,
        takes=ReasonInput,
        text="Archives a flavor of which nothing is promised any more.",
    )

    def found(self, user: User, slug: str) -> dict[str, Any]:
        """One flavor, archived ones too."""
        return {"flavor": selectors.visible_flavors(user, include_archived=True).get(slug=slug)}


class Workspaces(Noun):
    """Visible workspaces, of one account with ``account``."""

    each = "One workspace."
    shape = WorkspaceSerializer
    lookup_field, lookup_value_converter = "namespace", "slug"
    found = finds("workspace", selectors.workspace_for)
    list = lists(
        selectors.visible_workspaces,
        BY_NAMESPACE,
        can_be_archived=True,
        filters={"account": "account__slug"},
    )
    create = deed(promises.create_workspace, takes=WorkspaceInput, code=MADE)
    retrieve = shows()
    partial_update = deed(promises.edit_workspace, takes=WorkspaceChanges)
    weigh = deed(
        promises.weigh_workspace,
        takes=WeightInput,
        text="Sets the weight of fair sharing among the workspaces of an account.",
    )
    archive = deed(
        promises.archive_workspace,
        takes=ReasonInput,
        text="Archives a workspace: nothing new starts, running jobs go on, and the books stay.",
    )


class Capacities(Noun):
    """Capacity as admins state it, newest first; for platform roles."""

    shape = CapacitySerializer
    list = lists(
        selectors.visible_capacities,
        CREATED,
        filters={"cluster": "cluster", "flavor": "flavor__slug"},
    )
    create = deed(enforcement.state_capacity, takes=CapacityInput, code=MADE)


class EnvelopesView(View):
    """Envelopes of the accounts in which the caller sees something."""

    shape = EnvelopeSerializer
    get = lists(selectors.visible_envelopes, CREATED, filters={"account": "account__slug"})
    put = deed(
        promises.set_envelope,
        takes=EnvelopeInput,
        text="Sets what an account may promise itself of one flavor.",
    )


class FleetView(View):
    """Capacity, promises and use, flavor by worker; for platform roles."""

    @answers(FleetSerializer)
    def get(self, user: User) -> Any:
        grid = selectors.fleet_grid(user)
        return {
            "flavors": [flavor.slug for flavor in grid.flavors],
            "clusters": grid.clusters,
            "cells": [
                {"flavor": flavor, "cluster": cluster, **asdict(cell)}
                for (flavor, cluster), cell in grid.cells.items()
            ],
            "totals": [{"flavor": flavor, **asdict(row)} for flavor, row in grid.totals.items()],
        }


class PoolAmountSerializer(RowSerializer[models.PoolAmount]):
    """GPUs of a flavor in a pool, from and until."""

    told = "flavor gpus valid_from valid_until"


class PoolShareSerializer(RowSerializer[models.PoolShare]):
    """An account that draws on a platform pool; absent flavors are without limit."""

    limits = serializers.DictField(child=serializers.IntegerField())
    told = "account limits"


class PoolSerializer(RowSerializer[models.Pool]):
    """An account's own pool, or with ``account`` null a platform pool."""

    amounts = PoolAmountSerializer(many=True)
    shares = PoolShareSerializer(many=True)
    told = "slug name account generation archived_at amounts shares"


class PoolInput(Strict):
    """A new, empty pool."""

    slug = serializers.CharField(**SLUG)
    name = serializers.CharField(**NAME)
    account = account_field(required=False, allow_null=True)


class PoolAmountInput(Strict):
    """From now, when ``valid_from`` is left out."""

    flavor = flavor_field()
    gpus = GpusField()
    valid_from = InstantField(required=False, allow_null=True)
    valid_until = InstantField(required=False, allow_null=True)


class PoolShareInput(Strict):
    """Flavor → most GPUs; an absent flavor means all of it."""

    account = account_field()
    limits = serializers.DictField(child=GpusField(), default=dict)


class VisiblePools(Noun):
    """Pools that the caller's accounts have or draw on."""

    each = "One pool."
    shape = PoolSerializer
    lookup_field = lookup_value_converter = "slug"
    list = lists(selectors.visible_pools, BY_SLUG)
    create = deed(promises.create_pool, takes=PoolInput, code=MADE)
    retrieve = shows()
    archive = deed(
        promises.archive_pool,
        takes=ReasonInput,
        code=DONE,
        text="Archives a pool; from now on its accounts draw on nothing.",
    )
    amounts = deed(
        promises.set_pool_amount,
        takes=PoolAmountInput,
        code=MADE,
        text="GPUs of a flavor in a pool, from now or later.",
    )
    shares = deed(
        promises.set_pool_share,
        takes=PoolShareInput,
        method="PUT",
        text="Accounts that draw on a platform pool.",
    )

    def found(self, user: User, slug: str) -> dict[str, Any]:
        """One pool that this user may see."""
        return {"pool": selectors.visible_pools(user).get(slug=slug)}

    def shown(self, user: User, made: Any, slug: str = "") -> Any:
        """The pool, read again after a deed."""
        return self.found(user, slug)["pool"] if slug else made


class PoolShareView(View):
    """One account's share."""

    delete = deed(promises.remove_pool_share, code=DONE)

    def found(self, user: User, slug: str, account: str) -> dict[str, Any]:
        pool = selectors.visible_pools(user).get(slug=slug)
        # Only the shares that this user sees are on the pool.
        share = next((row for row in pool.shares.all() if row.account.slug == account), None)
        if share is None:
            raise PoolShare.DoesNotExist
        return {"share": share}
