"""The tables: what the migrations make is what the models say, and it can be taken away again."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection

from tests.databases import ROLE, as_owner

APPS = ("budgets", "clusters")


@pytest.mark.django_db
def test_models_and_migrations_agree():
    call_command("makemigrations", *APPS, check=True, dry_run=True, verbosity=0)


@pytest.mark.django_db
def test_index_by_time_is_small_on_postgres_and_ordinary_elsewhere():
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT indexdef FROM pg_indexes WHERE indexname = 'workload_usage_by_time'"
            )
            (found,) = cursor.fetchone()
            want = "USING brin (hour) WITH (autosummarize='on', pages_per_range='32')"
            assert found.endswith(want)
            return
        constraints = connection.introspection.get_constraints(cursor, "budgets_workloadusage")
    assert constraints["workload_usage_by_time"]["columns"] == ["hour"]


@pytest.mark.postgres
@pytest.mark.django_db
def test_pages_of_open_hours_have_room_to_be_written_again():
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = 'budgets_workloadusage'")
        assert cursor.fetchone() == (["fillfactor=90"],)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_migrations_are_reversible():
    """Where tables, triggers and their functions have an order to go in."""
    with as_owner():
        try:
            call_command("migrate", "budgets", "zero", verbosity=0)
            left = set(connection.introspection.table_names())
            assert not [name for name in left if name.startswith(tuple(f"{app}_" for app in APPS))]
        finally:
            # Everything, for what stands on these tables in other apps went with them.
            call_command("migrate", verbosity=0)
            call_command("grant_rights", ROLE, stdout=StringIO())
