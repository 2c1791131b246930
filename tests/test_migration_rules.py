"""Migrations after the last release let the portal run on meanwhile; and what would be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import models
from django.db.migrations import (
    AddConstraint,
    AddField,
    AddIndex,
    AlterField,
    CreateModel,
    DeleteModel,
    Migration,
    RemoveField,
    RenameField,
    RenameModel,
    RunPython,
    RunSQL,
    SeparateDatabaseAndState,
)
from django.db.migrations.graph import MigrationGraph
from django.db.migrations.loader import MigrationLoader

from budgets.migrations._steps import (
    AddCheckForNewRows,
    AddIndexBesideWrites,
    CheckOldRows,
    InBatches,
)
from tests.migration_rules import RELEASED, refusals

APP = "budgets"
HIGH = models.CheckConstraint(condition=models.Q(n__gte=0), name="house_high")
SINGLE = models.UniqueConstraint(fields=["n"], name="house_single")
BY_N = models.Index(fields=["n"], name="house_by_n")
TEXTS = ("budgets_house", "budgets_street")


def _graph(*later: tuple[list[Any], bool]) -> MigrationGraph:
    """A release with two tables, and what came later."""
    graph = MigrationGraph()
    street = CreateModel("Street", [("id", models.BigAutoField(primary_key=True))])
    house = CreateModel(
        "House",
        [
            ("id", models.BigAutoField(primary_key=True)),
            ("n", models.IntegerField(null=True)),
            ("name", models.CharField(max_length=20)),
        ],
    )
    before = None
    for number, (operations, atomic) in enumerate([([street, house], True), *later], start=1):
        migration = Migration(f"{number:04}_m", APP)
        migration.operations, migration.atomic = operations, atomic
        graph.add_node((APP, migration.name), migration)
        if before:
            graph.add_dependency(migration, (APP, migration.name), (APP, before))
        before = migration.name
    return graph


def _found(*later: tuple[list[Any], bool]) -> list[str]:
    return [str(one) for one in refusals(_graph(*later), {APP: "0001_m"})]


def _asks_for_rows(apps, schema_editor):
    apps.get_model(APP, "House").objects.filter(n=None).update(n=1)


def _fill(rows):
    rows.filter(n=None).update(n=1)


def _runs_sql(apps, schema_editor):
    schema_editor.execute("ALTER TABLE budgets_house ALTER COLUMN n SET NOT NULL", params=None)


@pytest.mark.parametrize(
    ("operations", "atomic", "want_says", "want_way_out"),
    [
        pytest.param(
            [AlterField("House", "n", models.BigIntegerField(null=True))], True,
            "rewrites the table", "InBatches", id="another type",
        ),
        pytest.param(
            [AlterField("House", "name", models.CharField(max_length=10))], True,
            "rewrites the table", "InBatches", id="a shorter text",
        ),
        pytest.param(
            [AddField("House", "at", models.DateTimeField(
                db_default=models.Func(function="clock_timestamp")))], True,
            "rewrites the table", "InBatches", id="a default that differs by row",
        ),
        pytest.param(
            [AddField("House", "new", models.IntegerField(default=0))], True,
            "old processes do not fill", "db_default", id="a column that must be filled",
        ),
        pytest.param(
            [AlterField("House", "n", models.IntegerField())], True,
            "forbid NULL", "AddCheckForNewRows", id="not null in one step",
        ),
        pytest.param(
            [AddIndex("House", BY_N)], True,
            "nobody can write", "AddIndexBesideWrites", id="an index in place",
        ),
        pytest.param(
            [AddField("House", "street", models.ForeignKey(
                "budgets.Street", models.PROTECT, null=True))], True,
            "nobody can write", "db_index=False", id="a foreign key brings its index",
        ),
        pytest.param(
            [RunSQL("CREATE INDEX CONCURRENTLY i ON budgets_house (n)")], True,
            "in one transaction", "atomic = False", id="beside writes, but in a transaction",
        ),
        pytest.param(
            [AddConstraint("House", HIGH)], True,
            "checks a constraint under a lock", "CheckOldRows", id="a check in place",
        ),
        pytest.param(
            [AddConstraint("House", SINGLE)], True,
            "checks a constraint under a lock", "CONCURRENTLY", id="a unique constraint in place",
        ),
        pytest.param(
            [AddCheckForNewRows("House", HIGH), CheckOldRows("House", "house_high")], True,
            "checks a constraint under a lock", "of its own", id="both steps of a check at once",
        ),
        pytest.param(
            [RenameField("House", "n", "number")], True,
            "renames what the last release reads", "db_column", id="a column renamed",
        ),
        pytest.param(
            [RenameModel("House", "Home")], True,
            "renames what the last release reads", "db_table", id="a table renamed",
        ),
        pytest.param(
            [RemoveField("House", "n")], True,
            "drops what the last release reads", "in the next one", id="a column dropped",
        ),
        pytest.param(
            [DeleteModel("House")], True,
            "drops what the last release reads", "in the next one", id="a table dropped",
        ),
        pytest.param(
            [RunPython(_asks_for_rows)], False,
            "changes rows in one transaction", "InBatches", id="rows by code",
        ),
        pytest.param(
            [RunSQL("UPDATE budgets_house SET n = 1")], True,
            "changes rows in one transaction", "InBatches", id="rows by SQL",
        ),
        pytest.param(
            [RunPython(InBatches(APP, "House", _fill))], True,
            "in one transaction, or with others", "atomic = False", id="batches in a transaction",
        ),
        pytest.param(
            [AddField("House", "new", models.TextField(null=True)),
             RunPython(InBatches(APP, "House", _fill))], False,
            "in one transaction, or with others", "of its own", id="batches beside a column",
        ),
        pytest.param(
            [RunPython(_runs_sql)], True,
            "forbid NULL", "AddCheckForNewRows", id="SQL that code runs",
        ),
        pytest.param(
            [RunSQL("ALTER TABLE budgets_house ADD COLUMN a int"),
             RunSQL("ALTER TABLE budgets_street ADD COLUMN a int")], True,
            "several tables at once", "one migration for each", id="two tables",
        ),
        pytest.param(
            [RunSQL("this is no SQL")], True, "syntax-error", "Squawk", id="what nobody can read",
        ),
    ],
)  # fmt: skip
def test_bad_migration_is_refused_with_its_way_out(operations, atomic, want_says, want_way_out):
    told = _found((operations, atomic))
    matching = [
        one for one in told
        if want_says in one.partition(". Way out: ")[0]
        and want_way_out in one.partition(". Way out: ")[2]
    ]  # fmt: skip
    assert matching, told
    names = tuple(f"budgets.0002_m, {type(operation).__name__} (" for operation in operations)
    assert all(one.startswith(names) for one in matching)


@pytest.mark.parametrize(
    "later",
    [
        pytest.param([([AddField("House", "new", models.TextField(null=True))], True)],
                     id="a nullable column"),
        pytest.param([([AddField("House", "new", models.IntegerField(db_default=0))], True)],
                     id="a column with the database's own default"),
        pytest.param([([AddField("House", "street", models.ForeignKey(
            "budgets.Street", models.PROTECT, null=True, db_index=False))], True)],
                     id="a nullable foreign key"),
        pytest.param([([AddIndexBesideWrites("House", BY_N)], False)], id="an index beside writes"),
        pytest.param([([AddIndexConcurrently("House", BY_N)], False)], id="Django's own, too"),
        pytest.param([([AddCheckForNewRows("House", HIGH)], True),
                      ([CheckOldRows("House", "house_high")], False)], id="a check in two steps"),
        pytest.param([([RunPython(InBatches(APP, "House", _fill))], False)], id="rows in batches"),
        pytest.param([([AlterField("House", "name", models.CharField(max_length=40))], True)],
                     id="a longer text"),
        pytest.param([([AlterField("House", "n", models.IntegerField(null=True, help_text="N"))],
                       True)], id="nothing for the database"),
        pytest.param([([CreateModel("Room", [
            ("id", models.BigAutoField(primary_key=True)),
            ("house", models.ForeignKey("budgets.House", models.PROTECT)),
            ("name", models.CharField(max_length=9, unique=True)),
        ])], True), ([AddIndex("Room", models.Index(fields=["name"], name="room_name"))], True)],
                     id="a table, and an index on it before its release"),
        pytest.param([([SeparateDatabaseAndState(state_operations=[RemoveField("House", "n")])],
                       True)], id="no model has a column any more"),
    ],
)  # fmt: skip
def test_migration_that_lets_others_work_is_passed(later):
    assert _found(*later) == []


def test_column_is_dropped_when_the_last_release_does_not_know_it():
    forget = ([SeparateDatabaseAndState(state_operations=[RemoveField("House", "n")])], True)
    drop = ([RunSQL('ALTER TABLE "budgets_house" DROP COLUMN "n"')], True)
    graph = _graph(forget, drop)
    assert refusals(graph, {APP: "0002_m"}) == []
    [refused] = refusals(graph, {APP: "0001_m"})
    assert (refused.migration, refused.says) == (
        "budgets.0003_m", "drops what the last release reads",
    )  # fmt: skip


def test_migrations_after_the_release_are_passed():
    """Those of the release itself are its first ones: nobody ran before them."""
    graph = MigrationLoader(None).graph
    assert {app: graph.nodes[app, name].name for app, name in RELEASED.items()} == RELEASED
    assert [str(one) for one in refusals(graph)] == []


def test_every_app_with_migrations_of_its_own_is_judged():
    root = Path(__file__).resolve().parent.parent
    assert {path.parts[-3] for path in root.glob("*/migrations/0*.py")} == RELEASED.keys()
