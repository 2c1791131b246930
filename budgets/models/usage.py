"""What was used: intervals and the hour facts metered from them, in whole GPU-seconds."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from budgets import intervals
from budgets.models.base import Row, optional
from budgets.models.fleet import Account, Flavor, Workspace
from budgets.models.indexes import TimeIndex


def of_row(table: type[Row], *, related_name: str = "+") -> models.ForeignKey[Row, Row]:
    """Whose a fact is, without an index and without a foreign key of the database.

    There are millions of facts, and each row would be looked up by itself. The intervals, revisions
    and pools that facts are worked out from have such keys, so what they name cannot go. An index
    more is a good part of what a fact costs to write: who is first in the natural key has one by
    it, and nobody looks for a flavor alone.
    """
    return models.ForeignKey(
        table,
        on_delete=models.PROTECT,
        related_name=related_name,
        db_index=False,
        db_constraint=False,
    )


def of_total(table: type[Row]) -> models.ForeignKey[Row, Row]:
    """Whose a total is; the natural key is the only index."""
    return models.ForeignKey(table, on_delete=models.PROTECT, related_name="+", db_index=False)


class Interval(models.Model):
    """One workload's pod set held ``gpus`` of one flavor on one cluster in [start, end)."""

    State = intervals.IntervalState
    Kind = intervals.IntervalKind

    cluster = models.CharField(max_length=40)
    uid = models.CharField(max_length=64)
    epoch = models.PositiveIntegerField()
    pod_set = models.CharField(max_length=63)
    flavor = models.CharField(max_length=253)
    seq = models.PositiveIntegerField()
    # Found by interval_by_workspace.
    workspace = optional(Workspace, related_name="intervals", db_index=False)
    namespace = models.CharField(max_length=63)
    workload = models.CharField(max_length=253)
    cluster_queue = models.CharField(max_length=253, blank=True)
    job_kind = models.CharField(max_length=63, blank=True)
    job_name = models.CharField(max_length=253, blank=True)
    gpus = models.PositiveIntegerField()
    admitted_at = models.DateTimeField()
    start = models.DateTimeField()
    end = models.DateTimeField(null=True, blank=True)
    state = models.CharField(max_length=12, choices=State.choices)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    note = models.CharField(max_length=300, blank=True)
    # The reason of the eviction that ended the admission, such as Preempted.
    ended_by = models.CharField(max_length=63, blank=True, db_default="", default="")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "uid", "epoch", "pod_set", "flavor", "seq"],
                name="interval_natural_key",
            ),
            models.CheckConstraint(
                name="interval_not_negative", condition=Q(end__isnull=True) | Q(end__gte=F("start"))
            ),
        ]
        indexes = [
            models.Index(fields=["workspace", "flavor", "start"], name="interval_by_workspace"),
            models.Index(fields=["end", "start"], name="interval_by_time"),
            models.Index(
                fields=["workspace", "start"],
                name="interval_estimated",
                condition=Q(state="estimated"),
            ),
            models.Index(
                fields=["end"], name="interval_preempted", condition=Q(ended_by="Preempted")
            ),
            models.Index(
                fields=["start"],
                name="interval_unbilled",
                condition=Q(kind__in=["race", "reserved", "undecided", "outside"]),
            ),
        ]


class PendingSpan(models.Model):
    """A workload waited for ``gpus`` devices in [start, end); shown, never billed."""

    cluster = models.CharField(max_length=40)
    uid = models.CharField(max_length=64)
    start = models.DateTimeField()
    end = models.DateTimeField(null=True, blank=True)
    gpus = models.PositiveIntegerField()
    # As with the facts below, no foreign key of the database.
    workspace = optional(
        Workspace, related_name="pending_spans", db_index=False, db_constraint=False
    )
    namespace = models.CharField(max_length=63)
    workload = models.CharField(max_length=253)
    requeued = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "uid", "start"], name="pending_span_natural_key"
            )
        ]
        indexes = [models.Index(fields=["end", "start"], name="pending_span_by_time")]


class UsageAmounts(models.Model):
    """The stored ones of :data:`budgets.amounts.AMOUNTS`, in GPU-seconds."""

    committed = models.BigIntegerField(default=0)
    committed_used = models.BigIntegerField(default=0)
    burst = models.BigIntegerField(default=0)
    borrowed = models.BigIntegerField(default=0)
    lent = models.BigIntegerField(default=0)
    idle = models.BigIntegerField(default=0)
    pending = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class HeldAmounts(models.Model):
    """Those of them that one workload, or one cluster, has, in GPU-seconds."""

    committed_used = models.BigIntegerField(default=0)
    burst = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class UsageRecord(UsageAmounts):
    """Hour fact of one workspace and flavor; ``start`` differs from ``hour`` at period edges."""

    workspace = of_row(Workspace, related_name="usage")
    flavor = of_row(Flavor)
    hour = models.DateTimeField()
    start = models.DateTimeField()

    class Meta:
        ordering = ["hour", "workspace", "flavor"]
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "flavor", "hour", "start"], name="usage_natural_key"
            ),
            models.CheckConstraint(
                name="usage_committed_adds_up",
                condition=Q(committed=F("committed_used") + F("lent") + F("idle")),
            ),
            models.CheckConstraint(
                name="usage_not_negative",
                condition=Q(
                    committed_used__gte=0,
                    burst__gte=0,
                    borrowed__gte=0,
                    lent__gte=0,
                    idle__gte=0,
                    pending__gte=0,
                ),
            ),
        ]
        indexes = [
            models.Index(fields=["hour", "workspace"], name="usage_by_hour"),
            models.Index(
                fields=["hour"], name="usage_moved", condition=Q(lent__gt=0) | Q(borrowed__gt=0)
            ),
        ]


