"""Django's ``migrate``, which on PostgreSQL waits for no lock that others then wait behind.

A statement that wants a table whole queues behind whoever uses it, and everybody else queues
behind that statement. So each waits for half a second only; then its migration is taken back and
tried again after a pause, in which the others go on. A statement that holds a lock is ended after
some seconds, too. In an empty database nothing is limited, and what takes long and keeps nobody
from writing lifts the limits for itself (``budgets/migrations/_steps.py``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.core.management.base import CommandError
from django.core.management.commands.migrate import Command as Migrate
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

LOCK_TIMEOUT_MS: Final = 500
STATEMENT_TIMEOUT_MS: Final = 5_000
TRIES: Final = 8
PAUSE_S: Final = 1.0
"""Between two tries: longer than the wait, so that others have most of the time."""
LOCKED, CANCELLED, DEADLOCK = "55P03", "57014", "40P01"
ELDEST: Final = """
SELECT pid, coalesce(nullif(application_name, ''), usename, 'unknown'),
       extract(epoch FROM clock_timestamp() - xact_start)::bigint
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
ORDER BY xact_start LIMIT 1
"""


class Command(Migrate):
    """The same command and options."""

    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        if connection.vendor != "postgresql" or not MigrationRecorder(connection).has_table():
            # One writer at a time anyhow, or nobody yet.
            super().handle(*args, **options)
            return
        with _limited(connection):
            for tries_left in reversed(range(TRIES)):
                self._step = "the migrations"
                try:
                    super().handle(*args, **options)
                    return
                except OperationalError as error:
                    state = getattr(error.__cause__, "sqlstate", None)
                    if state == CANCELLED:
                        raise CommandError(self._too_slow()) from error
                    if state not in (LOCKED, DEADLOCK):
                        raise
                    if not tries_left:
                        raise CommandError(self._gives_up(connection)) from error
                self.stdout.write(f"  {self._step} waits for a lock; it is tried again.")
                time.sleep(PAUSE_S)

    def migration_progress_callback(
        self, action: str, migration: Any = None, fake: bool = False
    ) -> None:
        """Keeps which one runs, for the sentence."""
        if action in ("apply_start", "unapply_start"):
            self._step = str(migration)
        super().migration_progress_callback(action, migration, fake)

    def _gives_up(self, connection: BaseDatabaseWrapper) -> str:
        with connection.cursor() as cursor:
            cursor.execute(ELDEST)
            held = cursor.fetchone()
        words = "Run migrate again."
        if held:
            pid, name, seconds = held
            words = (
                f"The longest transaction is that of {name} (process {pid} of the database), open "
                f"for {seconds} s: let it end, or end it with pg_terminate_backend({pid}). Then "
                f"run migrate again."
            )
        return (
            f"{self._step} got no lock in {TRIES} tries of {LOCK_TIMEOUT_MS} ms, so it was taken "
            f"back; what was migrated before it stays. {words}"
        )

    def _too_slow(self) -> str:
        return (
            f"{self._step} was ended: one of its statements took longer than "
            f"{STATEMENT_TIMEOUT_MS // 1_000} s, and others may have waited for it. It was taken "
            f"back; what was migrated before it stays. Run migrate again when the database has "
            f"less to do. If it is ended again, the migration has to be written in steps."
        )


@contextmanager
def _limited(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """A session whose statements wait, and take, so long at most."""
    limits = {"lock_timeout": LOCK_TIMEOUT_MS, "statement_timeout": STATEMENT_TIMEOUT_MS}
    with connection.cursor() as cursor:
        for name, milliseconds in limits.items():
            cursor.execute(f"SET {name} = {milliseconds}")
    try:
        yield
    finally:
        if connection.is_usable():
            with connection.cursor() as cursor:
                for name in limits:
                    cursor.execute(f"RESET {name}")
