"""Labels of jobs that an admin named, and what each job says by them."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

ID = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


class Migration(migrations.Migration):
    dependencies = [("budgets", "0015_topologies")]

    operations = [
        migrations.CreateModel(
            name="UsageLabel",
            fields=[
                ("id", ID),
                ("key", models.CharField(max_length=317, unique=True)),
                ("is_kept", models.BooleanField(default=True)),
            ],
            options={"ordering": ["pk"]},
        ),
        migrations.CreateModel(
            name="JobLabel",
            fields=[
                ("id", ID),
                ("cluster", models.CharField(max_length=40)),
                ("uid", models.CharField(max_length=64)),
                ("value", models.CharField(max_length=63)),
                (
                    "label",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="budgets.usagelabel",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "uid", "label"), name="job_label_once"
                    )
                ],
            },
        ),
    ]
