"""What was applied to a cluster, object by object, and what somebody else changed there."""

from __future__ import annotations

from django.db import models

from clusters.models.cluster import Cluster


class AppliedGeneration(models.Model):
    """The generation of one budget, account, pool or flavor that a cluster carries."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="applied")
    subject = models.CharField(max_length=120)
    observed_generation = models.PositiveBigIntegerField()
    applied_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "subject"], name="applied_generation_once")
        ]


class ObjectState(models.Model):
    """One object that the portal wants, or has, on a cluster."""

    class State(models.TextChoices):
        SYNCED = "synced"
        PENDING = "pending"
        DRIFTED = "drifted"
        FAILED = "failed"
        FOREIGN = "foreign"
        STAYS = "stays"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="object_states")
    kind = models.CharField(max_length=40)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    subject = models.CharField(max_length=120, blank=True)
    state = models.CharField(max_length=8, choices=State.choices)
    message = models.CharField(max_length=1000, blank=True)
    generation = models.PositiveBigIntegerField(default=0)
    # What would be written while writing is off: action, changes, document. Never a Secret.
    would = models.JSONField(null=True, blank=True)
    changed_at = models.DateTimeField()

    class Meta:
        ordering = ["kind", "namespace", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "namespace", "name"], name="object_state_once"
            )
        ]
        indexes = [models.Index(fields=["cluster", "state"], name="object_by_state")]

    @property
    def path(self) -> str:
        """Its name, with the namespace in front where it has one."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Drift(models.Model):
    """One field of one object that somebody else changed."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="drifts")
    kind = models.CharField(max_length=40)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    field = models.CharField(max_length=300)
    wanted = models.JSONField(null=True)
    found = models.JSONField(null=True)
    manager = models.CharField(max_length=128, blank=True)
    noticed_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolution = models.CharField(max_length=60, blank=True)

    class Meta:
        ordering = ["-noticed_at"]
        indexes = [models.Index(fields=["cluster", "resolved_at"], name="drift_open")]
