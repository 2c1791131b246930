"""Customers, what GPUs there are, and the quota that is nobody's alone."""

from __future__ import annotations

from decimal import Decimal

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q

from budgets import intervals
from budgets.models.base import Dated, Kept, account_slug, dns_label, ends_later, optional

resource_name = RegexValidator(
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    "Name a device resource with its domain, such as nvidia.com/gpu.",
)


def fair_weight() -> models.DecimalField[Decimal, Decimal]:
    """A column of the weight of fair sharing: how much may be borrowed before others go first."""
    return models.DecimalField(
        max_digits=9, decimal_places=3, default=Decimal(1), validators=[MinValueValidator(0)]
    )


class Account(Kept):
    """A customer and trust boundary: one Cohort; accounts never lend to each other."""

    slug = models.CharField(max_length=30, unique=True, validators=[account_slug])
    name = models.CharField(max_length=120)
    fair_weight = fair_weight()
    generation = models.PositiveBigIntegerField(default=1)

    class Meta:
        ordering = ["slug"]
        constraints = [
            models.CheckConstraint(
                name="account_weight_not_negative", condition=Q(fair_weight__gte=0)
            )
        ]


class Topology(Kept):
    """How nodes stand together: labels of nodes, from the largest domain to the smallest.

    Kueue lets levels of a Topology never change, so another order is another topology.
    """

    frozen_fields = ("slug", "levels")

    slug = models.CharField(max_length=40, unique=True, validators=[dns_label])
    name = models.CharField(max_length=120)
    levels = models.JSONField()
    generation = models.PositiveBigIntegerField(default=1)

    class Meta:
        ordering = ["slug"]


class Flavor(Kept):
    """One kind of GPU node: a ResourceFlavor and the device resource that is counted."""

    ClockStart = intervals.ClockStart

    slug = models.CharField(max_length=40, unique=True, validators=[dns_label])
    name = models.CharField(max_length=120)
    resource_name = models.CharField(
        max_length=120, default="nvidia.com/gpu", validators=[resource_name]
    )
    node_labels = models.JSONField(default=dict, blank=True)
    node_taints = models.JSONField(default=list, blank=True)
    tolerations = models.JSONField(default=list, blank=True)
    gpus_per_node = models.PositiveIntegerField(default=8, validators=[MinValueValidator(1)])
    clock_start = models.CharField(
        max_length=16, choices=ClockStart.choices, default=ClockStart.ADMITTED
    )
    oversubscription_factor = models.DecimalField(
        max_digits=5, decimal_places=2, default=Decimal("1.00")
    )
    position = models.PositiveIntegerField(default=0)
    topology = optional(Topology, related_name="flavors")
    generation = models.PositiveBigIntegerField(default=1)

    class Meta:
        ordering = ["position", "slug"]
        constraints = [
            models.CheckConstraint(
                name="flavor_factor_at_least_one",
                condition=Q(oversubscription_factor__gte=Decimal("1")),
            ),
            models.CheckConstraint(name="flavor_node_has_gpus", condition=Q(gpus_per_node__gte=1)),
        ]


class FlavorClock(models.Model):
    """Which condition starts a flavor's clock from ``valid_from`` on; written once per change."""

    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="clocks")
    clock_start = models.CharField(max_length=16, choices=Flavor.ClockStart.choices)
    valid_from = models.DateTimeField()

    class Meta:
        ordering = ["flavor", "valid_from", "pk"]


class Workspace(Kept):
    """Who works under one budget: one namespace, one ClusterQueue, one LocalQueue."""

    frozen_fields = ("slug", "account", "namespace")

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="workspaces")
    slug = models.CharField(max_length=40, validators=[dns_label])
    namespace = models.CharField(max_length=63, unique=True)
    name = models.CharField(max_length=120)
    home_flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="+")
    fair_weight = fair_weight()

    class Meta:
        ordering = ["account__slug", "slug"]
        constraints = [
            models.UniqueConstraint(fields=["account", "slug"], name="workspace_slug_in_account"),
            models.CheckConstraint(
                name="workspace_weight_not_negative", condition=Q(fair_weight__gte=0)
            ),
        ]


class Capacity(Dated):
    """GPUs of one flavor on one cluster as an admin states them; wins over the measured."""

    cluster = models.CharField(max_length=40)
    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="capacities")
    gpus = models.PositiveIntegerField()
    reason = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["cluster", "flavor", "valid_from", "pk"]
        constraints = [ends_later("capacity_window")]


class MeasuredCapacity(models.Model):
    """GPUs of one flavor on one cluster as its nodes show them, newest sample only."""

    cluster = models.CharField(max_length=40)
    flavor = models.ForeignKey(Flavor, on_delete=models.CASCADE, related_name="measured")
    ready_gpus = models.PositiveIntegerField()
    broken_gpus = models.PositiveIntegerField(default=0)
    used_gpus = models.PositiveIntegerField(default=0)
    # What workloads held then, and of the used GPUs those of pods in nobody's namespace.
    held_gpus = models.PositiveIntegerField(default=0)
    outside_gpus = models.PositiveIntegerField(default=0)
    by_pods = models.BooleanField(default=True)
    nodes = models.PositiveIntegerField()
    measured_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "flavor"], name="measured_capacity_once")
        ]


class Pool(Kept):
    """Extra quota: an account's own (on its Cohort), or a platform pool above account Cohorts."""

    frozen_fields = ("slug", "account")

    slug = models.CharField(max_length=40, unique=True, validators=[dns_label])
    name = models.CharField(max_length=120)
    account = models.OneToOneField(
        Account, on_delete=models.PROTECT, null=True, blank=True, related_name="pool"
    )
    generation = models.PositiveBigIntegerField(default=1)
    # flavor slug -> GPUs of the amounts that are in force, as the generation knows them.
    in_force = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ["slug"]

    @property
    def is_platform(self) -> bool:
        """Whether several accounts may draw on it."""
        return self.account_id is None


class PoolAmount(Dated):
    """GPUs of one flavor in a pool; the newest row in force at an instant counts."""

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="amounts")
    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="+")
    gpus = models.PositiveIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pool", "flavor", "valid_from", "pk"]
        constraints = [ends_later("pool_amount_window")]


class PoolShare(models.Model):
    """An account draws on a platform pool; ``limits`` is flavor slug → most GPUs (absent: all)."""

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="shares")
    account = models.OneToOneField(Account, on_delete=models.PROTECT, related_name="platform_share")
    limits = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ["account__slug"]


class PoolAllocation(models.Model):
    """The part of a pool's amount that stands on one worker cluster."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="allocations")
    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="+")
    cluster = models.CharField(max_length=40)
    gpus = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["pool", "flavor", "cluster"], name="pool_allocation_once"
            )
        ]


class Envelope(models.Model):
    """What an account may promise itself of one flavor without asking an admin."""

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="envelopes")
    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="+")
    committed = models.PositiveIntegerField(default=0)
    ceiling = models.PositiveIntegerField(default=0)
    pool = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["account__slug", "flavor"]
        constraints = [models.UniqueConstraint(fields=["account", "flavor"], name="envelope_once")]
