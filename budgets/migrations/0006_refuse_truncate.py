"""PostgreSQL empties no table of the ledger, and keeps seals and volume steps as they are."""

from __future__ import annotations

from pathlib import Path

from django.db import migrations

FOLDER = Path(__file__).parent / "sql"


def _run(schema_editor, name: str) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute((FOLDER / name).read_text(), params=None)


def create(apps, schema_editor) -> None:
    _run(schema_editor, "refuse_truncate.sql")


def remove(apps, schema_editor) -> None:
    _run(schema_editor, "refuse_truncate_reverse.sql")


class Migration(migrations.Migration):
    dependencies = [("budgets", "0005_seals")]

    operations = [migrations.RunPython(create, remove, elidable=False)]
