"""The index of a foreign key that a unique constraint of the same table begins with."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0007_workloads_by_job")]

    operations = [
        migrations.AlterField(
            model_name="workloadstate",
            name="cluster",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="workloads",
                to="clusters.cluster",
            ),
        ),
    ]
