"""Flavors may have a topology: how their nodes stand together."""

from __future__ import annotations

import django.db.models.deletion
from django.core.validators import RegexValidator
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("budgets", "0014_fair_weights")]

    operations = [
        migrations.CreateModel(
            name="Topology",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "slug",
                    models.CharField(
                        max_length=40,
                        unique=True,
                        validators=[
                            RegexValidator(
                                "^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$",
                                "Use 1 to 40 lower-case letters, digits and hyphens, beginning and "
                                "ending with a letter or digit.",
                            )
                        ],
                    ),
                ),
                ("name", models.CharField(max_length=120)),
                ("levels", models.JSONField()),
                ("generation", models.PositiveBigIntegerField(default=1)),
                ("archived_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={"ordering": ["slug"]},
        ),
        migrations.AddField(
            model_name="flavor",
            name="topology",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="flavors",
                to="budgets.topology",
            ),
        ),
    ]
