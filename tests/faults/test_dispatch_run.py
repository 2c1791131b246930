"""The fault run: short on embedded API servers, long on real ones, and with a guard taken out."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest

from tests.faults.play import run
from tests.faults.report import Report
from tests.faults.schedule import KINDS, WORKERS, Arrival, Fault, Schedule, Size, schedule_of

QUICK_SEED = 20261121
NIGHTLY_S = 600.0


def seed_of_the_night() -> int:
    """Another one each time; ``FAULT_SEED`` repeats one."""
    return int(os.environ.get("FAULT_SEED") or int.from_bytes(os.urandom(3), "big"))


def judged(report: Report) -> Report:
    path = report.store()
    print(report.text())
    assert not report.broken, f"{path}: {report.broken}"
    assert report.rest_s is not None
    return report


def test_schedule_is_the_same_for_the_same_seed_alone():
    size = Size(seconds=60)
    assert schedule_of(7, size) == schedule_of(7, size)
    assert schedule_of(7, size).faults != schedule_of(8, size).faults
    assert schedule_of(7, size).arrivals != schedule_of(8, size).arrivals


@pytest.mark.parametrize("seed", [QUICK_SEED, *range(5)])
def test_outages_of_a_worker_never_look_like_one(seed):
    size = Size(seconds=600)
    for worker in WORKERS:
        outages = [
            fault
            for fault in schedule_of(seed, size).faults
            if fault.cluster == worker and fault.kind in ("cut-within", "cut-beyond", "freeze")
        ]
        assert len(outages) > 5
        for one, two in pairwise(outages):
            assert two.at_s - (one.at_s + one.seconds) >= size.grace_s - 0.01


def test_quick_run_has_faults_of_every_kind():
    faults = schedule_of(QUICK_SEED, Size(seconds=60)).faults
    assert {fault.kind for fault in faults} == set(KINDS)


@pytest.mark.embedded
def test_dispatch_keeps_its_promises_through_a_minute_of_faults():
    report = judged(run(schedule_of(QUICK_SEED, Size(seconds=60))))
    assert report.kills
    assert report.jobs["complete"]
    assert report.jobs.get("open", 0) <= report.jobs["deleted"]


@pytest.mark.slow
@pytest.mark.controlplane
@pytest.mark.django_db
def test_dispatch_keeps_its_promises_through_ten_minutes_on_real_api_servers():
    report = judged(run(schedule_of(seed_of_the_night(), Size(seconds=NIGHTLY_S)), is_real=True))
    assert set(report.faults) == set(KINDS)
    assert report.evictions
    assert report.redispatches


# Negative controls: the same observer, and a dispatcher without one of its guards.

SMALL = Size(seconds=0, grace_s=4.0, lease_s=4)
BOTH_AWAY_IN_TURN = (
    # Only w1 can take the job; then it is away beyond the grace and comes back with its copy.
    Fault(0.0, "cut-within", "w2", seconds=4.0),
    Fault(8.0, "cut-beyond", "w1", seconds=16.0),
)
CONTROLS = [
    pytest.param(
        "forgets-ownership",
        [Arrival(0.0, "mine", 2, 2.0, squatted="w1"), Arrival(0.1, "thine", 2, 2.0, squatted="w2")],
        (),
        "others are left alone",
        id="forgets-ownership",
    ),
    pytest.param(
        "waits-for-nobody",
        [Arrival(2.0, "long", 8, 25.0)],
        (Fault(0.0, "cut-within", "w2", seconds=4.0), Fault(8.0, "cut-within", "w1", seconds=3.0)),
        "evicted for a reason",
        marks=pytest.mark.slow,
        id="waits-for-nobody",
    ),
    pytest.param(
        "prefers-the-oldest",
        [Arrival(2.0, "long", 8, 60.0)],
        BOTH_AWAY_IN_TURN,
        "nobody kills what runs",
        marks=pytest.mark.slow,
        id="prefers-the-oldest",
    ),
    pytest.param(
        "leaves-everything",
        [Arrival(0.0, "short", 2, 1.0)],
        (),
        "at rest",
        marks=pytest.mark.slow,
        id="leaves-everything",
    ),
]


@pytest.mark.embedded
@pytest.mark.parametrize(("variant", "arrivals", "faults", "want"), CONTROLS)
def test_observer_notices_a_dispatcher_that(variant, arrivals, faults, want):
    report = run(Schedule(0, SMALL, arrivals, faults), variant=variant, rest_within_s=12.0)
    assert any(words.startswith(want) for words in report.broken), report.text()


@pytest.mark.slow
@pytest.mark.embedded
def test_observer_finds_nothing_where_the_guards_are_in_place():
    arrivals = [Arrival(2.0, "long", 8, 30.0), Arrival(2.1, "mine", 2, 2.0, squatted="w1")]
    judged(run(Schedule(0, SMALL, arrivals, BOTH_AWAY_IN_TURN)))
