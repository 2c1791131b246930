"""A backup of yesterday is restored under a portal that went on since: nothing is deleted, the
portal asks, and the ledger says what it lacks. Real PostgreSQL and Redis, all processes."""

from __future__ import annotations

import pytest

from tests.faults.commands import commands
from tests.faults.restore_drill import Way, jobs_of, run
from tests.servers import has_postgres

SEED = 20261123
NEEDS_POSTGRES = pytest.mark.skipif(not has_postgres(), reason="no PostgreSQL server")
REAL = (pytest.mark.controlplane, pytest.mark.django_db)


@NEEDS_POSTGRES
@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "is_real", "closes_a_month"),
    [
        pytest.param(Way.DUMP, False, False, id="embedded", marks=pytest.mark.redis),
        pytest.param(Way.MOMENT, False, True, id="embedded-moment", marks=pytest.mark.redis),
        pytest.param(Way.DUMP, True, True, id="real", marks=REAL),
        pytest.param(Way.MOMENT, True, True, id="real-moment", marks=REAL),
    ],
)
def test_restored_backup_deletes_nothing_asks_and_says_what_is_missing(
    way, is_real, closes_a_month
):
    report = run(SEED, way=way, is_real=is_real, closes_a_month=closes_a_month)
    print(report.text())
    report.store()
    assert not report.broken
    assert report.holds
    assert bool(report.missing) == closes_a_month


def test_seed_brings_the_same_jobs():
    assert jobs_of(7) == jobs_of(7)
    assert jobs_of(7) != jobs_of(8)
    assert jobs_of(7).lost.isdisjoint(one.name for one in jobs_of(7).running)


@pytest.mark.parametrize("title", ["Nothing of that name", "What happens then"])
def test_commands_that_are_not_in_the_document_are_missed(title):
    with pytest.raises(AssertionError):
        commands(title)
