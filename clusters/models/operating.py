"""What operators do to queues' surroundings: windows of maintenance, and single jobs stopped."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import F, Q

from budgets.models import Flavor, Workspace
from budgets.models.access import person
from budgets.models.base import FrozenFields
from clusters.models.cluster import Cluster


class MaintenanceWindow(FrozenFields):
    """A worker, or a flavor on one worker or on all, that takes no new work for a while.

    ``generation`` rises whenever the clusters have to be written anew. Windows may overlap: what
    they cover adds up, and draining wins.
    """

    class State(models.TextChoices):
        SCHEDULED = "scheduled", "Scheduled"
        ACTIVE = "active", "In force"
        OVER = "over", "Over"
        CANCELLED = "cancelled", "Called off"

    frozen_fields = ("cluster", "flavor", "drains", "starts_at", "ends_at", "reason", "author")

    # Nothing here: on every worker.
    cluster = models.ForeignKey(
        Cluster, on_delete=models.PROTECT, null=True, blank=True, related_name="maintenance"
    )
    # Nothing here: the whole worker.
    flavor = models.ForeignKey(
        Flavor, on_delete=models.PROTECT, null=True, blank=True, related_name="maintenance"
    )
    drains = models.BooleanField(default=False)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.CharField(max_length=300)
    state = models.CharField(max_length=9, choices=State.choices, default=State.SCHEDULED)
    generation = models.PositiveBigIntegerField(default=1)
    author = person()
    created_at = models.DateTimeField(auto_now_add=True)
    # Earlier than planned: when, by whom, why.
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = person()
    end_reason = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["starts_at", "pk"]
        constraints = [
            models.CheckConstraint(
                name="maintenance_ends_after_it_starts", condition=Q(ends_at__gt=F("starts_at"))
            ),
            models.CheckConstraint(
                name="maintenance_covers_something",
                condition=Q(cluster__isnull=False) | Q(flavor__isnull=False),
            ),
        ]
        indexes = [models.Index(fields=["state", "starts_at"], name="maintenance_by_state")]

    @property
    def until(self) -> datetime:
        """When it ends, or ended."""
        return self.ended_at or self.ends_at

    @property
    def place(self) -> str:
        """What it covers, in words."""
        worker = self.cluster.name if self.cluster else "every worker"
        return f"{self.flavor.name} on {worker}" if self.flavor else worker

    @property
    def effect(self) -> str:
        """What becomes of jobs, in words."""
        if self.drains:
            return "no new job starts there, and running jobs are stopped and queued again"
        return "no new job starts there, and running jobs go on"


class MaintenanceFloor(models.Model):
    """The part of a workspace's floor that stands where a window is; whole GPUs.

    Written when the window is planned, and anew when it begins.
    """

    window = models.ForeignKey(MaintenanceWindow, on_delete=models.CASCADE, related_name="floors")
    workspace = models.ForeignKey(
        Workspace, on_delete=models.PROTECT, related_name="maintenance_floors"
    )
    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="+")
    gpus = models.PositiveIntegerField()
    # Of the whole floor of the flavor then.
    committed = models.PositiveIntegerField()
    # GPU-seconds that were promised, asked for and not given while the window held.
    unmet = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ["window", "workspace__namespace", "flavor__slug"]
        constraints = [
            models.UniqueConstraint(
                fields=["window", "workspace", "flavor"], name="maintenance_floor_once"
            )
        ]


class WorkloadAction(FrozenFields):
    """Something that a person, or a window, wants done to one job on its cluster.

    Written with the wish and carried out afterwards: a write that fails is tried again, and what
    became of it is told here. A RESTART is two writes: stop, and go on once its quota is free.
    """

    class Verb(models.TextChoices):
        DEACTIVATE = "deactivate", "Cancel"
        ACTIVATE = "activate", "Put back in the queue"
        RESTART = "restart", "Stop and queue again"
        DELETE_JOB = "delete_job", "Delete the job"

    class State(models.TextChoices):
        WAITING = "waiting", "Not yet carried out"
        DONE = "done", "Carried out"
        FAILED = "failed", "Refused"
        WITHDRAWN = "withdrawn", "Taken back"

    frozen_fields = ("cluster", "uid", "namespace", "name", "verb", "reason", "asked_by")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="actions")
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    verb = models.CharField(max_length=10, choices=Verb.choices)
    reason = models.CharField(max_length=300)
    # Nobody: the portal itself, for a window.
    asked_by = person()
    window = models.ForeignKey(
        MaintenanceWindow, on_delete=models.SET_NULL, null=True, blank=True, related_name="actions"
    )
    state = models.CharField(max_length=9, choices=State.choices, default=State.WAITING)
    # A restart: the job was stopped, and is to go on.
    is_stopped = models.BooleanField(default=False)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField()
    message = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["created_at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "uid"],
                condition=Q(state="waiting"),
                name="workload_action_one_waiting",
            )
        ]
        indexes = [
            models.Index(fields=["state", "next_attempt_at"], name="workload_action_due"),
            models.Index(fields=["cluster", "uid", "-created_at"], name="workload_action_of_job"),
        ]
