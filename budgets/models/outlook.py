"""How each workspace's month is likely to end; worked out beside the meter, read by pages."""

from __future__ import annotations

from django.db import models

from budgets.models.fleet import Workspace


class MonthOutlook(models.Model):
    """Cost of the billing month that runs now: so far, and likely at its end.

    An estimate for pages and never billed; statements are worked out from the hour facts.
    """

    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, related_name="outlook")
    month_start = models.DateTimeField()
    month_end = models.DateTimeField()
    currency = models.CharField(max_length=3)
    spent = models.DecimalField(max_digits=18, decimal_places=2)
    expected = models.DecimalField(max_digits=18, decimal_places=2)
    low = models.DecimalField(max_digits=18, decimal_places=2)
    high = models.DecimalField(max_digits=18, decimal_places=2)
    days_known = models.PositiveSmallIntegerField()
    worked_out_at = models.DateTimeField()
