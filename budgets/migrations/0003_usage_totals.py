"""Totals of hour facts by hour, account, cluster and day."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("budgets", "0002_insert_only_triggers"),
    ]

    operations = [
        migrations.CreateModel(
            name="AccountHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("committed", models.BigIntegerField(default=0)),
                ("committed_used", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                ("borrowed", models.BigIntegerField(default=0)),
                ("lent", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("pending", models.BigIntegerField(default=0)),
                ("hour", models.DateTimeField()),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="budgets.account",
                    ),
                ),
                (
                    "flavor",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="budgets.flavor",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("account", "hour", "flavor"), name="account_hour_natural_key"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ClusterHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("cluster", models.CharField(max_length=40)),
                ("flavor", models.CharField(max_length=63)),
                ("committed_used", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="budgets.account",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("hour", "account", "cluster", "flavor"),
                        name="cluster_hour_natural_key",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PlatformHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("committed", models.BigIntegerField(default=0)),
                ("committed_used", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                ("borrowed", models.BigIntegerField(default=0)),
                ("lent", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("pending", models.BigIntegerField(default=0)),
                ("hour", models.DateTimeField()),
                (
                    "flavor",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="budgets.flavor",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("hour", "flavor"), name="platform_hour_natural_key"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkspaceDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("committed", models.BigIntegerField(default=0)),
                ("committed_used", models.BigIntegerField(default=0)),
                ("burst", models.BigIntegerField(default=0)),
                ("borrowed", models.BigIntegerField(default=0)),
                ("lent", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("pending", models.BigIntegerField(default=0)),
                ("day", models.DateField()),
                (
                    "flavor",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="budgets.flavor",
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="budgets.workspace",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "workspace", "flavor"), name="workspace_day_natural_key"
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="accountusage",
            index=models.Index(fields=["hour", "account"], name="account_usage_by_hour"),
        ),
        migrations.AddIndex(
            model_name="accounthour",
            index=models.Index(fields=["hour"], name="account_hour_by_hour"),
        ),
    ]
