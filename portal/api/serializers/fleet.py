"""Accounts, flavors, workspaces, capacity, envelopes, pools."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from budgets import models
from budgets.selectors.fleet.grid import FleetCell, FleetTotal
from portal.api.serializers.base import (
    GpusField,
    InstantField,
    RecordSerializer,
    RowSerializer,
    Strict,
    account_field,
    flavor_field,
)

SLUG: Any = {"max_length": 63}
NAME: Any = {"max_length": 120}


class AccountSerializer(RowSerializer[models.Account]):
    """A customer."""

    told = ["slug", "name", "generation", "archived_at", "created_at"]


class AccountInput(Strict):
    """A new customer; the slug is for ever."""

    slug = serializers.CharField(**SLUG)
    name = serializers.CharField(**NAME)


class NameInput(Strict):
    """The part of an account that can change."""

    name = serializers.CharField(**NAME)


class FlavorSerializer(RowSerializer[models.Flavor]):
    """A kind of GPU node."""

    told = [
        "slug", "name", "resource_name", "node_labels", "node_taints", "tolerations",
        "gpus_per_node", "clock_start", "oversubscription_factor", "position", "generation",
        "archived_at",
    ]  # fmt: skip


class FlavorChanges(Strict):
    """The parts of a flavor that can change; all are optional."""

    name = serializers.CharField(required=False, **NAME)
    resource_name = serializers.CharField(required=False, max_length=120)
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
    oversubscription_factor = serializers.DecimalField(
        max_digits=5, decimal_places=2, min_value=1, required=False
    )
    position = serializers.IntegerField(required=False, min_value=0, max_value=10_000)


class FlavorInput(FlavorChanges):
    """A new flavor; the slug is the ResourceFlavor's name and for ever."""

    slug = serializers.CharField(**SLUG)
    name = serializers.CharField(**NAME)


class WorkspaceSerializer(RowSerializer[models.Workspace]):
    """Who works under one budget."""

    told = [
        "namespace", "account", "slug", "name", "home_flavor", "archived_at", "created_at",
    ]  # fmt: skip


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

    told = [
        "id", "cluster", "flavor", "gpus", "valid_from", "valid_until", "reason", "created_at",
    ]  # fmt: skip


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

    told = ["account", "flavor", "committed", "ceiling", "pool"]


class EnvelopeInput(Strict):
    """All three limits at once."""

    account = account_field()
    flavor = flavor_field()
    committed = GpusField()
    ceiling = GpusField()
    pool = GpusField()


class PoolAmountSerializer(RowSerializer[models.PoolAmount]):
    """GPUs of a flavor in a pool, from and until."""

    told = ["flavor", "gpus", "valid_from", "valid_until"]


class PoolShareSerializer(RowSerializer[models.PoolShare]):
    """An account that draws on a platform pool; absent flavors are without limit."""

    limits = serializers.DictField(child=serializers.IntegerField())
    told = ["account", "limits"]


class PoolSerializer(RowSerializer[models.Pool]):
    """An account's own pool, or with ``account`` null a platform pool."""

    amounts = PoolAmountSerializer(many=True)
    shares = PoolShareSerializer(many=True)
    told = ["slug", "name", "account", "generation", "archived_at", "amounts", "shares"]


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
