"""What every test has: rows of a small fleet. Rooms add fixtures in their own folders."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path

import pytest
import time_machine
from django.core.cache import cache
from django.db import connection, transaction
from hypothesis import HealthCheck, settings

from portal.logs import formatter
from tests.builders import SmallFleet, small_fleet
from tests.databases import django_db_keepdb, django_db_setup
from tests.secrets import WATCH, listen, watch

__all__ = ["django_db_keepdb", "django_db_setup"]  # fixtures
pytest_plugins = ["tests.controlplane.fixtures"]
# How long an example takes says how much else the machine does.
settings.register_profile("lanes", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lanes")
API, WEB = (Path(__file__).parent / folder for folder in ("api", "web"))


@pytest.fixture(scope="session", autouse=True)
def _secrets_are_watched() -> None:
    watch()


@pytest.fixture(autouse=True)
def _no_secret_is_logged() -> Iterator[None]:
    """Whatever a test does, no line of its log has what opens something."""
    listen()  # a test that sets logging up anew takes all handlers off
    yield
    WATCH.read_files()
    leaks = WATCH.leaks[:]
    WATCH.leaks.clear()
    assert not leaks, f"secrets are in the log: {leaks}"


@pytest.fixture(autouse=True)
def _no_login_attempts() -> None:
    """Attempts of earlier tests in this process do not count."""
    cache.clear()


@pytest.fixture
def at_one_moment() -> Iterator[None]:
    """However slow the machine is, nobody is late: the clock stands still."""
    with time_machine.travel(datetime.now(UTC), tick=False):
        yield


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Its text is what stands in the log."""
    caplog.handler.setFormatter(formatter())
    return caplog


@pytest.fixture(scope="module")
def _fleet_of_module(
    request: pytest.FixtureRequest, django_db_setup, django_db_blocker
) -> Iterator[SmallFleet | None]:
    """The small fleet once for a module whose tests all want it: each works in a savepoint.

    None for a module with a test that wants an empty database, or that commits.
    """
    items = [item for item in request.session.items if item.path == request.path]
    if any(_touches_the_database(item) and not _wants_the_fleet(item) for item in items):
        yield None
        return
    with django_db_blocker.unblock(), transaction.atomic():
        yield small_fleet()
        transaction.set_rollback(True)


def _wants_the_fleet(item: pytest.Item) -> bool:
    marks = item.iter_markers("django_db")
    fixtures = getattr(item, "fixturenames", ())
    commits = "transactional_db" in fixtures or any(mark.kwargs for mark in marks)
    return "fleet" in fixtures and not commits


@pytest.fixture
def fleet(_fleet_of_module: SmallFleet | None, db) -> SmallFleet:
    """Two accounts with three workspaces, four flavors, two workers, three people."""
    return small_fleet() if _fleet_of_module is None else deepcopy(_fleet_of_module)


def pytest_collection_finish() -> None:
    """What was read is there to stay: the garbage collector need not go through it again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Its end finds everything, as without the freezing."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need a real PostgreSQL run where the database is one, and nowhere else.

    Where it is one, what touches no database is left to the runs where it is none: it would be the
    same again.
    """
    for item in items:
        if _touches_the_database(item):
            item.add_marker("database")
            is_of_faces = item.path.is_relative_to(WEB) or item.path.is_relative_to(API)
            if is_of_faces and not item.get_closest_marker("sqlite"):
                item.add_marker("on_either_database")
    if connection.vendor == "postgresql":
        config.hook.pytest_deselected(items=[x for x in items if not _is_for_postgres(x)])
        items[:] = [item for item in items if _is_for_postgres(item)]
        return
    for item in items:
        if item.get_closest_marker("postgres"):
            item.add_marker(pytest.mark.skip(reason="DATABASE_URL names no PostgreSQL server"))


def _is_for_postgres(item: pytest.Item) -> bool:
    return _touches_the_database(item) and not item.get_closest_marker("sqlite")


def _touches_the_database(item: pytest.Item) -> bool:
    fixtures = {"db", "transactional_db", "django_db_setup"}
    is_marked = item.get_closest_marker("django_db") or item.get_closest_marker("postgres")
    return bool(is_marked or fixtures & set(getattr(item, "fixturenames", ())))
