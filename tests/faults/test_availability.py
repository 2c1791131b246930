"""Two of each, of which one after the other is killed; and what the run would notice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.faults.availability import BEAT_S, LEASE_S, SHIFT_SLACK_S, Taken, kills_of, run
from tests.faults.load import Asked, failures
from tests.faults.pairs import KINDS
from tests.front import nginx_program
from tests.lanes import IN_CI
from tests.servers import has_postgres

SEED = 20261125
NEEDS_POSTGRES = pytest.mark.skipif(not has_postgres(), reason="no PostgreSQL server")
WELL = Asked(at=10.0, seconds=0.1, method="GET", path="/", status=200)


def test_every_kind_is_killed_before_any_comes_again():
    assert kills_of(7, 12) == kills_of(7, 12) != kills_of(8, 12)
    assert Counter(kill.kind for kill in kills_of(7, 12)) == dict.fromkeys(KINDS, 3)
    assert [kill.down_s > BEAT_S / 2 for kill in kills_of(7, 12) if kill.kind == "beat"] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("bad", "want"),
    [
        pytest.param(replace(WELL, at=11.0, seconds=0.2, status=502), 1.9, id="from its answer"),
        pytest.param(replace(WELL, at=11.0, seconds=2.0, status=0), 2.1, id="from its beginning"),
        pytest.param(
            replace(WELL, at=11.0, method="POST", status=502), float("inf"), id="of its own method"
        ),
        pytest.param(replace(WELL, at=11.0, seconds=0.2, status=404), 1.9, id="a refusal as well"),
    ],
)
def test_failure_lasts_until_the_next_good_answer(bad: Asked, want: float):
    [found] = failures([WELL, bad, replace(WELL, at=13.0)])
    assert found.seconds == pytest.approx(want)


def test_what_is_taken_over_late_or_never_is_a_fault():
    well = Taken(0.0, "shifts-a", 3.0, LEASE_S + SHIFT_SLACK_S, 5.0)
    assert not list(well.faults())
    assert list(replace(well, over_s=LEASE_S + SHIFT_SLACK_S + 0.1).faults())
    assert list(replace(well, over_s=None).faults())
    assert list(replace(well, name="beat-b", over_s=BEAT_S + 0.1).faults())
    assert list(replace(well, name="web-b", well_s=None).faults())


@NEEDS_POSTGRES
@pytest.mark.slow
@pytest.mark.redis
def test_any_one_of_two_may_be_killed():
    if nginx_program() is None:
        (pytest.fail if IN_CI else pytest.skip)("no nginx: install Debian's nginx")
    report = run(SEED, kills=6)
    print(report.text())
    report.store()
    assert not report.broken
    assert report.holds
