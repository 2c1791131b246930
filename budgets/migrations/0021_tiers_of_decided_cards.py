"""A rate card that two people agreed on takes no further volume steps.

A portal that stands keeps its rows: nothing is read, and only a trigger is added.
"""

from __future__ import annotations

from pathlib import Path

from django.db import migrations

FOLDER = Path(__file__).parent / "sql"


def _run(schema_editor, name: str) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute((FOLDER / name).read_text(), params=None)


def keep(apps, schema_editor) -> None:
    _run(schema_editor, "tiers_of_decided_cards.sql")


def as_before(apps, schema_editor) -> None:
    _run(schema_editor, "tiers_of_decided_cards_reverse.sql")


class Migration(migrations.Migration):

    dependencies = [
        ('budgets', '0020_saved_views'),
    ]

    operations = [migrations.RunPython(keep, as_before)]
