"""What must never be billed twice (spec money 1.3), each with its guard."""

from __future__ import annotations

from budgets.intervals import intervals
from budgets.intervals.model import IntervalKind, PodSet
from tests.ledger.placed import held_by
from tests.ledger.story import Job, at, shown

ORIGIN = "portal-1"


def history(*jobs: Job):
    return intervals([event for job in jobs for event in job.events], manager="hub")


def rows(*jobs: Job, cluster: str | None = None):
    return [
        (row.cluster, *shown(row)[1:])
        for row in history(*jobs).intervals
        if cluster is None or row.cluster == cluster
    ]


def race() -> tuple[Job, Job, Job]:
    """The manager reserves at 1, both workers admit, west is named at 5 and east withdrawn at 7."""
    hub = Job("hub", "m1").see(0).reserve(1).see(1)
    east = Job("east", "e1", created=2, origin=ORIGIN).admit(3).see(3)
    west = Job("west", "w1", created=2, origin=ORIGIN).admit(4).see(4)
    return hub, east, west


def test_race_is_undecided_until_the_manager_names_a_cluster():
    hub, east, west = race()
    assert {row[1] for row in rows(east, west, hub) if row[0] != "hub"} == {"undecided"}
    assert held_by(history(hub, east, west).intervals, workspaces={"acme-vision": "v"}).held == ()


def test_copy_of_a_workload_that_was_never_seen_is_a_race_once_it_is_gone():
    _, east, _ = race()
    assert rows(east) == [("east", "undecided", 8, 3, None, "open")]
    east.finish(5).see(5)
    assert rows(east) == [("east", "undecided", 8, 3, 5, "closed")]
    east.delete(7)
    assert rows(east) == [("east", "race", 8, 3, 5, "closed")]
    hub = Job("hub", "m1").see(0).reserve(1).see(1).admit(4).set(cluster_name="east").see(8)
    assert rows(hub, east, cluster="east") == [("east", "billable", 8, 3, 5, "closed")]


def test_copy_of_another_manager_is_a_job_of_its_namespace():
    _, east, west = race()
    found = intervals(east.events + west.events, manager="hub", origins={ORIGIN})
    assert {row.role for row in found.intervals} == {IntervalKind.UNDECIDED}
    found = intervals(east.events + west.events, manager="hub", origins={"multikueue"})
    assert [(row.cluster, row.role) for row in found.intervals] == [
        ("east", IntervalKind.BILLABLE),
        ("west", IntervalKind.BILLABLE),
    ]
    assert [(row.cluster, row.start, row.end) for row in found.pending] == [
        ("east", at(2), at(3)),
        ("west", at(2), at(4)),
    ]


def test_mark_that_changed_since_does_not_unmake_a_copy():
    hub, _, west = race()
    hub.admit(5).set(cluster_name="west").see(5)
    found = intervals(hub.events + west.events, manager="hub", origins={"new"})
    assert {row.cluster: row.role for row in found.intervals}["west"] is IntervalKind.BILLABLE
    assert [row.cluster for row in found.pending] == ["hub"]


def test_race_loser_is_not_billed():
    hub, east, west = race()
    hub.admit(5).set(cluster_name="west").see(5)
    east.delete(7)
    west.finish(100).see(100)
    assert rows(hub, east, west) == [
        ("east", "race", 8, 3, 7, "closed"),
        ("hub", "manager_wait", 8, 1, 5, "closed"),
        ("west", "billable", 8, 4, 100, "closed"),
    ]


def test_short_job_is_billed_although_it_was_named_after_its_end():
    hub, _, west = race()
    west.finish(5).see(5)
    hub.admit(6).set(cluster_name="west").see(6).finish(7).see(7)
    west.delete(9)
    assert rows(hub, west, cluster="west") == [("west", "billable", 8, 4, 5, "closed")]


def test_copy_that_was_gone_before_its_cluster_was_named_is_a_race():
    hub, _, west = race()
    west.evict(10).release(11).see(11).delete(12)
    again = Job("west", "w2", created=20, origin=ORIGIN).admit(21).see(21)
    hub.admit(22).set(cluster_name="west").see(22)
    assert [row[1] for row in rows(hub, west, again, cluster="west")] == ["race", "billable"]


