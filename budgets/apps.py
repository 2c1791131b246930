"""What was promised, used and owed; and triggers of SQLite that keep closed periods as they are.

SQLite changes a table by building it anew, which drops its triggers and fails on those of other
tables that name it. So no migration makes them: they are taken off before a migrate and put on
after it. PostgreSQL has its own, in migrations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.signals import post_migrate, pre_migrate

SQL = Path(__file__).parent / "migrations" / "sql" / "closed_periods_sqlite.sql"
PREFIX = "closed_"
LAST_TABLE = "budgets_proposal"


def create_triggers(connection: BaseDatabaseWrapper) -> None:
    """Put the triggers on, anew; nothing happens on another database or before their tables."""
    if connection.vendor != "sqlite":
        return
    drop_triggers(connection)
    if LAST_TABLE not in connection.introspection.table_names():
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


class BudgetsConfig(AppConfig):
    name = "budgets"
    verbose_name = "Budgets"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        pre_migrate.connect(before_migrate, sender=self)
        post_migrate.connect(after_migrate, sender=self)
