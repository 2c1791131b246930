"""What a migration is made of that lets others read and write meanwhile; for every app.

``docs/operations.md`` ("How a migration is written") says when each is needed. All of them need
``atomic = False`` in their migration, may be begun again after a failure, and do on SQLite, where
one process at a time writes anyhow, what Django does there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.postgres.operations import (
    AddConstraintNotValid,
    AddIndexConcurrently,
    ValidateConstraint,
)
from django.db import transaction
from django.db.migrations.operations import AddConstraint, AddIndex
from django.db.models import QuerySet

BATCH_ROWS = 1_000
UNFINISHED = """
SELECT 1 FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relname = %s AND NOT indisvalid
"""


class InBatches:
    """The code of a ``RunPython`` that changes rows; each batch is a transaction of its own.

    Args:
        app, model: Whose rows, as the migration's state has them.
        change: Is given the rows of one batch. It may be given the same ones once more, and has to
            leave alone those that it has changed.
        size: Rows of a batch, in the order of their primary keys; they are locked together.
    """

    def __init__(
        self, app: str, model: str, change: Callable[[QuerySet[Any]], Any], *, size: int = BATCH_ROWS
    ) -> None:
        self.app, self.model, self.change, self.size = app, model, change, size

    def __call__(self, apps: Any, schema_editor: Any) -> None:
        alias = schema_editor.connection.alias
        rows = apps.get_model(self.app, self.model)._base_manager.using(alias)
        ahead = rows.order_by("pk")
        while keys := list(ahead.values_list("pk", flat=True)[: self.size]):
            with transaction.atomic(using=alias):
                self.change(rows.filter(pk__gte=keys[0], pk__lte=keys[-1]))
            ahead = rows.order_by("pk").filter(pk__gt=keys[-1])


class AddIndexBesideWrites(AddIndexConcurrently):
    """Builds an index while others write; what a broken try has left is removed first."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if not _is_postgres(schema_editor):
            AddIndex.database_forwards(self, app_label, schema_editor, from_state, to_state)
            return
        with _unhurried(schema_editor):
            if not schema_editor.collect_sql and self._is_unfinished(schema_editor):
                name = schema_editor.quote_name(self.index.name)
                schema_editor.execute(f"DROP INDEX CONCURRENTLY {name}")
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if _is_postgres(schema_editor):
            super().database_backwards(app_label, schema_editor, from_state, to_state)
        else:
            AddIndex.database_backwards(self, app_label, schema_editor, from_state, to_state)

    def _is_unfinished(self, schema_editor: Any) -> bool:
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(UNFINISHED, [self.index.name])
            return cursor.fetchone() is not None


class AddCheckForNewRows(AddConstraintNotValid):
    """A check that holds for what is written from now on; SQLite has it for all rows at once."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if _is_postgres(schema_editor):
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        else:
            AddConstraint.database_forwards(self, app_label, schema_editor, from_state, to_state)


class CheckOldRows(ValidateConstraint):
    """That the rows from before :class:`AddCheckForNewRows` obey, too; others write meanwhile."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if _is_postgres(schema_editor):
            with _unhurried(schema_editor):
                super().database_forwards(app_label, schema_editor, from_state, to_state)


def _is_postgres(schema_editor: Any) -> bool:
    return bool(schema_editor.connection.vendor == "postgresql")


@contextmanager
def _unhurried(schema_editor: Any) -> Iterator[None]:
    """Without the time limits of ``migrate``: what takes long here keeps nobody from writing."""
    if schema_editor.collect_sql:
        yield
        return
    with schema_editor.connection.cursor() as cursor:
        before = {}
        for name in ("lock_timeout", "statement_timeout"):
            cursor.execute(f"SHOW {name}")
            before[name] = cursor.fetchone()[0]
            cursor.execute(f"SET {name} = 0")
    try:
        yield
    finally:
        with schema_editor.connection.cursor() as cursor:
            for name, value in before.items():
                cursor.execute(f"SET {name} = '{value}'")