def test_admission_before_the_one_that_was_named_is_a_race():
    hub, _, west = race()
    west.evict(10).release(11).see(11).admit(20).see(20)
    hub.admit(21).set(cluster_name="west").see(21)
    assert [row[1:4] for row in rows(hub, west, cluster="west")] == [
        ("race", 8, 4),
        ("billable", 8, 20),
    ]


def test_requeue_on_the_same_worker_stays_billable():
    hub, _, west = race()
    hub.admit(5).set(cluster_name="west").see(5)
    west.evict(50).release(52).see(52).admit(90).see(90)
    assert [row[1:5] for row in rows(hub, west, cluster="west")] == [
        ("billable", 8, 4, 52),
        ("billable", 8, 90, None),
    ]


def lost() -> tuple[Job, Job, Job, Job]:
    """West, which is lost at 100, keeps its copy; its next one, in the east, is named at 112."""
    hub, east, west = race()
    east.delete(6)
    hub.admit(5).set(cluster_name="west").see(5)
    hub.evict(100).release(100).set(cluster_name="").see(100)
    second = Job("east", "e2", created=110, origin=ORIGIN).admit(111).see(111)
    hub.reserve(105).see(105).admit(112).set(cluster_name="east").see(112)
    return hub, east, west, second


def test_lost_worker_is_billed_only_until_the_copy_that_was_named_after_it_is():
    """Which was admitted at 111 and named at 112: that second is billed once."""
    hub, east, west, second = lost()
    west.see(400)
    found = rows(hub, east, west, second)
    assert [row for row in found if row[0] == "west"] == [
        ("west", "billable", 8, 4, 111, "closed"),
        ("west", "race", 8, 111, None, "open"),
    ]
    assert ("east", "billable", 8, 111, None, "open") in found


def test_lost_worker_that_is_named_again_is_billed_again():
    """Its old copy ran on; under Kueue it takes the workload back when it returns."""
    hub, east, west, second = lost()
    hub.set(cluster_name="west").see(200)
    second.delete(201)
    west.see(400)
    found = rows(hub, east, west, second)
    assert [row for row in found if row[0] == "west"] == [
        ("west", "billable", 8, 4, 111, "closed"),
        ("west", "race", 8, 111, 200, "closed"),
        ("west", "billable", 8, 200, None, "open"),
    ]
    assert [row[1:5] for row in found if row[0] == "east" and row[3] > 100] == [
        ("billable", 8, 111, 200),
        ("race", 8, 200, 201),
    ]


def test_copy_that_was_admitted_while_another_was_named_is_billed_from_its_own_naming_on():
    hub, east, west = race()
    hub.admit(5).set(cluster_name="west").see(5)
    hub.set(cluster_name="east").see(60)
    east.see(70)
    assert [row[1:5] for row in rows(hub, east, west, cluster="east")] == [
        ("race", 8, 3, 60),
        ("billable", 8, 60, None),
    ]


def test_copy_named_and_evicted_in_the_second_of_its_admission_is_billed_to_its_end():
    """Condition times have whole seconds: the naming seems to end before it began to count."""
    hub = Job("hub", "m1").see(0).reserve(1).see(1)
    west = Job("west", "w1", created=4, origin=ORIGIN).admit(4).see(4.2)
    hub.admit(4).set(cluster_name="west").see(4.4)
    hub.evict(4).release(4).set(cluster_name="").see(4.9)
    west.delete(6)
    assert rows(hub, west, cluster="west") == [("west", "billable", 8, 4, 6, "closed")]


def test_copy_that_went_in_the_second_in_which_it_was_named_is_billed_to_its_end():
    hub, _, west = race()
    hub.admit(9).set(cluster_name="west").see(9.2)
    hub.evict(9).release(9).set(cluster_name="").see(9.5)
    west.see(9.1).delete(9)
    assert rows(hub, west, cluster="west") == [("west", "billable", 8, 4, 9, "closed")]


def test_copy_made_in_the_second_of_an_eviction_is_not_what_was_named_before():
    hub, _, west = race()
    hub.admit(5).set(cluster_name="west").see(5)
    hub.evict(50).release(50).set(cluster_name="").see(50.2)
    west.delete(50)
    loser = Job("west", "w2", created=50, origin=ORIGIN).admit(50).see(50.6)
    winner = Job("east", "e2", created=50, origin=ORIGIN).admit(50).see(50.7)
    hub.reserve(50).see(50.4).admit(51).set(cluster_name="east").see(51)
    loser.delete(52)
    winner.finish(90).see(90)
    found = rows(hub, west, loser, winner)
    assert ("west", "race", 8, 50, 52, "closed") in found
    assert ("east", "billable", 8, 50, 90, "closed") in found


