"""Which of the processes that run Celery's beat sends its tasks."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class BeatLease(models.Model):
    """The one row: who sends, and when it said so last, by the database's clock."""

    ONLY = 1

    holder = models.CharField(max_length=300)
    renewed_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(name="beat_lease_only_one", condition=Q(pk=1))]
