"""Whether a migration lets the portal run on meanwhile: ``python -m tests.migration_rules``.

A migration after the last release runs on a database of a million rows under processes of that
release. So it may hold no lock for long that readers or writers wait for, and may take away nothing
that those processes read or write. Squawk judges the statements that Django makes for PostgreSQL;
what Squawk cannot know stands here: what the last release has, how rows are changed, and how many
tables a transaction alters. No database is asked.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from django.db import connections
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.backends.postgresql.schema import DatabaseSchemaEditor
from django.db.migrations import AlterField, Migration, RunPython
from django.db.migrations.graph import MigrationGraph
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from django.db.models import CharField, Field, TextField

from budgets.migrations._steps import InBatches

RELEASED: Final[Mapping[str, str]] = {"budgets": "0002_triggers", "clusters": "0001_initial"}
"""The last migrations of release 0.1. Whoever releases names that release's here."""
SERVER: Final = "16.0"
STEPS: Final = "budgets/migrations/_steps.py"

_REWRITE = (
    "add a nullable column, fill it with InBatches, read and write both in this release, and drop "
    "the old one in the next"
)
_COLUMN = (
    "give the column null=True or a db_default that is a constant: processes of the last release "
    "write rows without it"
)
_CHECK = (
    "first AddCheckForNewRows, then CheckOldRows in a migration of its own; a foreign key or a "
    "unique constraint comes with a new nullable column or a unique index CONCURRENTLY"
)
_DROP = (
    "take it out of the models in this release (state_operations alone) and out of the database "
    "with RunSQL in the next one"
)
_INDEX = (
    "use AddIndexBesideWrites in a migration of its own with atomic = False; a foreign key gets "
    "db_index=False, and its index that way"
)
WAYS_OUT: Final[Mapping[str, tuple[str, str]]] = {
    "adding-field-with-default": ("rewrites the table", _REWRITE),
    "adding-serial-primary-key-field": ("rewrites the table", _REWRITE),
    "changing-column-type": ("rewrites the table", _REWRITE),
    "adding-not-nullable-field": (
        "reads the whole table under a lock to forbid NULL",
        "leave the column nullable, and first AddCheckForNewRows (isnull=False), then CheckOldRows "
        "in a release whose predecessor writes the column",
    ),
    "adding-required-field": ("adds a column that old processes do not fill", _COLUMN),
    "ban-drop-default": ("adds a column that old processes do not fill", _COLUMN),
    "adding-foreign-key-constraint": ("checks a constraint under a lock", _CHECK),
    "constraint-missing-not-valid": ("checks a constraint under a lock", _CHECK),
    "disallowed-unique-constraint": ("checks a constraint under a lock", _CHECK),
    "ban-uncommitted-in-transaction": ("checks a constraint under a lock", _CHECK),
    "require-concurrent-index-creation": ("builds an index while nobody can write", _INDEX),
    "require-concurrent-index-deletion": (
        "removes an index while nobody can read",
        "use RemoveIndexConcurrently in a migration of its own with atomic = False",
    ),
    "require-concurrent-reindex": ("builds an index while nobody can write", _INDEX),
    "ban-concurrent-index-creation-in-transaction": ("builds an index in a transaction", _INDEX),
    "renaming-column": (
        "renames what the last release reads",
        "keep the database's name (db_column), or: " + _REWRITE,
    ),
    "renaming-table": ("renames what the last release reads", "keep the name (Meta.db_table)"),
    "ban-drop-column": ("drops what the last release reads", _DROP),
    "ban-drop-table": ("drops what the last release reads", _DROP),
    "ban-drop-database": ("drops what the last release reads", _DROP),
    "ban-truncate-cascade": ("empties what the last release reads", _DROP),
}
ROWS: Final = (
    "changes rows in one transaction",
    f"use RunPython(InBatches(...)) of {STEPS}, alone in a migration with atomic = False",
)
MANY: Final = (
    "holds the locks of several tables at once",
    "one migration for each table that exists already",
)
MIXED: Final = (
    "does in one transaction, or with others, what takes long",
    "a migration of its own with atomic = False",
)
# What the house decides otherwise: Django chooses types and names, migrate limits time, and a
# longer text is the same text to PostgreSQL.
IGNORED: Final = (
    "require-lock-timeout", "require-statement-timeout", "prefer-bigint-over-int",
    "prefer-bigint-over-smallint", "prefer-text-field", "prefer-robust-stmts", "prefer-identity",
    "prefer-timestamp-tz", "prefer-timestamptz", "ban-char-field", "ban-drop-not-null",
    "transaction-nesting", "ban-create-domain-with-constraint", "require-enum-value-ordering",
)  # fmt: skip
_ALTERED = re.compile(r'^\s*(?:ALTER TABLE|DROP TABLE)(?: IF EXISTS)?(?: ONLY)? "?(\w+)"?', re.I)
_INDEXED = re.compile(r'^\s*CREATE (?:UNIQUE )?INDEX\b.*? ON "?(\w+)"?', re.I | re.S)
_COLUMN_GONE = re.compile(r'(?:DROP COLUMN(?: IF EXISTS)?|RENAME COLUMN) "?(\w+)"?', re.I)
_BESIDE = re.compile(r"\b(?:CREATE|DROP|REINDEX)\b.*\bCONCURRENTLY\b", re.I)
_CHANGES_ROWS = re.compile(r"^\s*(?:UPDATE|DELETE|INSERT|MERGE|TRUNCATE|COPY|WITH)\b", re.I)
# A new column that is NULL everywhere refers to nothing yet, and PostgreSQL knows that.
_NEW_REFERENCE = re.compile(r"ADD COLUMN (?!.*\bDEFAULT\b).*\bNULL CONSTRAINT \S+ REFERENCES", re.I)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What one operation may not do, and how it is done instead."""

    migration: str
    operation: str
    says: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.migration}, {self.operation}: {self.says}. Way out: {self.way_out}."


@dataclass(frozen=True, slots=True)
class Statement:
    """One of them, and the operation that made it."""

    operation: Any
    text: str
    is_widening: bool

    @property
    def table(self) -> str:
        """That it alters or indexes; empty for none."""
        found = _ALTERED.match(self.text) or _INDEXED.match(self.text)
        return found[1] if found else ""


class NeedsRows(Exception):
    """Code of a migration asked the database."""


class _Offline(DatabaseWrapper):
    """PostgreSQL as Django writes SQL for it, and nobody there."""

    pg_version = int(float(SERVER)) * 10_000

    def ensure_connection(self) -> None:
        raise NeedsRows


class _Collecting(DatabaseSchemaEditor):
    def execute(self, sql: Any, params: Any = ()) -> None:
        text = str(sql) % tuple(map(self.quote_value, params)) if params else str(sql)
        self.collected_sql.append(text.strip().rstrip(";") + ";")

    def _constraint_names(self, *words: Any, **named: Any) -> list[str]:
        return []  # what is there already is asked only to be removed


@contextmanager
def _offline() -> Iterator[_Collecting]:
    """An editor; whatever asks the database meanwhile is refused."""
    ours = connections["default"]
    there = _Offline({**ours.settings_dict, "ENGINE": "django.db.backends.postgresql",
                      "NAME": "nobody", "OPTIONS": {}}, alias="default")  # fmt: skip
    connections["default"] = there
    try:
        editor = _Collecting(there, collect_sql=True, atomic=False)
        editor.deferred_sql = []
        yield editor
    finally:
        connections["default"] = ours


def refusals(graph: MigrationGraph, released: Mapping[str, str] = RELEASED) -> list[Refusal]:
    """What the migrations after a release may not do.

    Args:
        graph: Of all migrations.
        released: The last migration of that release, by app; all up to these are passed.
    """
    old = {key for app, name in released.items() for key in graph.forwards_plan((app, name))}
    state = graph.make_state(nodes=sorted(old), at_end=True) if old else ProjectState()
    before = state.clone()
    columns = {
        model._meta.db_table: {field.column for field in model._meta.local_fields}
        for model in before.apps.get_models(include_auto_created=True)
    }
    found: list[Refusal] = []
    plan: dict[tuple[str, str], None] = {}
    for app in released:
        for leaf in graph.leaf_nodes(app):
            plan |= dict.fromkeys(graph.forwards_plan(leaf))
    for key in plan:
        if key not in old and key[0] in released:
            found += _of_migration(graph.nodes[key], state, columns)
        elif key not in old:
            state = graph.nodes[key].mutate_state(state, preserve=False)
    return found


def _of_migration(
    migration: Migration, state: ProjectState, columns: Mapping[str, set[str]]
) -> list[Refusal]:
    """Of one; the state is brought on."""
    name = f"{migration.app_label}.{migration.name}"
    found: dict[tuple[int, str], Refusal] = {}

    def refuse(operation: Any, rule: tuple[str, str]) -> None:
        words = f"{type(operation).__name__} ({operation.describe()})"
        found.setdefault((id(operation), rule[0]), Refusal(name, words, *rule))

    statements: list[Statement] = []
    with _offline() as editor:
        for operation in migration.operations:
            before = state.clone()
            operation.state_forwards(migration.app_label, state)
            is_widening = _is_longer_text(operation, migration.app_label, before)
            try:
                texts = _texts(operation, migration.app_label, editor, before, state)
            except NeedsRows:
                refuse(operation, ROWS)
            else:
                statements += [Statement(operation, text, is_widening) for text in texts]
    for operation in migration.operations:
        is_batched = isinstance(getattr(operation, "code", None), InBatches)
        if is_batched and (migration.atomic or len(migration.operations) > 1):
            refuse(operation, MIXED)
    old = {statement.table for statement in statements} & columns.keys()
    if migration.atomic and len(old) > 1:
        for operation in {id(s.operation): s.operation for s in statements}.values():
            refuse(operation, MANY)
    for statement in statements:
        if _CHANGES_ROWS.match(statement.text):
            refuse(statement.operation, ROWS)
        if migration.atomic and _BESIDE.search(statement.text):
            refuse(statement.operation, MIXED)
    for statement, rule, words in _squawk(statements, is_atomic=migration.atomic):
        if not _is_harmless(statement, rule, columns):
            refuse(statement.operation, WAYS_OUT.get(rule, (f"{rule}: {words}", "see Squawk")))
    return list(found.values())


def _texts(
    operation: Any, app: str, editor: _Collecting, before: ProjectState, after: ProjectState
) -> list[str]:
    """The SQL of an operation.

    Raises:
        NeedsRows: it asks the database.
    """
    editor.collected_sql.clear()
    if not isinstance(operation, RunPython):
        operation.database_forwards(app, editor, before, after)
    elif not isinstance(operation.code, InBatches):
        # Some run files of SQL for one kind of database; what asks for rows cannot.
        operation.code(before.apps, editor)
    for deferred in editor.deferred_sql:
        editor.execute(deferred, None)
    editor.deferred_sql.clear()
    return list(editor.collected_sql)


def _is_longer_text(operation: Any, app: str, before: ProjectState) -> bool:
    """Whether only a text may be longer: PostgreSQL reads and writes no row for that."""
    if not isinstance(operation, AlterField):
        return False
    old = before.models[app, operation.model_name_lower].fields[operation.name]
    new = operation.field
    return _length(old) <= _length(new) and _length(old) > 0


def _length(field: Field) -> float:
    """Characters that fit; 0 for what is no text."""
    if isinstance(field, TextField):
        return float("inf")
    return field.max_length or float("inf") if isinstance(field, CharField) else 0.0


def _is_harmless(statement: Statement, rule: str, columns: Mapping[str, set[str]]) -> bool:
    """Whether Squawk warns of what concerns nobody."""
    if rule in IGNORED:
        return True
    table = statement.table
    if table and table not in columns:
        return True  # no process of the last release knows it, and it is empty
    if rule == "changing-column-type":
        return statement.is_widening
    if rule == "adding-foreign-key-constraint":
        return bool(_NEW_REFERENCE.search(statement.text))
    if rule in ("ban-drop-column", "renaming-column"):
        gone = _COLUMN_GONE.search(statement.text)
        return gone is not None and gone[1] not in columns[table]
    return False


def squawk_program() -> str:
    """Where Squawk is.

    Raises:
        FileNotFoundError: nowhere.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = shutil.which("squawk", path=path)
    if found is None:
        raise FileNotFoundError("no squawk: pip install --require-hashes -r requirements-dev.txt")
    return found


def _squawk(
    statements: Sequence[Statement], *, is_atomic: bool
) -> Iterator[tuple[Statement, str, str]]:
    """What Squawk says: a statement, the rule, and its words."""
    lines, text = [], ""
    for statement in statements:
        lines.append(text.count("\n"))
        text += statement.text + "\n"
    if not text:
        return
    options = ["--reporter", "json", "--pg-version", SERVER, "--stdin-filepath", "migration.sql"]
    if is_atomic:
        options.append("--assume-in-transaction")
    told = subprocess.run(
        [squawk_program(), *options], input=text, capture_output=True, text=True, check=False
    )
    for row in json.loads(told.stdout):
        at = bisect_right(lines, row["line"]) - 1
        yield statements[at], row["rule_name"], row["message"]


def main() -> int:
    """The command; exit status 1 when a migration is refused."""
    import django

    django.setup()
    found = refusals(MigrationLoader(None).graph)
    print(*found, f"{len(found)} refusals", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
