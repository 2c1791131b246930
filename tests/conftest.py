"""What every test has: rows of a small fleet. Rooms add fixtures in their own folders."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.builders import SmallFleet, small_fleet

pytest_plugins = ["tests.controlplane.fixtures"]


@pytest.fixture
def fleet(db) -> SmallFleet:
    """Two accounts with three workspaces, four flavors, two workers, three people."""
    return small_fleet()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need a real PostgreSQL run where the database is one, and nowhere else."""
    if connection.vendor == "postgresql":
        return
    for item in items:
        if "postgres" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="DATABASE_URL names no PostgreSQL server"))
