"""Derived rows, which come by the million: what is not looked up by needs no index, and what they
name is kept by the rows that they are worked out from."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

KEYS = (
    ("accountusage", "account", "usage", "budgets.account"),
    ("accountusage", "flavor", "+", "budgets.flavor"),
    ("usagerecord", "workspace", "usage", "budgets.workspace"),
    ("usagerecord", "flavor", "+", "budgets.flavor"),
    ("workloadusage", "workspace", "workload_usage", "budgets.workspace"),
)


class Migration(migrations.Migration):
    dependencies = [("budgets", "0017_fewer_usage_indexes")]

    operations = [
        migrations.RemoveIndex(model_name="interval", name="interval_by_uid"),
        migrations.RemoveIndex(model_name="workloadusage", name="workload_usage_by_uid"),
        migrations.AlterField(
            model_name="pendingspan",
            name="workspace",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="pending_spans",
                to="budgets.workspace",
            ),
        ),
        *(
            migrations.AlterField(
                model_name=model,
                name=name,
                field=models.ForeignKey(
                    db_constraint=False,
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name=related,
                    to=to,
                ),
            )
            for model, name, related, to in KEYS
        ),
    ]
