"""Add up the totals of the hour facts that stand already."""

from __future__ import annotations

from pathlib import Path

from django.db import migrations

FOLDER = Path(__file__).parent / "sql"
TABLES = ("platformhour", "accounthour", "workspaceday", "clusterhour")


def fill(apps, schema_editor) -> None:
    """One statement per table of totals; only the day of an hour is told in the engine's words."""
    vendor = schema_editor.connection.vendor
    text = (FOLDER / f"0004_fill_usage_totals_{vendor}.sql").read_text()
    for statement in text.split(";"):
        if statement.strip():
            schema_editor.execute(statement, params=None)


def empty(apps, schema_editor) -> None:
    for table in TABLES:
        schema_editor.execute(f"DELETE FROM budgets_{table}", params=None)


class Migration(migrations.Migration):
    dependencies = [("budgets", "0003_usage_totals")]

    operations = [migrations.RunPython(fill, empty, elidable=False)]
