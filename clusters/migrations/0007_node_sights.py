"""Nodes with GPUs: where they stand, and what is free on them."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0006_queue_shares")]

    operations = [
        migrations.CreateModel(
            name="NodeSight",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("cluster", models.CharField(max_length=40)),
                ("name", models.CharField(max_length=253)),
                ("flavor", models.CharField(max_length=40)),
                ("labels", models.JSONField(default=dict)),
                ("gpus", models.PositiveIntegerField()),
                ("used", models.PositiveBigIntegerField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["flavor", "cluster"], name="node_sight_by_flavor")
                ],
                "constraints": [
                    models.UniqueConstraint(fields=["cluster", "name"], name="node_sight_once")
                ],
            },
        )
    ]
