"""PostgreSQL keeps closed periods, fixed statements and prices as they are.

SQLite gets its triggers after each migrate (:mod:`budgets.models.triggers`): it rebuilds tables
to change them, which drops the triggers that stand on them.
"""

from __future__ import annotations

from pathlib import Path

from django.db import migrations

FOLDER = Path(__file__).parent / "sql"


def _run(name: str, schema_editor) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute((FOLDER / name).read_text(), params=None)


def create(apps, schema_editor) -> None:
    _run("0006_closed_periods.sql", schema_editor)


def remove(apps, schema_editor) -> None:
    _run("0006_closed_periods_reverse.sql", schema_editor)


class Migration(migrations.Migration):
    dependencies = [("budgets", "0005_billing")]

    operations = [migrations.RunPython(create, remove, elidable=False)]
