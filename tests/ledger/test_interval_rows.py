"""Intervals in full: whose they are, in which role, and the note that says why."""

from __future__ import annotations

from typing import Any

from budgets.intervals import Interval, IntervalKind, IntervalState, PendingSpan, Problem
from budgets.intervals.model import ProblemCode
from tests.ledger.story import Job, at
from tests.ledger.test_double_counting import history, race

RACE, BILLABLE = IntervalKind.RACE, IntervalKind.BILLABLE
UNDECIDED, WAIT = IntervalKind.UNDECIDED, IntervalKind.MANAGER_WAIT


def row(
    place: str,
    role: IntervalKind,
    start: float,
    end: float | None = None,
    note: str = "",
    **more: Any,
) -> Interval:
    """An interval of a story, of the object ``place``: cluster and UID."""
    cluster, uid = place.split()
    given = {
        "epoch": 1,
        "pod_set": "main",
        "flavor": "h100",
        "seq": 1,
        "gpus": 8,
        "admitted_at": at(start),
        "state": IntervalState.OPEN if end is None else IntervalState.CLOSED,
        "namespace": "acme-vision",
        "workload": "train",
        "cluster_queue": "acme-vision",
        "job_kind": "",
        "job_name": "",
        "ended_by": "",
        **more,
    }
    until = None if end is None else at(end)
    return Interval(
        cluster=cluster, uid=uid, start=at(start), end=until, role=role, note=note, **given
    )


def found(*jobs: Job) -> list[Interval]:
    return list(history(*jobs).intervals)


def test_local_job_is_told_in_full_with_its_wait():
    job = Job("west", "w1", job_kind="Job", job_name="fit", queue="default")
    told = history(job.admit(1).see(1).finish(60).see(60))
    assert told.intervals == (row("west w1", BILLABLE, 1, 60, job_kind="Job", job_name="fit"),)
    assert told.pending == (
        PendingSpan(
            cluster="west",
            uid="w1",
            start=at(0),
            end=at(1),
            gpus=8,
            namespace="acme-vision",
            workload="train",
            queue="default",
            requeued=False,
        ),
    )
    assert told.problems == ()


def test_race_is_told_before_and_after_a_cluster_is_named():
    hub, east, west = race()
    open_ = "no cluster is named yet"
    assert found(hub, east, west) == [
        row("east e1", UNDECIDED, 3, None, open_),
        row("hub m1", WAIT, 1),
        row("west w1", UNDECIDED, 4, None, open_),
    ]
    hub.admit(5).set(cluster_name="west").see(5)
    assert found(hub, east, west) == [
        row("east e1", RACE, 3, None, "west was named"),
        row("hub m1", WAIT, 1, 5),
        row("west w1", BILLABLE, 4),
    ]
    hub.set(cluster_name="east").see(20)
    assert found(hub, west)[1:] == [
        row("west w1", BILLABLE, 4, 20),
        row("west w1", RACE, 20, None, "east was named", seq=2, admitted_at=at(4)),
    ]


def test_copy_whose_manager_is_not_known_says_so():
    _, east, _ = race()
    assert found(east) == [
        row("east e1", UNDECIDED, 3, None, "its manager's workload is not known")
    ]
    never = "its manager's workload was never seen"
    assert found(east.delete(7)) == [row("east e1", RACE, 3, 7, never)]


def test_copy_of_a_workload_that_is_over_or_was_named_late_is_a_race():
    hub, east, _ = race()
    hub.finish(9).see(9)
    assert found(hub, east) == [
        row("east e1", RACE, 3, None, "no cluster was named for it"),
        row("hub m1", WAIT, 1, 9),
    ]
    hub, east, _ = race()
    hub.admit(5).set(cluster_name="east").see(5)
    assert found(hub, east.delete(4)) == [
        row("east e1", RACE, 3, 4, "it was named only later"),
        row("hub m1", WAIT, 1, 5),
    ]


def test_next_slice_and_next_variant_take_over_at_once():
    old = Job("west", "s1", name="one").reserve(1, main=4).admit(1).see(1)
    new = Job("west", "s2", name="two", created=40, replaces="acme-vision/one").admit(50).see(50)
    assert found(old, new) == [
        row("west s1", BILLABLE, 1, 50, gpus=4, workload="one"),
        row("west s2", BILLABLE, 50, workload="two"),
    ]
    spot = Job("west", "v1", name="a", variant_of="parent").admit(1).see(1)
    home = Job("west", "v2", name="b", variant_of="parent").admit(50).see(50)
    why = "another variant of the job was admitted"
    assert found(spot, home) == [
        row("west v1", BILLABLE, 1, 50, workload="a"),
        row("west v1", RACE, 50, None, why, seq=2, workload="a", admitted_at=at(1)),
        row("west v2", BILLABLE, 50, workload="b"),
    ]


def test_what_nobody_watched_is_estimated_for_the_customer():
    guessed = {"state": IntervalState.ESTIMATED}
    gone = Job("west", "w1").admit(1).see(1).miss(50, last_seen=30)
    why = "vanished unseen; the last time it was seen"
    assert found(gone) == [row("west w1", BILLABLE, 1, 30, why, **guessed)]
    shrunk = Job("west", "w1").admit(1).see(1).reserve(1, main=4).see(40, gap=True)
    assert found(shrunk) == [row("west w1", BILLABLE, 1, gpus=4, **guessed)]


def test_admission_that_ends_before_it_began_is_a_problem_and_no_interval():
    told = history(Job("west", "w1").admit(50).see(50).finish(20).see(60))
    assert told.intervals == ()
    assert told.problems == (
        Problem(
            cluster="west",
            uid="w1",
            code=ProblemCode.NEGATIVE_DURATION,
            message="admission 1 ends 2026-05-04T10:00:20+00:00, before its quota was reserved "
            "2026-05-04T10:00:50+00:00",
        ),
    )
