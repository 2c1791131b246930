"""Tells the meter from when it has to look again."""

from __future__ import annotations

from datetime import datetime

from django.db.models import DateTimeField, Value
from django.db.models.functions import Coalesce, Least

from budgets.models import MeterState


def mark_dirty(since: datetime, *, cluster: str | None = None) -> None:
    """Have the meter rewrite its facts from ``since`` on, for one cluster or for all.

    The row is written even where an earlier mark stays: so a change waits for a meter that may
    have read what was there before it, and marks what that meter leaves behind.

    Args:
        since: UTC; an earlier mark stays.
        cluster: Cluster slug, which gets a row when it has none; None for every known one.
    """
    if cluster is not None:
        MeterState.objects.get_or_create(cluster=cluster, defaults={"dirty_from": since})
    rows = (
        MeterState.objects.all() if cluster is None else MeterState.objects.filter(cluster=cluster)
    )
    at = Value(since, output_field=DateTimeField())
    rows.update(dirty_from=Least(Coalesce("dirty_from", at), at))
