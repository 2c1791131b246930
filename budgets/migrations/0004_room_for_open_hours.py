"""Pages of hour facts of jobs keep a tenth free, where the open hour is written again and again."""

from __future__ import annotations

from django.db import migrations

TABLE = "budgets_workloadusage"


def _run(schema_editor, change: str) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f'ALTER TABLE "{TABLE}" {change}')


def leave(apps, schema_editor) -> None:
    _run(schema_editor, "SET (fillfactor = 90)")


def fill(apps, schema_editor) -> None:
    _run(schema_editor, "RESET (fillfactor)")


class Migration(migrations.Migration):

    dependencies = [
        ('budgets', '0003_workload_usage_by_time'),
    ]

    operations = [migrations.RunPython(leave, fill, elidable=False)]
