"""Beside a live Kueue: how nominations are written, and what the guard found and did."""

from __future__ import annotations

from django.db import models

from clusters.models.cluster import Cluster


class NominationWay(models.Model):
    """How the portal can nominate workers where a Kueue dispatches; see ``reconcile.external``."""

    class Way(models.TextChoices):
        MERGE_PATCH = "merge-patch", "M1: merge patches on both sides"
        POLICY = "policy", "M2: own field manager, an admission policy clears the field"
        HAND_OVER = "hand-over", "M4: merge patch, then the field is handed over to Kueue"
        NONE = "none", "None: nobody is nominated"

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="nomination_way")
    way = models.CharField(max_length=11, choices=Way.choices)
    why = models.CharField(max_length=500)
    checked_at = models.DateTimeField()


class GuardIncident(models.Model):
    """One defect of Kueue that the guard saw: what was found, what was done, and when.

    Rows belong to the manager; ``worker`` is where the trouble is, if it is on one.
    """

    class Defect(models.TextChoices):
        STALE_COPY = "stale-copy", "A returning worker's old copy"
        STUCK_QUOTA = "stuck-quota", "Quota kept after a stop"
        NOT_REQUEUED = "not-requeued", "Not queued after a rejection"

    class State(models.TextChoices):
        OPEN = "open", "Stands"
        CURED = "cured", "Cured by the portal"
        PASSED = "passed", "Over without the portal"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="guard_incidents")
    defect = models.CharField(max_length=12, choices=Defect.choices)
    workload_uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    worker = models.CharField(max_length=40, blank=True)
    found = models.CharField(max_length=1000)
    done = models.CharField(max_length=500, blank=True)
    state = models.CharField(max_length=6, choices=State.choices, default=State.OPEN)
    noticed_at = models.DateTimeField()
    acted_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-noticed_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "defect", "workload_uid", "worker", "noticed_at"],
                name="guard_incident_once",
            )
        ]
        indexes = [
            models.Index(fields=["workload_uid", "noticed_at"], name="guard_incident_of"),
            models.Index(fields=["cluster", "ended_at"], name="guard_incident_open"),
        ]
