"""The unique constraint of events begins with the same columns as the index that goes."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("clusters", "0008_fewer_workload_indexes")]

    operations = [
        migrations.RemoveIndex(model_name="workloadevent", name="workload_event_by_uid"),
    ]
