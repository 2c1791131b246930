"""The tables: one step for a portal that begins, the steps of before for one that stands."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ModelState

SQUASHED = {
    "budgets": ("0001_squashed_0018_derived_rows_by_key", "0018_derived_rows_by_key"),
    "clusters": ("0001_squashed_0009_events_by_their_key", "0009_events_by_their_key"),
}


@pytest.mark.django_db
def test_models_and_migrations_agree():
    call_command("makemigrations", "budgets", "clusters", check=True, dry_run=True, verbosity=0)


@pytest.mark.parametrize("app", SQUASHED)
def test_one_step_and_the_steps_of_before_end_at_the_same_tables(app: str):
    loader = MigrationLoader(None, replace_migrations=False)
    one_step, last_step = (
        {
            key: _told(model)
            for key, model in loader.project_state((app, name)).models.items()
            if key[0] == app
        }
        for name in SQUASHED[app]
    )
    assert one_step.keys() == last_step.keys()
    for key, told in one_step.items():
        assert told == last_step[key], key


def _told(model: ModelState) -> dict[str, object]:
    """What a model has, whatever order it came in."""
    named = {
        key: value for key, value in model.options.items() if key in {"indexes", "constraints"}
    }
    return {
        "fields": {name: field.deconstruct()[1:] for name, field in model.fields.items()},
        **{key: sorted(repr(x.deconstruct()) for x in value) for key, value in named.items()},
        "options": {key: value for key, value in model.options.items() if key not in named},
        "bases": model.bases,
        "managers": [name for name, _ in model.managers],
    }


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("until", "lacking"),
    [
        ({}, []),
        ({"budgets": 17}, ["0018_derived_rows_by_key"]),
        ({"clusters": 8}, ["0009_events_by_their_key"]),
        (
            {"budgets": 17, "clusters": 7},
            ["0018_derived_rows_by_key", "0008_fewer_workload_indexes", "0009_events_by_their_key"],
        ),
    ],
)
def test_portal_that_stands_goes_on_with_the_steps_it_lacks(until, lacking):
    """Its records know no step of one."""
    applied = MigrationRecorder(connection).migration_qs
    for app, (one_step, _) in SQUASHED.items():
        applied.filter(app=app, name=one_step).delete()
        last = f"{until.get(app, 9999):04}_~"
        applied.filter(app=app, name__gt=last).delete()
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    assert sorted(step.name for step, _ in plan) == sorted(lacking)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_migrations_are_reversible():
    """Where tables, triggers and their functions have an order to go in."""
    try:
        call_command("migrate", "budgets", "zero", verbosity=0)
        left = set(connection.introspection.table_names())
        assert not [name for name in left if name.startswith(tuple(f"{app}_" for app in SQUASHED))]
    finally:
        # Everything, for what stands on these tables in other apps went with them.
        call_command("migrate", verbosity=0)
