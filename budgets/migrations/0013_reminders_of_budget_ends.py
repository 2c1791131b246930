"""People can be told before a budget ends."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("budgets", "0012_billed_to")]

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
                    ("cap", "Cap of a spend rule"),
                ],
                max_length=16,
            ),
        )
    ]
