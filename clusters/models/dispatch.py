"""Rounds of nominations: who was offered a workload, why, and what came of it."""

from __future__ import annotations

from django.db import models

from clusters.models.cluster import Cluster


class DispatchRound(models.Model):
    """One round of one workload under one reservation of the manager's quota.

    Written by the dispatch shift; the oldest are removed (see ``reconcile.multikueue.trail``).
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
