"""A request can be accepted in part: the revision that answers it names it."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("budgets", "0010_charges_by_job")]

    operations = [
        migrations.AddField(
            model_name="budgetrevision",
            name="answers",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name="budgetrevision",
            name="state",
            field=models.CharField(
                choices=[
                    ("live", "Live"),
                    ("requested", "Waiting for a decision"),
                    ("in_part", "Accepted in part"),
                    ("declined", "Declined"),
                    ("withdrawn", "Withdrawn"),
                ],
                max_length=12,
            ),
        ),
    ]
