"""The words of choices are those of the glossary; no column changes."""

from __future__ import annotations

from django.db import migrations, models

STOPS = [
    ("None", "Not held: new jobs start"),
    ("Hold", "Held: running jobs finish, nothing new starts"),
    ("HoldAndDrain", "Drained: running jobs are stopped"),
]


class Migration(migrations.Migration):
    dependencies = [("budgets", "0018_audit_streams")]

    operations = [
        migrations.AlterField(
            model_name="alertrule",
            name="measure",
            field=models.CharField(
                choices=[
                    ("spend", "Money spent"),
                    ("spend_forecast", "Money, forecast to the end of the window"),
                    ("hours", "GPU-hours used"),
                    ("hours_forecast", "GPU-hours, forecast to the end of the window"),
                    ("burst_share", "Burst share of the use (%)"),
                    ("idle_share", "Idle share of the committed GPUs (%)"),
                    ("pending_age", "Longest wait of a pending job (hours)"),
                    ("budget_end", "Days until the budget ends"),
                    ("cap", "Spend cap"),
                ],
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="approval",
            name="kind",
            field=models.CharField(
                choices=[
                    ("two", "Two people"),
                    ("one", "One person who runs everything alone"),
                    ("before", "Done before two people had to agree"),
                ],
                max_length=6,
            ),
        ),
        migrations.AlterField(
            model_name="budget",
            name="stop_policy",
            field=models.CharField(choices=STOPS, default="None", max_length=16),
        ),
        migrations.AlterField(
            model_name="budgetrevision",
            name="state",
            field=models.CharField(
                choices=[
                    ("live", "Accepted"),
                    ("requested", "Waiting for a decision"),
                    ("in_part", "Accepted in part"),
                    ("declined", "Declined"),
                    ("withdrawn", "Withdrawn"),
                ],
                max_length=12,
            ),
        ),
        migrations.AlterField(
            model_name="discrepancy",
            name="kind",
            field=models.CharField(
                choices=[
                    ("capacity", "Capacity does not add up"),
                    ("unmeasured", "Capacity was not measured"),
                    ("queue", "A queue's use differs from the ledger's"),
                    ("clock", "A cluster's clock is wrong"),
                    ("history", "A job's history cannot be used"),
                    ("unwatched", "The cluster was not watched"),
                ],
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="exportplan",
            name="every",
            field=models.CharField(
                choices=[
                    ("close", "after every close of a month"),
                    ("day", "every day, for the month so far"),
                ],
                max_length=5,
            ),
        ),
        migrations.AlterField(
            model_name="spendeffect",
            name="stop_policy",
            field=models.CharField(choices=STOPS, default="None", max_length=16),
        ),
        migrations.AlterField(
            model_name="spendrule",
            name="action",
            field=models.CharField(
                choices=[
                    ("warn", "Only tell us"),
                    ("drop_to_floor", "Stop bursting"),
                    ("hold", "Hold new jobs"),
                    ("hold_and_drain", "Hold new jobs and stop running jobs"),
                ],
                default="warn",
                max_length=14,
            ),
        ),
        migrations.AlterField(
            model_name="spendrule",
            name="counts",
            field=models.CharField(
                choices=[("above_floor", "burst"), ("everything", "committed and burst")],
                default="above_floor",
                max_length=11,
            ),
        ),
    ]
