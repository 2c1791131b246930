"""What every test has: rows of a small fleet. Rooms add fixtures in their own folders."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.db import connection

from tests.builders import SmallFleet, small_fleet
from tests.databases import django_db_keepdb, django_db_setup

__all__ = ["django_db_keepdb", "django_db_setup"]  # fixtures
pytest_plugins = ["tests.controlplane.fixtures"]


@pytest.fixture(autouse=True)
def _no_login_attempts() -> None:
    """Attempts of earlier tests in this process do not count."""
    cache.clear()


@pytest.fixture
def fleet(db) -> SmallFleet:
    """Two accounts with three workspaces, four flavors, two workers, three people."""
    return small_fleet()


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need a real PostgreSQL run where the database is one, and nowhere else.

    Where it is one, what touches no database is left to the runs where it is none: it would be the
    same again.
    """
    for item in items:
        if _touches_the_database(item):
            item.add_marker("database")
    if connection.vendor == "postgresql":
        config.hook.pytest_deselected(items=[x for x in items if not _touches_the_database(x)])
        items[:] = [item for item in items if _touches_the_database(item)]
        return
    for item in items:
        if item.get_closest_marker("postgres"):
            item.add_marker(pytest.mark.skip(reason="DATABASE_URL names no PostgreSQL server"))


def _touches_the_database(item: pytest.Item) -> bool:
    fixtures = {"db", "transactional_db", "django_db_setup"}
    is_marked = item.get_closest_marker("django_db") or item.get_closest_marker("postgres")
    return bool(is_marked or fixtures & set(getattr(item, "fixturenames", ())))