class AccountUsage(models.Model):
    """Hour fact of one account and flavor: what covered its burst."""

    account = of_row(Account, related_name="usage")
    flavor = of_row(Flavor)
    hour = models.DateTimeField()
    start = models.DateTimeField()
    burst = models.BigIntegerField(default=0)
    from_pool = models.BigIntegerField(default=0)
    lent = models.BigIntegerField(default=0)
    from_platform = models.BigIntegerField(default=0)
    uncovered = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["hour", "account", "flavor"]
        constraints = [
            models.UniqueConstraint(
                fields=["account", "flavor", "hour", "start"], name="account_usage_natural_key"
            ),
            models.CheckConstraint(
                name="account_usage_covered",
                condition=Q(burst=F("from_pool") + F("lent") + F("from_platform") + F("uncovered")),
            ),
        ]
        indexes = [models.Index(fields=["hour", "account"], name="account_usage_by_hour")]


class WorkloadUsage(HeldAmounts):
    """GPU-seconds of one workload on one cluster and flavor in one hour, by class."""

    # Found by workload_usage_by_hour.
    workspace = of_row(Workspace, related_name="workload_usage")
    cluster = models.CharField(max_length=40)
    uid = models.CharField(max_length=64)
    flavor = models.CharField(max_length=63)
    hour = models.DateTimeField()
    start = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "uid", "flavor", "hour", "start"],
                name="workload_usage_natural_key",
            )
        ]
        indexes = [
            models.Index(fields=["workspace", "hour"], name="workload_usage_by_hour"),
            # The meter reads whole hours of everybody, every ten seconds.
            TimeIndex(
                fields=["hour"],
                name="workload_usage_by_time",
                autosummarize=True,
                pages_per_range=32,
            ),
        ]


class UsageLabel(models.Model):
    """A label of jobs that an admin named, to group use and costs by.

    What was kept of jobs stays when a label is dropped; named again, it is the same row.
    """

    key = models.CharField(max_length=317, unique=True)
    is_kept = models.BooleanField(default=True)

    class Meta:
        ordering = ["pk"]


class JobLabel(models.Model):
    """What one workload says by a named label: the first value that was seen of it, for good."""

    label = models.ForeignKey(
        UsageLabel, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    cluster = models.CharField(max_length=40)
    uid = models.CharField(max_length=64)
    value = models.CharField(max_length=63)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "uid", "label"], name="job_label_once")
        ]


# Totals are added up from hour facts in the transaction that writes these, and rebuildable at any
# time (services/usage/hour_facts.py): a page over a whole platform reads thousands of rows here in
# the place of millions of facts.


class PlatformHour(UsageAmounts):
    """Hour facts of all workspaces, added up by hour and flavor."""

    hour = models.DateTimeField()
    flavor = of_total(Flavor)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["hour", "flavor"], name="platform_hour_natural_key")
        ]


class AccountHour(UsageAmounts):
    """Hour facts of an account's workspaces, added up by hour and flavor."""

    hour = models.DateTimeField()
    account = of_total(Account)
    flavor = of_total(Flavor)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["account", "hour", "flavor"], name="account_hour_natural_key"
            )
        ]
        indexes = [models.Index(fields=["hour"], name="account_hour_by_hour")]


class WorkspaceDay(UsageAmounts):
    """Hour facts of one workspace, added up by UTC day and flavor."""

    day = models.DateField()
    workspace = of_total(Workspace)
    flavor = of_total(Flavor)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["day", "workspace", "flavor"], name="workspace_day_natural_key"
            )
        ]


class ClusterHour(HeldAmounts):
    """What an account's workloads used on one cluster, by hour and flavor."""

    hour = models.DateTimeField()
    account = of_total(Account)
    cluster = models.CharField(max_length=40)
    flavor = models.CharField(max_length=63)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hour", "account", "cluster", "flavor"], name="cluster_hour_natural_key"
            )
        ]


class MeterState(models.Model):
    """How far a cluster's facts are complete, and from when the meter has to look again."""

    cluster = models.CharField(max_length=40, unique=True)
    complete_until = models.DateTimeField(null=True, blank=True)
    metered_until = models.DateTimeField(null=True, blank=True)
    last_event_id = models.BigIntegerField(default=0)
    # resourceVersion up to which a watch told everything: where the next shift goes on.
    watched_version = models.CharField(max_length=40, blank=True, db_default="", default="")
    dirty_from = models.DateTimeField(null=True, blank=True)
    message = models.CharField(max_length=300, blank=True)
    updated_at = models.DateTimeField(auto_now=True)


class MonthOutlook(models.Model):
    """Cost of the billing month that runs now: so far, and likely at its end.

    An estimate for pages and never billed; statements are worked out from the hour facts.
    """

    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, related_name="outlook")
    month_start = models.DateTimeField()
    month_end = models.DateTimeField()
    currency = models.CharField(max_length=3)
    spent = models.DecimalField(max_digits=18, decimal_places=2)
    expected = models.DecimalField(max_digits=18, decimal_places=2)
    low = models.DecimalField(max_digits=18, decimal_places=2)
    high = models.DecimalField(max_digits=18, decimal_places=2)
    days_known = models.PositiveSmallIntegerField()
    worked_out_at = models.DateTimeField()
