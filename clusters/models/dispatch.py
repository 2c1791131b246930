"""Rounds of nominations: who was offered a workload, why, and what came of it.

And beside a live Kueue: how nominations are written, and what the guard found and did.
"""

from __future__ import annotations

from django.db import models

from clusters.models.cluster import Cluster


class DispatchRound(models.Model):
    """One round of one workload under one reservation of the manager's quota.

    Written by the dispatch shift; the oldest are removed (see ``reconcile.multikueue.nominating``).
    """

    class Outcome(models.TextChoices):
        OPEN = "open", "Waits for an answer"
        WON = "won", "Won"
        PASSED = "passed", "Nobody took it in time"
        ENDED = "ended", "The reservation ended first"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="dispatch_rounds")
    workload_uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    # Names the reservation: the workload's UID and when quota was reserved.
    attempt = models.CharField(max_length=100)
    number = models.PositiveIntegerField()
    dispatcher = models.CharField(max_length=200)
    # Workers that this round added, and for every worker why it was taken or passed over.
    nominated = models.JSONField(default=list)
    why = models.JSONField(default=dict)
    # Workers whose copy was removed because another one had won: name → when.
    losers = models.JSONField(default=dict)
    outcome = models.CharField(max_length=6, choices=Outcome.choices, default=Outcome.OPEN)
    winner = models.CharField(max_length=40, blank=True)
    started_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True, blank=True)
    # When the whole reservation ended, and why: finished, evicted, deleted.
    ended_at = models.DateTimeField(null=True, blank=True)
    ending = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["started_at", "number"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "attempt", "number"], name="dispatch_round_once"
            )
        ]
        indexes = [
            models.Index(fields=["workload_uid", "started_at"], name="dispatch_round_of"),
            models.Index(fields=["cluster", "ended_at"], name="dispatch_round_open"),
        ]


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
        OPEN = "open", "Not cured yet"
        CURED = "cured", "Cured by the portal"
        PASSED = "passed", "Ended without the portal"

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
