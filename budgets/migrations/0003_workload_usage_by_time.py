"""The meter finds the facts of jobs of its hours without reading those of all months."""

from __future__ import annotations

from django.db import migrations

from budgets.migrations._steps import AddIndexBesideWrites
from budgets.models.indexes import TimeIndex


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('budgets', '0002_triggers'),
    ]

    operations = [
        AddIndexBesideWrites(
            model_name='workloadusage',
            index=TimeIndex(
                autosummarize=True,
                fields=['hour'],
                name='workload_usage_by_time',
                pages_per_range=32,
            ),
        ),
    ]
