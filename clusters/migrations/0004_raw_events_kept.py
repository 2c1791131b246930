"""PostgreSQL keeps raw events as they are, and lets none go while something hangs on it."""

from __future__ import annotations

from pathlib import Path

from django.db import migrations

FOLDER = Path(__file__).parent / "sql"


def _run(schema_editor, name: str) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute((FOLDER / name).read_text(), params=None)


def create(apps, schema_editor) -> None:
    _run(schema_editor, "raw_events.sql")


def remove(apps, schema_editor) -> None:
    _run(schema_editor, "raw_events_remove.sql")


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0003_events_retired'),
    ]

    operations = [migrations.RunPython(create, remove, elidable=False)]