def test_manager_waiting_time_is_never_billed():
    hub, east, west = race()
    hub.admit(5).set(cluster_name="west").see(5).finish(80).see(80)
    west.finish(79).see(79)
    found = history(hub, east, west).intervals
    placed = held_by(found, workspaces={"acme-vision": "vision"})
    assert [(row.cluster, row.uid) for row in placed.held] == [("west", "w1")]
    assert rows(hub, cluster="hub") == [("hub", "manager_wait", 8, 1, 5, "closed")]


def test_copy_is_joined_to_the_manager_by_the_uid_it_names():
    one = Job("hub", "m1").reserve(1).admit(25).set(cluster_name="west").see(25)
    two = Job("hub", "m2", created=20).reserve(21).admit(25).set(cluster_name="east").see(25)
    # By name alone it would be the younger one's.
    copy = Job("west", "w2", created=22, origin=ORIGIN, manager_uid="m1").admit(23).see(23)
    assert [row[1] for row in rows(one, two, copy, cluster="west")] == ["billable"]


def test_copy_of_a_recreated_job_is_joined_to_the_newer_manager_object():
    old = Job("hub", "m1").reserve(1).admit(5).set(cluster_name="west").see(5).finish(9).see(9)
    old.delete(10)
    new = Job("hub", "m2", created=20).reserve(21).admit(25).set(cluster_name="east").see(25)
    copy = Job("west", "w2", created=22, origin=ORIGIN).admit(23).see(23)
    assert [row[1] for row in rows(old, new, copy, cluster="west")] == ["race"]


def test_job_local_to_a_worker_is_billed():
    local = Job("west", "w1").admit(4).see(4)
    assert [row[1] for row in rows(local)] == ["billable"]


def test_elastic_slices_do_not_overlap():
    old = Job("west", "s1", name="slice-1").reserve(1, main=4).admit(1).see(1)
    new = Job("west", "s2", name="slice-2", created=40, replaces="acme-vision/slice-1")
    new.reserve(50, main=8).admit(50).see(50)
    old.finish(53, reason="WorkloadSliceReplaced").see(53)
    assert [row[2:5] for row in rows(old, new)] == [(4, 1, 50), (8, 50, None)]


def test_slice_that_shrinks_is_billed_at_its_new_count_from_then_on():
    job = Job("west", "s1", name="slice-1").reserve(1, main=8).admit(1).see(1)
    job.set(pod_sets=(PodSet("main", 3, 2),)).see(40)
    assert [row[2:5] for row in rows(job)] == [(8, 1, 40), (6, 40, None)]


def test_slice_that_shrank_gives_back_reclaimable_pods_of_its_new_count():
    job = Job("west", "s1", name="slice-1").reserve(1, main=8).admit(1).see(1)
    job.set(pod_sets=(PodSet("main", 3, 2),)).see(40)
    job.set(reclaimable=(("main", 1),)).see(50)
    assert [row[2:5] for row in rows(job)] == [(8, 1, 40), (6, 40, 50), (4, 50, None)]


def test_partial_admission_is_billed_as_admitted():
    job = Job("west", "s1").set(pod_sets=(PodSet("main", 8, 1),)).reserve(1, main=4).admit(1).see(1)
    assert [row[2:5] for row in rows(job)] == [(4, 1, None)]


def test_replaced_slice_is_billed_until_the_clock_of_the_next_one_starts():
    old = Job("west", "s1", name="slice-1").reserve(1, main=4).admit(1).see(1)
    new = Job("west", "s2", name="slice-2", created=40, replaces="acme-vision/slice-1")
    new.reserve(50, main=8).see(50)
    old.finish(51, reason="WorkloadSliceReplaced").see(51)
    assert [row[2:5] for row in rows(old, new) if row[1] == "billable"] == [(4, 1, None)]
    new.admit(60).see(60)
    assert [row[2:5] for row in rows(old, new) if row[1] == "billable"] == [
        (4, 1, 60),
        (8, 60, None),
    ]


