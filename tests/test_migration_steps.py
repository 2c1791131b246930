"""What migrations are made of, on the database of the lane; and how long ``migrate`` waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, models
from django.db.migrations import CreateModel, DeleteModel, Migration, RunPython
from django.db.migrations.state import ProjectState

from budgets.migrations._steps import (
    AddCheckForNewRows,
    AddIndexBesideWrites,
    CheckOldRows,
    InBatches,
)
from portal.management.commands import migrate
from tests.databases import ROLE, as_owner

APP, TABLE = "budgets", "budgets_house"
LEDGER = "budgets_auditentry"
BY_N = models.Index(fields=["n"], name="house_by_n")
HIGH = models.CheckConstraint(condition=models.Q(n__gte=0), name="house_high")
ON_EITHER = pytest.mark.django_db(transaction=True)


def _play(operations, state: ProjectState, *, atomic: bool = False) -> ProjectState:
    migration = Migration("9999_m", APP)
    migration.operations, migration.atomic = operations, atomic
    with connection.schema_editor(atomic=atomic) as editor:
        return migration.apply(state, editor)


@pytest.fixture
def houses(db) -> Iterator[ProjectState]:
    """A table with ten rows, of which none has a number."""
    make = CreateModel(
        "House",
        [("id", models.BigAutoField(primary_key=True)), ("n", models.IntegerField(null=True))],
    )
    with as_owner():
        state = _play([make], ProjectState())
        rows = state.apps.get_model(APP, "House").objects
        rows.bulk_create(rows.model(n=None) for _ in range(10))
        yield state
        _play([DeleteModel("House")], state)


@ON_EITHER
def test_rows_are_changed_a_batch_at_a_time_and_a_broken_try_is_gone_on_with(houses):
    sizes = []

    def change(rows):
        if len(sizes) == 2:
            sizes.append(0)
            raise IntegrityError
        sizes.append(rows.filter(n=None).update(n=1))

    fill = RunPython(InBatches(APP, "House", change, size=4))
    with pytest.raises(IntegrityError):
        _play([fill], houses)
    rows = houses.apps.get_model(APP, "House").objects
    assert rows.filter(n=1).count() == 8
    _play([fill], houses)
    assert (sizes, rows.filter(n=1).count()) == ([4, 4, 0, 0, 0, 2], 10)


@ON_EITHER
def test_index_is_built_anew_after_a_broken_try(houses):
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE INDEX {BY_N.name} ON {TABLE} (id)")
            cursor.execute(
                "UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass",
                [BY_N.name],
            )
    add = AddIndexBesideWrites("House", BY_N)
    after = _play([add], houses)
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, TABLE)[BY_N.name]
    assert found["columns"] == ["n"]
    with connection.schema_editor(atomic=False) as editor:
        add.database_backwards(APP, editor, after, houses)
    with connection.cursor() as cursor:
        assert BY_N.name not in connection.introspection.get_constraints(cursor, TABLE)


@ON_EITHER
def test_check_holds_for_new_rows_first_and_then_for_all(houses):
    checked = _play([AddCheckForNewRows("House", HIGH)], houses, atomic=True)
    rows = checked.apps.get_model(APP, "House").objects
    with pytest.raises(IntegrityError):
        rows.create(n=-1)
    _play([CheckOldRows("House", HIGH.name)], checked)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT convalidated FROM pg_constraint WHERE conname = %s", [HIGH.name])
            assert cursor.fetchone() == (True,)


# --- migrate, which others do not wait behind ---


@contextmanager
def _reader(table: str) -> Iterator[Callable[[], None]]:
    """Somebody whose transaction has read a table and stays open; yields what lets it end."""
    other = connection.copy()
    with closing(other), other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT 1 FROM {table} LIMIT 1")
        yield lambda: cursor.execute("COMMIT")


@contextmanager
def _owner_of_everything() -> Iterator[None]:
    with as_owner():
        try:
            yield
        finally:
            call_command("migrate", verbosity=0)
            call_command("grant_rights", ROLE, stdout=StringIO())


def _limits() -> list[str]:
    with connection.cursor() as cursor:
        found = []
        for name in ("lock_timeout", "statement_timeout"):
            cursor.execute(f"SHOW {name}")
            found.append(cursor.fetchone()[0])
    return found


def _is_applied() -> bool:
    told = StringIO()
    call_command("showmigrations", "budgets", stdout=told)
    return "[X] 0002_triggers" in told.getvalue()


@pytest.mark.postgres
@ON_EITHER
def test_migration_that_gets_no_lock_says_who_has_it_and_is_taken_back(monkeypatch):
    monkeypatch.setattr(migrate, "TRIES", 2)
    monkeypatch.setattr(migrate, "PAUSE_S", 0.0)
    before = _limits()
    told = StringIO()
    with _owner_of_everything(), _reader(LEDGER), pytest.raises(CommandError) as refused:
        call_command("migrate", "budgets", "0001", stdout=told)
    words = str(refused.value)
    assert words.startswith("budgets.0002_triggers got no lock in 2 tries of 500 ms")
    assert re.search(r"end it with pg_terminate_backend\(\d+\)\. Then run migrate again\.$", words)
    assert told.getvalue().count("it is tried again") == 1
    assert _is_applied()
    assert _limits() == before


@pytest.mark.postgres
@ON_EITHER
def test_migration_that_waits_is_tried_again_until_it_has_its_lock(monkeypatch):
    monkeypatch.setattr(migrate, "PAUSE_S", 0.0)
    with _owner_of_everything(), _reader(LEDGER) as end:

        class Ends(StringIO):
            def write(self, words: str) -> int:
                if "it is tried again" in words:
                    end()
                return super().write(words)

        call_command("migrate", "budgets", "0001", stdout=Ends())
        assert not _is_applied()


@pytest.mark.postgres
@ON_EITHER
def test_statement_that_takes_too_long_is_ended_with_a_sentence(monkeypatch):
    monkeypatch.setattr(migrate, "STATEMENT_TIMEOUT_MS", 200)
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT_MS", 60_000)
    with _owner_of_everything(), _reader(LEDGER), pytest.raises(CommandError) as refused:
        call_command("migrate", "budgets", "0001", verbosity=0)
    assert str(refused.value).startswith("budgets.0002_triggers was ended: one of its statements")
    assert _is_applied()
