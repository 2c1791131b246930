"""Indexes of foreign keys that others of the same table begin with, or that nobody asks by."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("budgets", "0016_preemption_credit")]

    operations = [
        migrations.AlterField(
            model_name="interval",
            name="workspace",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="intervals",
                to="budgets.workspace",
            ),
        ),
        migrations.AlterField(
            model_name="usagerecord",
            name="workspace",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="usage",
                to="budgets.workspace",
            ),
        ),
        migrations.AlterField(
            model_name="usagerecord",
            name="flavor",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="budgets.flavor",
            ),
        ),
        migrations.AlterField(
            model_name="accountusage",
            name="account",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="usage",
                to="budgets.account",
            ),
        ),
        migrations.AlterField(
            model_name="accountusage",
            name="flavor",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="budgets.flavor",
            ),
        ),
        migrations.AlterField(
            model_name="workloadusage",
            name="workspace",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="workload_usage",
                to="budgets.workspace",
            ),
        ),
    ]
