"""The database of a test process. SQLite's: migrated once, then copied by whoever comes later.

All migrations take seconds, and every process of every lane needs them. The first one leaves what
it made beside the tests' databases, under a name that changes with the migrations; the others
copy it. Django still runs ``migrate`` on the copy and finds nothing to do.

PostgreSQL is owned by somebody else than the role that the tests have, as in compose.yaml.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.backends.postgresql.operations import DatabaseOperations

ROOT = Path(__file__).resolve().parent.parent
# SQLite's own files, which a thread that did not close its connection leaves.
_BESIDE = ("", "-wal", "-shm", "-journal")


def migrated_copy(folder: Path) -> Path:
    """Where the migrated database lies: another place after every change of the migrations."""
    found = hashlib.sha256()
    migrations = sorted(ROOT.glob("*/migrations/*.py"))
    for path in (*migrations, ROOT / "requirements.txt", ROOT / "portal" / "settings.py"):
        found.update(str(path.relative_to(ROOT)).encode())
        found.update(path.read_bytes())
    return folder / f"portal-migrated-{os.getuid()}-{found.hexdigest()[:16]}.sqlite3"


def _file() -> Path | None:
    """The file of the tests' database; None where it is no file."""
    name = connection.settings_dict["TEST"].get("NAME") if connection.vendor == "sqlite" else None
    return Path(name) if name and name != ":memory:" else None


@pytest.fixture(scope="session")
def django_db_keepdb(
    request: pytest.FixtureRequest, django_db_modify_db_settings: None
) -> Iterator[bool]:
    """Whether the database is there already: a copy is, and it goes with the process."""
    own, is_reused = _file(), bool(request.config.getvalue("reuse_db"))
    if own is None or is_reused:
        yield is_reused
        return
    is_copied = False
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(migrated_copy(own.parent), own)
        is_copied = True
    yield is_copied
    for ending in _BESIDE:
        Path(f"{own}{ending}").unlink(missing_ok=True)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_keepdb: bool, django_db_blocker) -> Iterator[None]:
    """The database, which the first process leaves for the others; PostgreSQL under a role."""
    if connection.vendor == "postgresql":
        with django_db_blocker.unblock():
            lift = restrict()
            yield
            lift()
        return
    own = _file()
    if own is None or django_db_keepdb:
        yield
        return
    with django_db_blocker.unblock():
        connection.ensure_connection()
        leave(connection.connection, migrated_copy(own.parent))
    yield


def leave(source: sqlite3.Connection, target: Path) -> None:
    """Copy a database to where others find it whole or not at all; earlier ones go."""
    unfinished = target.with_suffix(f".{os.getpid()}")
    with contextlib.closing(sqlite3.connect(unfinished)) as copy:
        source.backup(copy)
    unfinished.replace(target)
    for old in target.parent.glob(f"portal-migrated-{os.getuid()}-*.sqlite3"):
        if old != target:
            old.unlink(missing_ok=True)


# --- PostgreSQL: the portal's role owns nothing ---------------------------------------------------
ROLE = "portal_app"
AS_OWNER = ("SET LOCAL ROLE NONE", "SET LOCAL portal.empties_its_tables = 'on'")


def restrict() -> Callable[[], None]:
    """From now on every connection has the rights of the portal's role; returns the way back."""
    call_command("grant_rights", ROLE, verbosity=0, stdout=StringIO())
    options = connection.settings_dict["OPTIONS"]
    before, flush = options["options"], DatabaseOperations.sql_flush

    def owner_flush(self: DatabaseOperations, *given: Any, **named: Any) -> list[str]:
        statements = flush(self, *given, **named)
        return [*AS_OWNER, *statements, f"SET LOCAL ROLE {ROLE}"] if statements else []

    options["options"] = f"{before} -c role={ROLE}"
    DatabaseOperations.sql_flush = owner_flush
    connection.close()

    def lift() -> None:
        options["options"], DatabaseOperations.sql_flush = before, flush
        connection.close()

    return lift


@contextlib.contextmanager
def as_owner() -> Iterator[None]:
    """Somebody with the rights of the tables' owner."""
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SET ROLE NONE")
        yield
        cursor.execute(f"SET ROLE {ROLE}")
