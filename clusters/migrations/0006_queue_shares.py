"""What each queue borrows against its weight, as a cluster's engine knows it."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0005_single_cluster")]

    operations = [
        migrations.CreateModel(
            name="QueueShare",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("cluster", models.CharField(max_length=40)),
                ("is_cohort", models.BooleanField()),
                ("name", models.CharField(max_length=253)),
                ("parent", models.CharField(max_length=253)),
                ("weight", models.CharField(max_length=40)),
                ("resource", models.CharField(blank=True, max_length=320)),
                ("borrowed", models.BigIntegerField()),
                ("lendable", models.BigIntegerField()),
                ("share", models.BigIntegerField()),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["cluster", "parent"], name="queue_share_by_parent")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["cluster", "is_cohort", "name"], name="queue_share_once"
                    )
                ],
            },
        )
    ]
