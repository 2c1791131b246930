"""One object's states in full: its lives, its admissions, and each thing that was refused."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import Any

import pytest
from msgspec.structs import replace

from budgets.intervals import EventType, Problem, ProblemCode, WorkloadEvent, intervals, lives
from budgets.intervals.epochs import Epoch, HeldStep, WorkloadCopy, build_copy
from tests.ledger.story import Job, at

DATE = "2026-05-04T10:"
MAIN = ("main", "h100")


def read(job: Job) -> WorkloadCopy:
    return build_copy(job.cluster, job.uid, job.events)


def epochs(job: Job) -> list[Epoch]:
    """Without the state that was only kept to compare the next one with."""
    return [changed(epoch, counted=None) for epoch in read(job).epochs]


def step(since: float | None, gpus: int = 8, *estimated: tuple[str, str]) -> HeldStep:
    return HeldStep(None if since is None else at(since), {MAIN: gpus}, frozenset(estimated))


def epoch(number: int, reserved: float, alive: float, **more: Any) -> Epoch:
    """An admission of a story; times in seconds, told and admitted as it was reserved."""
    times = {"told": reserved, "admitted_at": reserved, **more}
    names = ("told", "admitted_at", "ready_at", "end")
    given: dict[str, Any] = {"cluster_queue": "acme-vision", "steps": [step(None)]} | more
    for name in names:
        when = times.get(name)
        given[name] = None if when is None else at(when)
    return Epoch(number, at(reserved), at(alive), **given)


def guessed(note: str, end: float, **more: Any) -> dict[str, Any]:
    return {"note": note, "end": end, "is_estimated": True, **more}


# Admissions


def test_admission_is_told_from_its_reservation_to_its_release():
    job = Job().see(0).reserve(10).see(10).admit(20).see(21).condition("PodsReady", 35).see(36)
    job.condition("PodsReady", 40).see(41).condition("Evicted", 50, reason="Preempted").see(51)
    job.release(55).see(56).reserve(70).see(71)
    assert epochs(job) == [
        epoch(1, 10, 51, admitted_at=20, ready_at=35, end=55, ended_by="Preempted"),
        epoch(2, 70, 71, admitted_at=None),
    ]
    copy = read(job)
    assert (copy.cluster, copy.uid, copy.gone_at, copy.over_at) == ("east", "u1", None, None)
    assert (copy.facts, copy.events, copy.problems) == (job.facts, job.events, [])


def test_queue_of_an_admission_is_the_last_one_that_was_named():
    job = Job().admit(10).see(10).set(cluster_queue="other").see(20).set(cluster_queue="").see(30)
    assert epochs(job) == [epoch(1, 10, 30, cluster_queue="other")]


def test_eviction_that_is_over_ends_nothing():
    job = Job().admit(10).condition("Evicted", 5, status=False, reason="Old").see(10)
    assert epochs(job.release(20).see(20)) == [epoch(1, 10, 10, end=20)]


def test_finish_and_deletion_are_over_at_the_first_of_them():
    job = Job().admit(10).see(10).finish(40).see(41)
    assert (read(job).over_at, read(job).gone_at) == (at(40), None)
    job.delete(90)
    assert (read(job).over_at, read(job).gone_at) == (at(40), at(90))
    assert epochs(job) == [epoch(1, 10, 41, end=40)]
    waiting = Job().see(0).delete(30)
    copy = read(waiting)
    assert (copy.over_at, copy.gone_at, copy.epochs) == (at(30), at(30), [])


GONE = {"conditions": (), "assignments": (), "cluster_queue": ""}
UNSEEN = "release was not seen"


@pytest.mark.parametrize(
    ("gap", "evicted", "evictions", "want"),
    [
        pytest.param(False, None, 0, {"end": 90}, id="watched"),
        pytest.param(True, None, 0, guessed(UNSEEN, 50), id="not watched"),
        pytest.param(True, 70, 1, guessed(UNSEEN, 70), id="evicted meanwhile"),
        pytest.param(True, 90, 1, guessed(UNSEEN, 90), id="evicted as it was seen"),
        pytest.param(True, 91, 1, guessed(UNSEEN, 50), id="evicted later, by its time"),
        pytest.param(True, 50, 1, guessed(UNSEEN, 50), id="evicted as it was last seen"),
        pytest.param(True, 70, 2, guessed(UNSEEN, 50), id="evicted twice"),
    ],
)
def test_reservation_that_is_gone_without_a_word_ends_where_it_is_proven(
    gap, evicted, evictions, want
):
    job = Job().admit(10).see(10).see(50).set(**GONE, evictions=evictions)
    if evicted is not None:
        job.condition("Evicted", evicted, reason="Preempted")
        want = {"ended_by": "Preempted", **want}
    assert epochs(job.see(90, gap=gap)) == [epoch(1, 10, 50, **want)]


@pytest.mark.parametrize(
    ("before", "after", "gap", "want"),
    [
        pytest.param(0, 1, True, {"end": 60}, id="one eviction"),
        pytest.param(1, 2, True, {"end": 60}, id="one more eviction"),
        pytest.param(0, 2, False, {"end": 60}, id="two, and watched"),
        pytest.param(1, 3, True, guessed(UNSEEN, 50), id="two, and not watched"),
    ],
)
def test_release_that_is_told_counts_unless_it_is_of_another_admission(before, after, gap, want):
    job = Job().set(evictions=before).admit(10).see(10).see(50).release(60).set(evictions=after)
    assert epochs(job.see(90, gap=gap)) == [epoch(1, 10, 50, **want)]


def test_next_reservation_ends_the_one_before_no_later_than_it_begins():
    job = Job().admit(10).see(10).see(50).admit(45).condition("QuotaReserved", 45)
    assert epochs(job.condition("Admitted", 46).see(60)) == [
        epoch(1, 10, 50, **guessed(UNSEEN, 45)),
        epoch(2, 45, 60, admitted_at=46),
    ]


UNWATCHED = "deletion was not watched"


@pytest.mark.parametrize(
    ("deleting", "want"),
    [
        pytest.param(None, 50, id="last seen"),
        pytest.param(40, 50, id="last seen after it was asked for"),
        pytest.param(70, 70, id="asked for"),
        pytest.param(6000, 5000, id="never later than it was told"),
    ],
)
def test_deletion_that_nobody_watched_ends_where_it_is_proven(deleting, want):
    job = Job().admit(10).see(10).see(50)
    job.set(deleting_since=None if deleting is None else at(deleting)).delete(5000, gap=True)
    (found,) = epochs(job)
    assert (found.end, found.note, found.is_estimated) == (at(want), UNWATCHED, True)
    copy = read(job)
    assert (copy.gone_at, copy.over_at) == (at(5000), at(5000))


def test_deletion_of_what_was_never_seen_before_proves_its_reservation_alone():
    (found,) = epochs(Job().admit(10).delete(90, gap=True))
    assert (found.end, found.note, found.is_estimated) == (at(10), UNWATCHED, True)


SEEN_LAST = "vanished unseen; the last time it was seen"
DONE = "vanished unseen; its job's completion"


@pytest.mark.parametrize(
    ("last_seen", "completed", "end", "note"),
    [
        pytest.param(60, None, 60, SEEN_LAST, id="a list showed it"),
        pytest.param(30, None, 50, SEEN_LAST, id="a state was newer"),
        pytest.param(None, None, 50, SEEN_LAST, id="only states showed it"),
        pytest.param(600, None, 500, SEEN_LAST, id="never later than it was missed"),
        pytest.param(60, 200, 200, DONE, id="its job had ended"),
        pytest.param(60, 500, 500, DONE, id="as it was missed"),
        pytest.param(60, 501, 60, SEEN_LAST, id="later than it was missed"),
        pytest.param(60, 10, 10, DONE, id="as it was admitted"),
        pytest.param(60, 9, 60, SEEN_LAST, id="before it was admitted"),
    ],
)
def test_what_a_list_does_not_show_ends_where_it_is_proven(last_seen, completed, end, note):
    job = Job().admit(10).see(10).see(50).miss(500, last_seen=0, completed=completed)
    seen = None if last_seen is None else at(last_seen)
    job.events[-1] = replace(job.events[-1], last_seen_at=seen)
    assert epochs(job) == [epoch(1, 10, 50, **guessed(note, end))]
    copy = read(job)
    assert (copy.gone_at, copy.over_at) == (at(500), seen or at(50))


def test_what_held_nothing_and_is_missed_is_over_all_the_same():
    job = Job().see(0).miss(500, last_seen=60)
    assert (read(job).gone_at, read(job).over_at, read(job).epochs) == (at(500), at(60), [])
    job.events[-1] = replace(job.events[-1], last_seen_at=None)
    assert (read(job).gone_at, read(job).over_at) == (at(500), at(500))
    done = Job().admit(10).see(10).finish(40).see(41).miss(500, last_seen=400)
    assert (read(done).gone_at, read(done).over_at) == (at(500), at(40))


# Quantities


def test_quantities_change_when_they_are_seen_to():
    job = Job().admit(10).see(10).set(reclaimable=(("main", 1),)).see(42)
    job.set(reclaimable=(("main", 2),)).see(41).set(priority=3).see(60)
    job.set(reclaimable=(("main", 3),)).see(900, gap=True)
    steps = [step(None), step(42, 6), step(42, 4), step(60, 2, MAIN)]
    assert epochs(job) == [epoch(1, 10, 900, steps=steps)]


@pytest.mark.parametrize(
    ("after", "want"),
    [
        pytest.param(
            {"head": 8, "tail": 4},
            [
                (50, {"head": 4, "tail": 4}, {"tail"}),
                (900, {"head": 8, "tail": 4}, {"head"}),
            ],
            id="more of one and fewer of the other",
        ),
        pytest.param({"tail": 8}, [(50, {"head": 0, "tail": 8}, {"head"})], id="one is gone"),
        pytest.param(
            {"head": 4, "new": 4, "tail": 8},
            [(900, {"head": 4, "new": 4, "tail": 8}, {"new"})],
            id="one is new",
        ),
        pytest.param({"head": 4, "tail": 8}, [], id="nothing changed"),
    ],
)
def test_what_changed_in_a_gap_counts_as_it_costs_the_customer_less(after, want):
    job = Job().reserve(10, head=4, tail=8).admit(10).see(10).see(50)
    job.reserve(10, **after).see(900, gap=True)
    first = (None, {"head": 4, "tail": 8}, set())
    assert epochs(job)[0].steps == [
        HeldStep(
            None if since is None else at(since),
            {(name, "h100"): gpus for name, gpus in amounts.items()},
            frozenset((name, "h100") for name in estimated),
        )
        for since, amounts, estimated in [first, *want]
    ]


# Lives


def seen(*rows: tuple[int, float] | tuple[int, float, EventType]) -> list[WorkloadEvent]:
    """States by version and second."""
    (one,) = Job().see(0).events
    found = []
    for version, second, *kind in rows:
        given = {"resource_version": str(version), "observed_at": at(second)}
        found.append(replace(one, **given, type=kind[0] if kind else EventType.SEEN))
    return found


MISSING, DELETED = EventType.MISSING, EventType.DELETED


@pytest.mark.parametrize(
    ("events", "want"),
    [
        pytest.param([], [[]], id="nothing"),
        pytest.param([(5, 0), (6, 10)], [[5, 6]], id="in order"),
        pytest.param([(6, 10), (3, 70)], [[6, 3]], id="a minute late"),
        pytest.param([(6, 10), (3, 71)], [[6], [3]], id="later than a minute"),
        pytest.param([(6, 10), (3, 81), (7, 20)], [[6, 7], [3]], id="told in another order"),
        pytest.param([(6, 10), (6, 100), (3, 120)], [[6, 6], [3]], id="reached when first seen"),
        pytest.param([(6, 10), (5, 20), (7, 30)], [[6, 5, 7]], id="two watchers"),
        pytest.param([(6, 10), (3, 500, MISSING), (7, 600)], [[6, 3, 7]], id="missed for a while"),
        pytest.param([(9, 0, MISSING), (3, 90)], [[9, 3]], id="missed before it was seen"),
        pytest.param([(6, 10), (3, 90), (4, 130), (5, 140)], [[6], [3, 4, 5]], id="goes on"),
        pytest.param([(6, 10), (3, 90), (4, 130), (2, 250)], [[6], [3, 4], [2]], id="twice"),
        pytest.param([(6, 10), (5, 10)], [[5, 6]], id="at the same time by version"),
        pytest.param([(9, 10), (0, 100)], [[9], [0]], id="from its very beginning"),
    ],
)
def test_lives_are_cut_where_a_cluster_came_back_with_an_older_past(events, want):
    found = lives(seen(*events))
    assert [[int(event.resource_version) for event in part] for part in found] == want


@pytest.mark.parametrize(
    ("events", "want"),
    [
        pytest.param([(2, 20), (1, 10)], [(1, 10, "SEEN"), (2, 20, "SEEN")], id="by version"),
        pytest.param([(1, 12), (1, 10)], [(1, 10, "SEEN")], id="the first sighting"),
        pytest.param(
            [(1, 9), (2, 12), (2, 20, DELETED), (2, 25, DELETED)],
            [(1, 9, "SEEN"), (2, 20, "DELETED")],
            id="the deletion of a state",
        ),
        pytest.param(
            [(1, 10), (1, 60, MISSING), (1, 50, MISSING)],
            [(1, 10, "SEEN"), (1, 50, "MISSING")],
            id="missed twice, first the first time",
        ),
        pytest.param(
            [(1, 10), (1, 50, MISSING), (2, 55)],
            [(1, 10, "SEEN"), (2, 55, "SEEN")],
            id="missed and seen again",
        ),
        pytest.param(
            [(1, 10), (1, 50, MISSING), (2, 55), (2, 56)],
            [(1, 10, "SEEN"), (2, 55, "SEEN")],
            id="missed and seen again twice",
        ),
        pytest.param(
            [(1, 10), (2, 50, DELETED), (2, 55, MISSING)],
            [(1, 10, "SEEN"), (2, 50, "DELETED")],
            id="missed after its deletion",
        ),
        pytest.param([(1, 50, MISSING)], [(1, 50, "MISSING")], id="only ever missed"),
        pytest.param(
            [(1, 50, MISSING), (2, 40, MISSING)], [(1, 50, "MISSING")], id="of two the lower"
        ),
    ],
)
def test_each_state_is_read_once_in_the_order_of_versions(events, want):
    copy = build_copy("east", "u1", seen(*events))
    assert [
        (int(row.resource_version), int((row.observed_at - at(0)).total_seconds()), row.type.value)
        for row in copy.events
    ] == want


def test_live_sighting_goes_before_an_earlier_one_of_a_list():
    live, listed = seen((1, 12), (1, 10))
    again = replace(listed, after_gap=True)
    assert build_copy("east", "u1", [again, live]).events == [live]


CAME_BACK = "an older past came back"


def test_older_past_begins_an_admission_of_its_own():
    job = Job().admit(10).condition("PodsReady", 12).see(12)
    running = job.facts
    job.finish(100).see(100)
    job.version, job.facts = job.version - 10, running
    job.see(1000, gap=True).finish(1200).see(1200)
    first, second = epochs(job)
    assert first == epoch(1, 10, 100, ready_at=12, end=100)
    assert (second.number, second.reserved_at, second.told) == (2, at(1000), at(10))
    assert (second.admitted_at, second.ready_at, second.end) == (at(1000), at(1000), at(1200))
    assert (second.cluster_queue, second.steps) == ("acme-vision", [step(None)])


def test_older_past_that_only_reserved_admits_nothing():
    job = Job().reserve(10).see(10)
    reserved = job.facts
    job.admit(20).condition("PodsReady", 30).see(30).finish(100).see(100)
    job.version, job.facts = job.version - 10, reserved
    second = epochs(job.see(1000, gap=True))[1]
    assert (second.reserved_at, second.admitted_at, second.ready_at) == (at(1000), None, None)


def test_admission_that_an_older_past_does_not_know_is_estimated_and_says_why():
    job = Job().see(1)
    waiting = job.facts
    job.admit(10).see(10).set(priority=1).see(70)
    job.version, job.facts = job.version - 10, waiting
    assert epochs(job.see(1000, gap=True)) == [epoch(1, 10, 70, **guessed(CAME_BACK, 70))]
    copy = read(job)
    assert (copy.gone_at, copy.over_at) == (None, None)


def test_older_past_in_which_it_was_over_begins_nothing():
    job = Job().admit(10).see(10).finish(20).see(20)
    done = job.facts
    job.delete(100)
    job.version, job.facts = job.version - 10, done
    job.see(1000, gap=True)
    copy = read(job)
    assert [row.end for row in copy.epochs] == [at(20)]
    assert (copy.gone_at, copy.over_at) == (None, at(20))


# What is refused


def back(job: Job) -> Job:
    running = job.facts
    job.finish(100).see(100)
    job.version, job.facts = job.version - 10, running
    return job.see(1000, gap=True)


def conflicting() -> Job:
    job = Job().admit(10).see(10)
    job.events.append(replace(job.events[0], facts=replace(job.facts, priority=9)))
    return job


def without_order() -> Job:
    job = Job().admit(10).see(10)
    job.events.append(replace(job.events[0], resource_version="abc"))
    return job


@pytest.mark.parametrize(
    ("job", "code", "message", "is_blocking"),
    [
        pytest.param(
            back(Job().admit(10).see(10)),
            ProblemCode.TAKEN_BACK,
            f"the cluster was restored to an older state: version 93 was seen at {DATE}16:40+00:00,"
            " after version 102",
            True,
            id="an older past",
        ),
        pytest.param(
            without_order(),
            ProblemCode.BAD_RESOURCE_VERSION,
            "resourceVersion 'abc' has no order",
            True,
            id="no order",
        ),
        pytest.param(
            conflicting(),
            ProblemCode.CONFLICTING_STATES,
            "resourceVersion 101 was seen with two different states",
            True,
            id="two states of one version",
        ),
        pytest.param(
            Job().reserve(10).condition("Admitted", 2).see(10),
            ProblemCode.START_BEFORE_RESERVATION,
            f"admitted {DATE}00:02+00:00, before quota was reserved {DATE}00:10+00:00",
            True,
            id="admitted before its reservation",
        ),
        pytest.param(
            Job().reserve(10, main=7).admit(10).see(10).set(reclaimable=(("main", 1),)).see(40),
            ProblemCode.UNEVEN_PODS,
            "pod set main: 7 GPUs over 4 pods are not whole, so 1 pods that hold none any more "
            "cannot be taken off",
            False,
            id="pods that do not divide",
        ),
        pytest.param(
            Job().admit(103).see(100),
            ProblemCode.CLOCK_SKEW,
            "conditions are up to 3 s ahead of when they were seen",
            False,
            id="three seconds ahead",
        ),
        pytest.param(
            Job().admit(160).see(100).condition("PodsReady", 205).see(200),
            ProblemCode.CLOCK_SKEW,
            "conditions are up to 60 s ahead of when they were seen",
            False,
            id="a minute ahead",
        ),
        pytest.param(
            Job().admit(161).see(100),
            ProblemCode.CLOCK_SKEW,
            "conditions are up to 61 s ahead of when they were seen",
            True,
            id="more than a minute ahead",
        ),
        pytest.param(
            Job().reserve(10).admit(30).see(30).finish(20).see(31),
            ProblemCode.NEGATIVE_DURATION,
            f"admission 1 ends {DATE}00:20+00:00, before its clock started {DATE}00:30+00:00",
            True,
            id="over before its clock started",
        ),
        pytest.param(
            Job().admit(10).see(10, gap=True).delete(10, gap=True),
            ProblemCode.NOTHING_PROVEN,
            f"admission 1 began {DATE}00:10+00:00 and was over when the cluster was watched again; "
            "no second of it is proven, so none is counted",
            True,
            id="no second is proven",
        ),
    ],
)
def test_problem_says_what_was_refused(job, code, message, is_blocking):
    found = intervals(job.events).problems
    assert found == (Problem("east", "u1", code, message, is_blocking),)


def test_two_seconds_ahead_are_grain():
    assert intervals(Job().admit(102).see(100).events).problems == ()
