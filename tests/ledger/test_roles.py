"""Whose an admission is, when its clock starts, how long it waits, and what a store writes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from budgets.intervals import (
    ClockSettings,
    ClockStart,
    Interval,
    IntervalKind,
    IntervalState,
    PendingSpan,
    changes,
    intervals,
)
from budgets.intervals.build import IntervalChanges, pending_of
from budgets.intervals.epochs import Epoch, HeldStep, WorkloadCopy, build_copy
from budgets.intervals.pieces import clock_start, first_start
from budgets.intervals.roles import Managers, Naming, RoleSegment, namings_of
from tests.ledger.story import Job, at
from tests.ledger.test_interval_rows import row

BILLABLE, RACE = IntervalKind.BILLABLE, IntervalKind.RACE
UNDECIDED = IntervalKind.UNDECIDED


def read(job: Job) -> WorkloadCopy:
    return build_copy(job.cluster, job.uid, job.events)


def hub() -> Job:
    return Job("hub", "m1").reserve(1).see(1)


def named(at_: float, seen: float, cluster: str = "west") -> Job:
    return hub().admit(at_).set(cluster_name=cluster).see(seen)


@pytest.mark.parametrize(
    ("job", "want"),
    [
        pytest.param(hub(), [], id="nobody"),
        pytest.param(named(5, 6), [("west", 5, None)], id="when it was admitted"),
        pytest.param(named(9, 8), [("west", 8, None)], id="no later than it was seen"),
        pytest.param(
            hub().set(cluster_name="west").see(7), [("west", 7, None)], id="not admitted yet"
        ),
        pytest.param(named(5, 6).see(7).see(8), [("west", 5, None)], id="still the same"),
        pytest.param(
            named(5, 6).evict(50).set(cluster_name="").see(52), [("west", 5, 50)], id="evicted"
        ),
        pytest.param(
            named(5, 6).evict(5).set(cluster_name="").see(52),
            [("west", 5, 5)],
            id="evicted in the same second",
        ),
        pytest.param(
            named(5, 6).evict(4).set(cluster_name="").see(52),
            [("west", 5, 52)],
            id="evicted before it was named",
        ),
        pytest.param(
            named(5, 6).evict(60).set(cluster_name="").see(52),
            [("west", 5, 52)],
            id="no later than it was seen to be over",
        ),
        pytest.param(
            named(5, 6).set(cluster_name="").see(52), [("west", 5, 52)], id="taken back unevicted"
        ),
        pytest.param(
            named(5, 6).set(cluster_name="east").see(20),
            [("west", 5, 20), ("east", 20, None)],
            id="another at once",
        ),
        pytest.param(
            named(5, 6).evict(50).set(cluster_name="").see(52).admit(40).set(cluster_name="east"),
            [("west", 5, 50)],
            id="what was not seen",
        ),
        pytest.param(
            named(5, 6)
            .evict(50)
            .release(50)
            .set(cluster_name="")
            .see(52)
            .admit(70)
            .set(cluster_name="east")
            .see(71),
            [("west", 5, 50), ("east", 70, None)],
            id="another later",
        ),
        pytest.param(
            named(5, 6).evict(50).set(cluster_name="").see(52).set(cluster_name="west").see(60),
            [("west", 5, 50), ("west", 50, None)],
            id="the same again, admitted of old",
        ),
    ],
)
def test_worker_is_named_over_time(job, want):
    assert namings_of(read(job)) == [
        Naming(cluster, at(start), None if end is None else at(end)) for cluster, start, end in want
    ]


def copy_of(created: float, uid: str = "w1", **more: Any) -> Job:
    return Job("west", uid, created=created, origin="p", **more)


@pytest.mark.parametrize(
    ("created", "more", "want"),
    [
        pytest.param(22, {}, "m2", id="the newest that is not younger"),
        pytest.param(20, {}, "m2", id="as old as itself"),
        pytest.param(19, {}, "m1", id="an older one"),
        pytest.param(5, {}, "m1", id="none is older: the first"),
        pytest.param(22, {"manager_uid": "m1"}, "m1", id="by the UID that it names"),
        pytest.param(22, {"manager_uid": "m9"}, "m2", id="by name where that is not known"),
        pytest.param(22, {"name": "other"}, None, id="none of that name"),
    ],
)
def test_copy_is_joined_to_the_managers_object(created, more, want):
    managers = Managers(
        [
            read(Job("hub", uid, created=start).reserve(start).see(start))
            for uid, start in (("m3", 40), ("m2", 20), ("m1", 10))
        ]
    )
    found = managers.manager_of(read(copy_of(created, **more).see(created)))
    assert (found and found.uid) == want


@pytest.mark.parametrize(
    ("origin", "origins", "name", "want"),
    [
        pytest.param("", None, "train", False, id="no mark"),
        pytest.param("p", None, "other", True, id="any mark"),
        pytest.param("p", {"p"}, "other", True, id="its mark"),
        pytest.param("q", {"p"}, "other", False, id="another's mark"),
        pytest.param("q", {"p"}, "train", True, id="another mark on a name of its own"),
    ],
)
def test_copy_is_one_by_its_mark_or_by_its_name(origin, origins, name, want):
    managers = Managers([read(hub())], origins)
    job = Job("west", "w1", name=name, origin=origin).see(3)
    assert managers.is_copy(read(job)) is want


def named_twice(first: float, second: float) -> Job:
    job = named(first, first).evict(second - 1).release(second - 1).set(cluster_name="")
    return job.see(second - 1).admit(second).set(cluster_name="east").see(second)


@pytest.mark.parametrize(
    ("manager", "copy", "want"),
    [
        pytest.param(
            named(5, 5),
            copy_of(2).admit(3).see(3),
            [(3, None, BILLABLE, "")],
            id="named while it stands",
        ),
        pytest.param(
            named(5, 5, "east"),
            copy_of(2).admit(3).see(3),
            [(3, None, RACE, "east was named")],
            id="another was named",
        ),
        pytest.param(
            hub(),
            copy_of(2).admit(3).see(3),
            [(3, None, UNDECIDED, "no cluster is named yet")],
            id="nobody was named yet",
        ),
        pytest.param(
            hub().finish(9).see(9),
            copy_of(2).admit(3).see(3),
            [(3, None, RACE, "no cluster was named for it")],
            id="nobody ever was",
        ),
        pytest.param(
            hub(),
            copy_of(2).admit(3).see(3).delete(4),
            [(3, None, RACE, "no cluster was named for it")],
            id="it is gone already",
        ),
        pytest.param(
            named(5, 5),
            copy_of(2).admit(3).see(3).delete(4),
            [(3, None, RACE, "it was named only later")],
            id="gone a second before",
        ),
        pytest.param(
            named(5, 5),
            copy_of(2).admit(3).see(3).delete(5),
            [(3, None, BILLABLE, "")],
            id="gone in that second",
        ),
        pytest.param(
            named_twice(5, 60),
            copy_of(2).admit(3).see(3),
            [(3, 60, BILLABLE, ""), (60, None, RACE, "east was named")],
            id="until another is named",
        ),
        pytest.param(
            named_twice(5, 60),
            copy_of(2).admit(3).see(3).finish(60).see(60),
            [(3, None, BILLABLE, "")],
            id="over as another is named",
        ),
        pytest.param(
            named_twice(5, 60),
            copy_of(2).admit(3).see(3).finish(61).see(61),
            [(3, 60, BILLABLE, ""), (60, None, RACE, "east was named")],
            id="over a second later",
        ),
    ],
)
def test_admission_has_these_roles_over_time(manager, copy, want):
    found = read(copy)
    (epoch,) = found.epochs
    assert Managers([read(manager)]).segments(found, epoch) == [
        RoleSegment(at(start), None if end is None else at(end), role, note)
        for start, end, role, note in want
    ]


def test_admission_before_another_one_is_named_by_what_came_between():
    copy = read(
        copy_of(2).admit(3).see(3).evict(10).release(11).see(11).admit(20).see(20),
    )
    first, second = copy.epochs
    for seen, early in ((19, BILLABLE), (20, RACE), (21, RACE)):
        managers = Managers([read(named(seen, seen))])
        assert [part.role for part in managers.segments(copy, first)] == [early]
        assert [part.role for part in managers.segments(copy, second)] == [BILLABLE]
    lone = Managers([read(hub())])
    assert [lone.segments(copy, row)[0].role for row in (first, second)] == [RACE, UNDECIDED]


def test_local_job_and_copy_of_an_unknown_manager():
    local, copy = read(Job("west", "w1").admit(3).see(3)), read(copy_of(2).admit(3).see(3))
    gone = read(copy_of(2).admit(3).see(3).delete(9))
    nobody = Managers([])
    want = [
        (local, BILLABLE, ""),
        (copy, UNDECIDED, "its manager's workload is not known"),
        (gone, RACE, "its manager's workload was never seen"),
    ]
    for one, role, note in want:
        assert nobody.segments(one, one.epochs[0]) == [RoleSegment(at(3), None, role, note)]


# Clocks


@pytest.mark.parametrize(
    ("start", "admitted", "ready", "want"),
    [
        pytest.param(ClockStart.QUOTA_RESERVED, 20, 30, (10, 10), id="reserved"),
        pytest.param(ClockStart.ADMITTED, 20, 30, (20, 20), id="admitted"),
        pytest.param(ClockStart.ADMITTED, None, 30, (None, None), id="not admitted"),
        pytest.param(ClockStart.PODS_READY, 20, 30, (30, 20), id="ready"),
        pytest.param(ClockStart.PODS_READY, 20, None, (None, 20), id="not ready"),
        pytest.param(ClockStart.PODS_READY, None, 30, (30, 10), id="ready and never admitted"),
    ],
)
def test_clock_starts_and_orders_by(start, admitted, ready, want):
    def time(second: float | None):
        return None if second is None else at(second)

    epoch = Epoch(1, at(10), at(10), at(10), admitted_at=time(admitted), ready_at=time(ready))
    clock = ClockSettings({"h100": [(at(10), start)]}, default=ClockStart.QUOTA_RESERVED)
    assert clock_start(epoch, "h100", clock=clock) == tuple(map(time, want))
    assert clock_start(epoch, "l4", clock=clock) == (at(10), at(10))
    epoch.steps = [HeldStep(None, {("main", "h100"): 8})]
    assert first_start(epoch, clock=clock) == time(want[0])
    epoch.steps.append(HeldStep(at(50), {("main", "l4"): 8}))
    assert first_start(epoch, clock=clock) == at(10)
    assert first_start(Epoch(1, at(10), at(10), at(10)), clock=clock) is None


def test_each_flavor_has_a_clock_of_its_own():
    job = Job("west", "w1").reserve(10, head=4, tail=8)
    mixed = tuple(
        replace(part, flavor="l4") if part.pod_set == "tail" else part
        for part in job.facts.assignments
    )
    job.set(assignments=mixed).see(10).admit(20).see(20).condition("PodsReady", 30).see(30)
    clock = ClockSettings({"h100": [(at(0), ClockStart.PODS_READY)]})
    reserved = IntervalKind.RESERVED
    assert list(intervals(job.finish(40).see(40).events, clock=clock).intervals) == [
        row("west w1", reserved, 10, 30, pod_set="head", gpus=4, admitted_at=at(20)),
        row("west w1", BILLABLE, 30, 40, pod_set="head", gpus=4, admitted_at=at(20), seq=2),
        row("west w1", reserved, 10, 20, pod_set="tail", flavor="l4", admitted_at=at(20)),
        row("west w1", BILLABLE, 20, 40, pod_set="tail", flavor="l4", seq=2),
    ]


def test_last_piece_alone_says_how_the_admission_ended():
    job = Job("west", "w1").admit(10).see(10).set(reclaimable=(("main", 2),)).see(40)
    job.condition("Evicted", 50, reason="Preempted").set(evictions=1).see(50).delete(90, gap=True)
    last = {"ended_by": "", "state": IntervalState.ESTIMATED, "seq": 2, "gpus": 4}
    assert list(intervals(job.events).intervals) == [
        row("west w1", BILLABLE, 10, 40),
        row("west w1", BILLABLE, 40, 50, "deletion was not watched", admitted_at=at(10), **last),
    ]


# Waiting


@pytest.mark.parametrize(
    ("admitted", "over", "want"),
    [
        pytest.param([], None, [(0, None, False)], id="never admitted"),
        pytest.param([(10, None)], None, [(0, 10, False)], id="still admitted"),
        pytest.param(
            [(60, 90), (10, 20)],
            None,
            [(0, 10, False), (20, 60, True), (90, None, True)],
            id="three times, in any order",
        ),
        pytest.param([(0, 10)], None, [(10, None, True)], id="admitted at once"),
        pytest.param([(10, 20), (20, 30)], None, [(0, 10, False), (30, None, True)], id="on"),
        pytest.param([(10, 50), (20, 30)], None, [(0, 10, False), (50, None, True)], id="within"),
        pytest.param([(10, 90)], 95, [(0, 10, False), (90, 95, True)], id="over a while later"),
        pytest.param([(10, 90)], 90, [(0, 10, False)], id="over with its admission"),
        pytest.param([], 0, [], id="over as it was made"),
    ],
)
def test_object_waits_from_creation_or_requeue_to_its_admission(admitted, over, want):
    job = Job("west", "w1", queue="default").see(0)
    copy = read(job)
    copy.over_at = None if over is None else at(over)
    given = [(at(start), None if end is None else at(end)) for start, end in admitted]
    shared = {"cluster": "west", "uid": "w1", "gpus": 8, "namespace": "acme-vision"}
    assert list(pending_of(copy, admitted=given)) == [
        PendingSpan(
            start=at(start),
            end=None if end is None else at(end),
            requeued=requeued,
            workload="train",
            queue="default",
            **shared,
        )
        for start, end, requeued in want
    ]


def test_object_that_asks_for_no_device_waits_for_none():
    assert list(pending_of(read(Job().set(pod_sets=()).see(0)), admitted=[])) == []


def test_object_waits_until_it_was_stopped_for_good():
    job = Job("west", "w1").see(0).set(is_active=False).see(40).see(50)
    assert [span.end for span in pending_of(read(job), admitted=[])] == [at(40)]
    job.set(is_active=True).see(60)
    assert [span.end for span in pending_of(read(job), admitted=[])] == [None]
    job.set(is_active=False).see(70)
    assert [span.end for span in pending_of(read(job), admitted=[])] == [at(70)]


# Stores


def test_store_writes_what_is_new_what_changed_and_what_is_true_no_more():
    def piece(seq: int, end: float | None = None, **more: Any) -> Interval:
        return row("west w1", BILLABLE, 1, end, seq=seq, **more)

    gone = replace(piece(3), state=IntervalState.SUPERSEDED)
    stored = [piece(6), gone, piece(1), piece(4), piece(2)]
    rebuilt = [piece(9), piece(8), piece(4, 70), piece(2, 60), piece(1)]
    superseded = replace(piece(6), state=IntervalState.SUPERSEDED)
    assert changes(stored, rebuilt) == IntervalChanges(
        new=(piece(8), piece(9)),
        changed=(piece(2, 60), piece(4, 70)),
        superseded=(superseded,),
    )
    both = changes([piece(6), piece(5)], [])
    assert [found.seq for found in both.superseded] == [5, 6]
    assert changes([gone], [piece(3)]).changed == (piece(3),)


# Slices, variants and what the manager told of


HELD_ON = "held on until its next slice's clock started"
REPLACED = "WorkloadSliceReplaced"


def slices(*, reserved: float, admitted: float, reason: str = REPLACED, made: float = 40):
    """Finished at 51 for its next slice; that one was made, had quota and was admitted."""
    old = Job("west", "s1", name="one").reserve(1, main=4).admit(1).see(1)
    old.finish(51, reason=reason).see(51)
    new = Job("west", "s2", name="two", created=made, replaces="acme-vision/one")
    new.reserve(reserved).see(reserved).admit(admitted).see(admitted)
    return list(intervals([*new.events, *old.events]).intervals)


def slice_row(start: float, end: float | None, note: str = "", **more: Any) -> Interval:
    return row("west s1", BILLABLE, start, end, note, gpus=4, workload="one", **more)


def test_replaced_slice_is_held_until_the_clock_of_the_next_one_starts():
    second = {"workload": "two", "admitted_at": at(60)}
    assert slices(reserved=50, admitted=60) == [
        slice_row(1, 60, HELD_ON),
        row("west s2", IntervalKind.RESERVED, 50, 60, **second),
        row("west s2", BILLABLE, 60, seq=2, **second),
    ]


@pytest.mark.parametrize(
    ("given", "end", "note"),
    [
        pytest.param({"reserved": 51, "admitted": 60}, 60, HELD_ON, id="quota as it ended"),
        pytest.param({"reserved": 52, "admitted": 60}, 51, "", id="quota only afterwards"),
        pytest.param({"reserved": 50, "admitted": 51}, 51, "", id="admitted as it ended"),
        pytest.param({"reserved": 50, "admitted": 52}, 52, HELD_ON, id="a second later"),
        pytest.param({"reserved": 50, "admitted": 60, "reason": "Done"}, 51, "", id="just done"),
        pytest.param({"reserved": 50, "admitted": 60, "made": 0}, 60, HELD_ON, id="made with it"),
        pytest.param({"reserved": 50, "admitted": 60, "made": -1}, 51, "", id="made before it"),
    ],
)
def test_slice_ends_with_its_own_end_or_with_the_next_ones_start(given, end, note):
    assert slices(**given)[0] == slice_row(1, end, note)


def variant(uid: str, start: float) -> Job:
    return Job("west", uid, name=uid, variant_of="parent").admit(start).see(start)


TAKEN = "another variant of the job was admitted"


def test_each_variant_is_billed_until_the_next_one_is_admitted():
    jobs = [variant("v3", 70), variant("v1", 50), variant("v2", 1)]
    assert list(intervals([event for job in jobs for event in job.events]).intervals) == [
        row("west v1", BILLABLE, 50, 70, workload="v1"),
        row("west v1", RACE, 70, None, TAKEN, seq=2, workload="v1", admitted_at=at(50)),
        row("west v2", BILLABLE, 1, 50, workload="v2"),
        row("west v2", RACE, 50, None, TAKEN, seq=2, workload="v2", admitted_at=at(1)),
        row("west v3", BILLABLE, 70, workload="v3"),
    ]


def test_of_variants_of_one_second_the_last_uid_is_billed():
    jobs = [variant("v2", 1), variant("v1", 1)]
    assert list(intervals([event for job in jobs for event in job.events]).intervals) == [
        row("west v1", RACE, 1, None, TAKEN, workload="v1"),
        row("west v2", BILLABLE, 1, workload="v2"),
    ]


def test_quota_that_is_only_withheld_stays_so_when_another_variant_is_admitted():
    first = Job("west", "v1", name="v1", variant_of="parent").reserve(1, head=4, tail=8)
    mixed = tuple(
        replace(part, flavor="l4") if part.pod_set == "tail" else part
        for part in first.facts.assignments
    )
    first.set(assignments=mixed).admit(1).see(1)
    clock = ClockSettings({"l4": [(at(0), ClockStart.PODS_READY)]})
    found = intervals([*first.events, *variant("v2", 50).events], clock=clock).intervals
    head = {"workload": "v1", "pod_set": "head", "gpus": 4, "admitted_at": at(1)}
    tail = {"workload": "v1", "pod_set": "tail", "flavor": "l4", "admitted_at": at(1)}
    reserved = IntervalKind.RESERVED
    assert list(found) == [
        row("west v1", BILLABLE, 1, 50, **head),
        row("west v1", RACE, 50, None, TAKEN, seq=2, **head),
        row("west v1", reserved, 1, 50, **tail),
        row("west v1", reserved, 50, None, TAKEN, seq=2, **tail),
        row("west v2", BILLABLE, 50, workload="v2"),
    ]


@pytest.mark.parametrize(
    ("start", "end", "is_known"),
    [
        pytest.param(3, 40, False, id="over as the other began"),
        pytest.param(3, 41, True, id="over a second later"),
        pytest.param(59, None, True, id="begun a second before its end"),
        pytest.param(60, None, False, id="begun as it ended"),
    ],
)
def test_what_the_manager_told_of_gives_way_where_the_copy_tells_of_it(start, end, is_known):
    """The manager's word is of 40 to 60; the copy was there from its start to its end."""
    manager = Job("hub", "m1").reserve(1).admit(2).set(cluster_name="west").see(2)
    told = Job("west", "m1", origin="p", manager_uid="m1").reserve(40).admit(44)
    told.see(44, gap=True).miss(60, last_seen=60)
    copy = Job("west", "w1", created=2, origin="p", manager_uid="m1").admit(start).see(start)
    if end is not None:
        copy.release(end).see(end)
    events = [event for job in (manager, told, copy) for event in job.events]
    found = intervals(events, manager="hub").intervals
    assert any(one.uid == "m1" and one.cluster == "west" for one in found) is not is_known


def test_dispatched_job_waits_while_no_named_worker_has_it():
    job = hub().admit(5).set(cluster_name="west").see(5)
    west = copy_of(2).admit(4).see(4).evict(50).release(52).see(52).admit(90).see(90)
    east = Job("east", "e1", created=2, origin="p").admit(3).see(3).delete(7)
    local = Job("west", "l1", name="local", created=10).reserve(11).see(11).admit(12).see(12)
    events = [event for one in (local, east, west, job) for event in one.events]
    shared = {"gpus": 8, "namespace": "acme-vision", "queue": ""}
    dispatched = {"cluster": "hub", "uid": "m1", "workload": "train", **shared}
    assert intervals(events, manager="hub").pending == (
        PendingSpan(start=at(0), end=at(4), requeued=False, **dispatched),
        PendingSpan(start=at(52), end=at(90), requeued=True, **dispatched),
        PendingSpan(
            cluster="west",
            uid="l1",
            start=at(10),
            end=at(12),
            workload="local",
            requeued=False,
            **shared,
        ),
    )
