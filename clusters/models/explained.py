"""What the engine says of a cluster: why workloads wait, answers to what-if, and where it errs.

Written by the shift that holds the warm engine of a cluster: admission in ``portal`` mode, the
shadow in ``kueue`` mode. Names of other accounts' workloads stand here as they are; what a reader
may see of them is the selector's business.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q


class PendingReason(models.Model):
    """Why one Workload waits, with the evidence behind the sentence.

    ``evidence`` has the shape that ``clusters.explaining.evidence`` gives it. Amounts in
    it are in the resource's own unit (devices, milli-CPUs, bytes).
    """

    cluster = models.CharField(max_length=40)
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    workspace = models.ForeignKey(
        "budgets.Workspace", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    evidence = models.JSONField()
    # When the same reason was first seen; a message that only counts anew does not move it.
    since = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "uid"], name="pending_reason_once")
        ]
        indexes = [models.Index(fields=["namespace", "name"], name="pending_reason_by_key")]


class QueueShare(models.Model):
    """What one ClusterQueue or Cohort borrows against its weight: who goes first beside whom.

    Of clusters with fair sharing alone. ``borrowed`` and ``lendable`` are in the resource's own
    unit; ``share`` is Kueue's ``status.fairSharing.weightedShare``.
    """

    cluster = models.CharField(max_length=40)
    is_cohort = models.BooleanField()
    name = models.CharField(max_length=253)
    parent = models.CharField(max_length=253)
    weight = models.CharField(max_length=40)
    resource = models.CharField(max_length=320, blank=True)
    borrowed = models.BigIntegerField()
    lendable = models.BigIntegerField()
    share = models.BigIntegerField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "is_cohort", "name"], name="queue_share_once"
            )
        ]
        indexes = [models.Index(fields=["cluster", "parent"], name="queue_share_by_parent")]


class ForecastMade(models.Model):
    """A range that was told of when a waiting job starts, and whether it held once it was over.

    One for each job, made at a moment by chance while it waits. ``low_s`` and ``high_s`` are the
    range as it was played, seconds from ``made_at``; ``earliest`` and ``latest`` the stated one,
    which ``clusters.forecasting.calibration`` moved. ``waited_s`` is None as long as the job waits.
    """

    cluster = models.CharField(max_length=40)
    uid = models.CharField(max_length=64)
    made_at = models.DateTimeField()
    low_s = models.PositiveIntegerField()
    high_s = models.PositiveIntegerField()
    earliest = models.DateTimeField()
    latest = models.DateTimeField()
    coverage_percent = models.PositiveSmallIntegerField()
    waited_s = models.PositiveIntegerField(null=True, blank=True)
    # None until the range is over.
    has_held = models.BooleanField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "uid"], name="forecast_made_once")
        ]
        indexes = [models.Index(fields=["cluster", "latest"], name="forecast_made_by_end")]


class Question(models.Model):
    """Something a person asks the engine of one cluster; answered within seconds or not at all.

    ``asked`` is ``{"changes": [...]}`` and ``answer`` a document, both in the shapes of
    ``clusters.kueue.explanation.asking``; the answer has ``"tookMs"`` besides. ``problem`` says
    instead why there is none.
    """

    class Kind(models.TextChoices):
        WHAT_IF = "what_if"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.CharField(max_length=40)
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.WHAT_IF)
    asked = models.JSONField()
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+"
    )
    created_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True, blank=True)
    answer = models.JSONField(null=True, blank=True)
    problem = models.CharField(max_length=500, blank=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["cluster", "created_at"],
                condition=Q(answered_at=None),
                name="question_open",
            )
        ]


class ShadowDifference(models.Model):
    """One workload of which the engine says something else than Kueue did, at rest."""

    class Kind(models.TextChoices):
        ADMISSION = "admission", "Admission"
        PREEMPTION = "preemption", "Preemption"
        PENDING = "pending", "Reason to wait"

    cluster = models.CharField(max_length=40)
    uid = models.CharField(max_length=64)
    kind = models.CharField(max_length=10, choices=Kind.choices)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    # Both sides in the same shape, {"decision": str, "clusterQueue": str, "flavors": {...},
    # "reason": str, "message": str}; empty parts left out.
    portal_says = models.JSONField()
    kueue_did = models.JSONField()
    count = models.PositiveIntegerField(default=1)
    first_seen_at = models.DateTimeField()
    seen_at = models.DateTimeField()

    class Meta:
        ordering = ["-seen_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "uid", "kind"], name="shadow_difference_once"
            )
        ]
        indexes = [models.Index(fields=["cluster", "-seen_at"], name="shadow_difference_new")]


class ShadowTally(models.Model):
    """How many decisions of Kueue on one cluster were compared, and how many differed."""

    cluster = models.CharField(max_length=40, unique=True)
    compared = models.PositiveBigIntegerField(default=0)
    different = models.PositiveBigIntegerField(default=0)
    # Decisions passed over because the cluster did not come to rest around them.
    passed_over = models.PositiveBigIntegerField(default=0)
    since = models.DateTimeField()
    updated_at = models.DateTimeField()
