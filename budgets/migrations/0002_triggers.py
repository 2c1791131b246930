"""PostgreSQL keeps the ledger, closed periods, statements, prices and approvals as they are.

SQLite gets its triggers after each migrate (:mod:`budgets.models.triggers`): it rebuilds tables
to change them, which drops the triggers that stand on them.
"""

from __future__ import annotations

from pathlib import Path

from django.db import migrations

FOLDER = Path(__file__).parent / "sql"
# The first has the function that refuses a change, which the next two call.
FILES = ("insert_only.sql", "closed_periods.sql", "four_eyes.sql", "refuse_truncate.sql")


def _run(schema_editor, *names: str) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for name in names:
            schema_editor.execute((FOLDER / name).read_text(), params=None)


def create(apps, schema_editor) -> None:
    _run(schema_editor, *FILES)


def remove(apps, schema_editor) -> None:
    _run(schema_editor, "remove.sql")


class Migration(migrations.Migration):
    dependencies = [("budgets", "0001_initial")]

    operations = [migrations.RunPython(create, remove, elidable=False)]
