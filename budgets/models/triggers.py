"""Triggers of SQLite that keep closed periods as they are.

SQLite changes a table by building it anew, which drops its triggers and fails on those of other
tables that name it. So no migration makes them: they are taken off before a migrate and put on
after it. PostgreSQL has its own, in a migration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

SQL = Path(__file__).parent.parent / "migrations" / "sql" / "closed_periods_sqlite.sql"
PREFIX = "closed_"
A_TABLE = "budgets_proposal"  # one migration makes all of them


def create_triggers(connection: BaseDatabaseWrapper) -> None:
    """Put the triggers on, anew; nothing happens on another database or before their tables."""
    if connection.vendor != "sqlite":
        return
    drop_triggers(connection)
    if A_TABLE not in connection.introspection.table_names():
        return
    with connection.cursor() as cursor:
        for statement in SQL.read_text().split("-- next\n"):
            cursor.execute(statement)


def drop_triggers(connection: BaseDatabaseWrapper) -> None:
    """Take the triggers off."""
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        for (name,) in cursor.fetchall():
            if name.startswith(PREFIX):
                cursor.execute(f"DROP TRIGGER {connection.ops.quote_name(name)}")


def before_migrate(using: str, **_: Any) -> None:
    """Receiver of ``pre_migrate``."""
    drop_triggers(connections[using])


def after_migrate(using: str, **_: Any) -> None:
    """Receiver of ``post_migrate``."""
    create_triggers(connections[using])
