"""The audit log and budget lines are written once: PostgreSQL refuses to change them too."""

from __future__ import annotations

from pathlib import Path

from django.db import migrations

FOLDER = Path(__file__).parent / "sql"


def _run(name: str, schema_editor) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute((FOLDER / name).read_text(), params=None)


def create(apps, schema_editor) -> None:
    _run("0002_insert_only.sql", schema_editor)


def remove(apps, schema_editor) -> None:
    _run("0002_insert_only_reverse.sql", schema_editor)


class Migration(migrations.Migration):
    dependencies = [("budgets", "0001_initial")]

    operations = [migrations.RunPython(create, remove, elidable=False)]