def test_slices_that_follow_each_other_fast_leave_no_gap():
    old = Job("west", "s1", name="slice-1").reserve(1, main=2).admit(1).see(1)
    new = Job("west", "s2", name="slice-2", created=40, replaces="acme-vision/slice-1")
    new.reserve(50, main=4).see(50)
    old.finish(51, reason="WorkloadSliceReplaced").see(51)
    newest = Job("west", "s3", name="slice-3", created=52, replaces="acme-vision/slice-2")
    newest.reserve(55, main=8).see(55)
    new.finish(56, reason="WorkloadSliceReplaced").see(56)
    newest.admit(70).see(70)
    assert [row[2:5] for row in rows(old, new, newest) if row[1] == "billable"] == [
        (2, 1, 70),
        (8, 70, None),
    ]


def test_slice_whose_next_one_is_evicted_before_its_clock_started_ends_with_it():
    old = Job("west", "s1", name="slice-1").reserve(1, main=4).admit(1).see(1)
    new = Job("west", "s2", name="slice-2", created=40, replaces="acme-vision/slice-1")
    new.reserve(50, main=8).see(50)
    old.finish(51, reason="WorkloadSliceReplaced").see(51)
    new.evict(60).release(62).see(62)
    assert [row[2:5] for row in rows(old, new) if row[1] == "billable"] == [(4, 1, 62)]


def test_variants_of_one_job_are_billed_once():
    spot = Job("west", "v1", name="a", variant_of="parent").admit(1).see(1)
    home = Job("west", "v2", name="b", variant_of="parent").admit(50).see(50)
    spot.evict(50).release(60).see(60)
    assert [row[1:5] for row in rows(spot, home)] == [
        ("billable", 8, 1, 50),
        ("race", 8, 50, 60),
        ("billable", 8, 50, None),
    ]


def test_variants_of_other_jobs_or_elsewhere_take_over_nothing():
    spot = Job("west", "v1", name="a", variant_of="parent").admit(1).see(1)
    other = Job("west", "v2", name="b", variant_of="uncle").admit(50).see(50)
    away = Job("east", "v3", name="c", variant_of="parent").admit(60).see(60)
    assert rows(spot, other, away) == [
        ("east", "billable", 8, 60, None, "open"),
        ("west", "billable", 8, 1, None, "open"),
        ("west", "billable", 8, 50, None, "open"),
    ]


def test_slice_takes_over_from_none_that_got_the_name_later():
    old = Job("west", "s1", name="slice-1").reserve(1, main=4).admit(1).see(1)
    new = Job("west", "s2", name="slice-2", created=40, replaces="acme-vision/slice-1")
    new.reserve(50, main=8).admit(50).see(50)
    again = Job("west", "s3", name="slice-1", created=100).reserve(101, main=2).admit(101).see(101)
    assert [row[2:5] for row in rows(old, new, again)] == [
        (4, 1, 50),
        (8, 50, None),
        (2, 101, None),
    ]


def test_copy_that_went_before_a_cluster_was_named_says_so():
    hub, east, _ = race()
    east.delete(4)
    found = [row for row in history(hub, east).intervals if row.cluster == "east"]
    assert [(row.role, row.note) for row in found] == [
        (IntervalKind.RACE, "no cluster was named for it"),
    ]


# Pending


def waits(*jobs: Job):
    return [(row.uid, row.gpus, row.start, row.end, row.requeued) for row in history(*jobs).pending]


def test_pending_of_a_local_job_is_from_creation_and_from_requeue():
    job = Job("west", "w1").see(0).admit(30).see(30).evict(60).release(64).see(64).admit(90).see(90)
    assert waits(job) == [("w1", 8, at(0), at(30), False), ("w1", 8, at(64), at(90), True)]


def test_pending_of_a_dispatched_job_ends_with_the_admission_on_the_named_worker():
    hub, east, west = race()
    hub.admit(5).set(cluster_name="west").see(5)
    assert waits(hub, east, west) == [("m1", 8, at(0), at(4), False)]


def test_pending_ends_when_the_job_is_deleted_or_deactivated():
    deleted = Job("west", "w1").see(0).delete(30)
    stopped = Job("west", "w2").see(0).set(is_active=False).see(40)
    assert [row[3] for row in waits(deleted, stopped)] == [at(30), at(40)]


