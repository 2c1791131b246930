"""What stands beside the ledger to check it: sampled capacity by hour, and what disagrees.

Source: spec money, sections 1.3 to 1.5; issue 6, section 1.
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from budgets.models.access import person
from budgets.models.approvals import Approval, approved
from budgets.models.base import optional
from budgets.units import HOUR_S


class CapacityWatch(models.Model):
    """Since when a cluster's GPUs are sampled, up to when, and which hours were compared."""

    cluster = models.CharField(max_length=40, unique=True)
    since = models.DateTimeField()
    until = models.DateTimeField()
    checked_until = models.DateTimeField(null=True, blank=True)


class CapacityHour(models.Model):
    """GPU-seconds that samples of nodes and pods come to in one UTC hour.

    ``measured_s``: seconds of the hour that samples stand for. The row without a flavor says so
    for the cluster as a whole; a flavor without a row had no node.
    """

    cluster = models.CharField(max_length=40)
    flavor = models.CharField(max_length=63, blank=True)
    hour = models.DateTimeField()
    measured_s = models.PositiveIntegerField(default=0)
    capacity = models.BigIntegerField(default=0)
    down = models.BigIntegerField(default=0)
    free = models.BigIntegerField(default=0)
    over_admitted = models.BigIntegerField(default=0)
    outside = models.BigIntegerField(default=0)
    by_pods = models.BooleanField(default=True)

    class Meta:
        ordering = ["hour", "cluster", "flavor"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "flavor", "hour"], name="capacity_hour_natural_key"
            ),
            models.CheckConstraint(
                name="capacity_hour_not_negative",
                condition=Q(
                    capacity__gte=0, down__gte=0, free__gte=0, over_admitted__gte=0, outside__gte=0
                ),
            ),
            models.CheckConstraint(
                name="capacity_hour_is_an_hour", condition=Q(measured_s__lte=HOUR_S)
            ),
        ]
        indexes = [models.Index(fields=["hour"], name="capacity_hour_by_time")]


class Discrepancy(models.Model):
    """Something that the ledger and its checks disagree on, over a time; blocks the close.

    It is cleared when a later look finds that both agree, or accepted by two people.
    """

    class Kind(models.TextChoices):
        CAPACITY = "capacity", "Capacity does not add up"
        UNMEASURED = "unmeasured", "Capacity was not measured"
        QUEUE = "queue", "A queue's use differs from the ledger's"
        CLOCK = "clock", "A cluster's clock is wrong"
        HISTORY = "history", "A job's history cannot be used"
        UNWATCHED = "unwatched", "The cluster was not watched"

    class State(models.TextChoices):
        OPEN = "open", "Open"
        PROPOSED = "proposed", "Waiting for approval"
        ACCEPTED = "accepted", "Accepted"
        CLEARED = "cleared", "Cleared"

    kind = models.CharField(max_length=10, choices=Kind.choices)
    cluster = models.CharField(max_length=40)
    # The queue or the workload that it is about.
    subject = models.CharField(max_length=253, blank=True)
    flavor = models.CharField(max_length=63, blank=True)
    start = models.DateTimeField()
    # None: it goes on.
    end = models.DateTimeField(null=True, blank=True)
    # GPU-seconds, GPUs of a queue, seconds of a clock: the largest that was seen.
    amount = models.BigIntegerField(default=0)
    message = models.CharField(max_length=500)
    samples = models.JSONField(default=list, blank=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    raised_at = models.DateTimeField(auto_now_add=True)
    cleared_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=500, blank=True)
    proposed_by = person()
    proposed_at = models.DateTimeField(null=True, blank=True)
    decided_by = person()
    decided_at = models.DateTimeField(null=True, blank=True)
    approval = optional(Approval)

    class Meta:
        ordering = ["-start", "cluster", "pk"]
        constraints = [
            models.CheckConstraint(
                name="discrepancy_not_negative",
                condition=Q(end__isnull=True) | Q(end__gte=F("start")),
            ),
            models.CheckConstraint(
                name="discrepancy_four_eyes", condition=approved(state="accepted")
            ),
            models.CheckConstraint(
                name="discrepancy_accepted_has_reason",
                condition=~Q(state="accepted") | ~Q(reason=""),
            ),
        ]
        indexes = [
            models.Index(
                fields=["start"],
                name="discrepancy_unsettled",
                condition=Q(state__in=["open", "proposed"]),
            ),
            models.Index(fields=["kind", "cluster", "subject"], name="discrepancy_by_place"),
        ]

    @property
    def is_unsettled(self) -> bool:
        """Whether it stands in the way of a close."""
        return self.state in UNSETTLED


UNSETTLED = (Discrepancy.State.OPEN, Discrepancy.State.PROPOSED)
