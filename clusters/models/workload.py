"""Workloads as seen on the clusters: the append-only truth, and the newest state for pages."""

from __future__ import annotations

from django.db import models

from budgets.models.base import Retiring
from clusters.documents.queues import FLEET_QUEUE
from clusters.models.cluster import Cluster


class WorkloadEvent(Retiring):
    """One observed state of one Workload; written first, interpreted later.

    Never changed. On PostgreSQL a trigger lets it go only when all that hangs on it is closed.
    """

    class Type(models.TextChoices):
        SEEN = "SEEN"
        DELETED = "DELETED"
        MISSING = "MISSING"

    cluster = models.CharField(max_length=40)
    kind = models.CharField(max_length=40, default="Workload")
    uid = models.CharField(max_length=64)
    resource_version = models.CharField(max_length=40)
    type = models.CharField(max_length=8, choices=Type.choices)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    observed_at = models.DateTimeField()
    # Only for MISSING: the last time a list or watch showed it alive.
    last_seen_at = models.DateTimeField(null=True, blank=True)
    digest = models.CharField(max_length=64)
    payload = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "uid", "resource_version", "type"],
                name="workload_event_once",
            )
        ]


class WorkloadState(models.Model):
    """The newest state of one Workload on one cluster, for lists and pages."""

    class Phase(models.TextChoices):
        PENDING = "pending", "Waiting"
        RESERVED = "reserved", "Quota reserved"
        RUNNING = "running", "Running"
        EVICTED = "evicted", "Stopping"
        FINISHED = "finished", "Finished"
        FAILED = "failed", "Failed"
        GONE = "gone", "Deleted"

    # Found by workload_state_once.
    cluster = models.ForeignKey(
        Cluster, on_delete=models.CASCADE, related_name="workloads", db_index=False
    )
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    # Manager and worker copies of one job share the key; the worker's is the one that bills.
    is_remote_copy = models.BooleanField(default=False)
    job_kind = models.CharField(max_length=63, blank=True)
    job_name = models.CharField(max_length=253, blank=True)
    queue = models.CharField(max_length=253, blank=True)
    priority = models.IntegerField(default=0)
    phase = models.CharField(max_length=10, choices=Phase.choices)
    reason = models.CharField(max_length=120, blank=True)
    message = models.TextField(blank=True)
    # flavor slug → GPUs; while pending the request stands under "".
    gpus = models.JSONField(default=dict)
    gpu_total = models.PositiveIntegerField(default=0)
    worker = models.CharField(max_length=40, blank=True)
    created_at = models.DateTimeField()
    reserved_at = models.DateTimeField(null=True, blank=True)
    admitted_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    evictions = models.PositiveIntegerField(default=0)
    resource_version = models.CharField(max_length=40)
    # Its events were taken away: state, intervals and waiting times stay as they are for good.
    events_retired_at = models.DateTimeField(null=True, blank=True, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "uid"], name="workload_state_once")
        ]
        indexes = [
            models.Index(fields=["namespace", "phase", "-created_at"], name="workload_by_ns"),
            models.Index(fields=["namespace", "name"], name="workload_by_key"),
            models.Index(
                fields=["namespace"],
                name="workload_replaced",
                condition=models.Q(reason="WorkloadSliceReplaced"),
            ),
            models.Index(fields=["namespace", "job_name"], name="workload_by_job"),
        ]

    @property
    def goes_to_worker(self) -> bool:
        """Whether it is a manager's own Workload of a job that runs on a worker."""
        is_own = bool(self.cluster.own_queue) and self.queue != FLEET_QUEUE
        return self.cluster.is_manager and not is_own
