"""What the nodes of clusters show that have GPUs: where they stand, and what is free on them."""

from __future__ import annotations

from django.db import models


class NodeSight(models.Model):
    """One node of one flavor, as it was counted last.

    ``gpus`` are those that it offers, 0 while it is not ready or takes no pods; ``used`` is what
    its pods asked for. ``labels`` are at most ``clusters.reconcile.usage.measure.MOST_LABELS``.
    """

    cluster = models.CharField(max_length=40)
    name = models.CharField(max_length=253)
    flavor = models.CharField(max_length=40)
    labels = models.JSONField(default=dict)
    gpus = models.PositiveIntegerField()
    used = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="node_sight_once")]
        indexes = [models.Index(fields=["flavor", "cluster"], name="node_sight_by_flavor")]