def test_pending_goes_on_while_nothing_is_admitted():
    assert waits(Job("west", "w1").see(0)) == [("w1", 8, at(0), None, False)]


def billed(*jobs: Job):
    return [row for row in rows(*jobs, cluster="east") if row[1] == "billable"]


def told_by_the_manager(start: float, end: float) -> Job:
    """What stands in for a copy of an unwatched time: the manager's state, under its UID."""
    told = Job("east", "m1", origin=ORIGIN, manager_uid="m1").reserve(1).admit(start)
    return told.see(start, gap=True).miss(end, last_seen=end)


def test_what_the_manager_told_of_counts_until_the_copy_itself_is_known():
    hub = Job("hub", "m1").see(0).reserve(1).see(1).admit(5).set(cluster_name="east").see(5)
    hub.finish(60).see(60)
    estimate = told_by_the_manager(5, 60)
    assert billed(hub, estimate) == [("east", "billable", 8, 5, 60, "estimated")]
    copy = Job("east", "e1", created=2, origin=ORIGIN, manager_uid="m1").admit(3).see(3)
    assert billed(hub, estimate, copy) == [("east", "billable", 8, 3, None, "open")]
    copy.finish(20).see(20)
    assert billed(hub, estimate, copy) == [("east", "billable", 8, 3, 20, "closed")]


def test_a_copy_of_an_earlier_reservation_takes_nothing_from_what_the_manager_told_of():
    hub = Job("hub", "m1").see(0).reserve(1).see(1).admit(5).set(cluster_name="east").see(5)
    hub.release(30).see(30).reserve(40).admit(44).see(44).finish(60).see(60)
    before = Job("east", "e1", created=2, origin=ORIGIN, manager_uid="m1").admit(3).see(3)
    before.delete(30)
    estimate = Job("east", "m1", origin=ORIGIN, manager_uid="m1").reserve(40).admit(44)
    estimate.see(44, gap=True).miss(60, last_seen=60)
    assert billed(hub, before, estimate) == [
        ("east", "billable", 8, 3, 30, "closed"),
        ("east", "billable", 8, 44, 60, "estimated"),
    ]


def test_a_copy_of_a_later_reservation_takes_nothing_from_what_the_manager_told_of():
    hub = Job("hub", "m1").see(0).reserve(1).see(1).admit(5).set(cluster_name="east").see(5)
    hub.release(20).set(cluster_name="").see(20).reserve(30).see(30)
    hub.admit(33).set(cluster_name="east").see(33)
    copy = Job("east", "e1", created=31, origin=ORIGIN, manager_uid="m1").admit(32).see(32)
    assert billed(hub, told_by_the_manager(5, 20), copy) == [
        ("east", "billable", 8, 32, None, "open"),
        ("east", "billable", 8, 5, 20, "estimated"),
    ]


def test_what_the_manager_tells_of_still_gives_way_to_the_copy():
    hub = Job("hub", "m1").see(0).reserve(1).see(1).admit(5).set(cluster_name="east").see(5)
    told = Job("east", "m1", origin=ORIGIN, manager_uid="m1").reserve(1).admit(5).see(5, gap=True)
    copy = Job("east", "e1", created=2, origin=ORIGIN, manager_uid="m1").admit(3).see(3)
    assert billed(hub, told, copy) == [("east", "billable", 8, 3, None, "open")]


def test_what_the_manager_told_of_a_later_admission_counts_though_an_earlier_one_is_known():
    hub = Job("hub", "m1").see(0).reserve(1).see(1).admit(5).set(cluster_name="east").see(5)
    hub.release(30).see(30).reserve(40).admit(44).see(44).finish(60).see(60)
    copy = Job("east", "e1", created=2, origin=ORIGIN, manager_uid="m1").admit(3).see(3).delete(30)
    told = Job("east", "m1", origin=ORIGIN, manager_uid="m1").reserve(1).admit(5).see(5, gap=True)
    told.release(30).see(30).reserve(40).admit(44).see(44, gap=True).miss(60, last_seen=60)
    assert billed(hub, copy, told) == [
        ("east", "billable", 8, 3, 30, "closed"),
        ("east", "billable", 8, 44, 60, "estimated"),
    ]
