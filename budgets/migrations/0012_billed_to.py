"""Whom statements are for: details of accounts, and what each statement keeps of them.

SQLite gets its triggers after each migrate (:mod:`budgets.models.triggers`).
"""

from __future__ import annotations

from pathlib import Path

from django.db import migrations, models

FOLDER = Path(__file__).parent / "sql"


def _run(schema_editor, text: str) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(text, params=None)


def _guard() -> str:
    return (FOLDER / "billed_to.sql").read_text()


def keep(apps, schema_editor) -> None:
    _run(schema_editor, _guard())


def as_before(apps, schema_editor) -> None:
    """The same guard, without the new column in its two lists."""
    text = _guard()
    for row in ("OLD", "NEW"):
        text = text.replace(f",\n                 {row}.billed_to", "")
    _run(schema_editor, text)


class Migration(migrations.Migration):

    dependencies = [
        ('budgets', '0011_requests_in_part'),
    ]

    operations = [
        migrations.AddField(
            model_name='billingterms',
            name='cost_centre',
            field=models.CharField(blank=True, db_default='', default='', max_length=60),
        ),
        migrations.AddField(
            model_name='billingterms',
            name='invoice_address',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddField(
            model_name='billingterms',
            name='purchase_order',
            field=models.CharField(blank=True, db_default='', default='', max_length=60),
        ),
        migrations.AddField(
            model_name='billingterms',
            name='tax_number',
            field=models.CharField(blank=True, db_default='', default='', max_length=40),
        ),
        migrations.AddField(
            model_name='statement',
            name='billed_to',
            field=models.JSONField(blank=True, db_default={}, default=dict),
        ),
        migrations.RunPython(keep, as_before, elidable=False),
    ]
