"""The clock, its stops and its quantities; outages, late and broken data (spec money 1.2, 1.5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from budgets.intervals import ClockSettings, ClockStart, ProblemCode, changes, intervals
from tests.ledger.story import Job, at, shown


def rows(*jobs: Job, clock: ClockSettings | None = None, manager: str | None = None):
    events = [event for job in jobs for event in job.events]
    history = intervals(events, manager=manager, clock=clock or ClockSettings())
    return [shown(row) for row in history.intervals]


def problems(*jobs: Job) -> list[ProblemCode]:
    events = [event for job in jobs for event in job.events]
    return [problem.code for problem in intervals(events).problems]


@pytest.mark.parametrize(
    ("start", "want"),
    [
        pytest.param("QuotaReserved", [("billable", 10, 100)], id="from the reservation on"),
        pytest.param(
            "Admitted", [("reserved", 10, 20), ("billable", 20, 100)], id="from admission on"
        ),
        pytest.param(
            "PodsReady", [("reserved", 10, 35), ("billable", 35, 100)], id="from ready pods on"
        ),
    ],
)
def test_clock_starts_where_the_flavor_says(start, want):
    job = Job().see(0).reserve(10).see(10).admit(20).see(20)
    job.condition("PodsReady", 35).see(36).finish(100).see(100)
    clock = ClockSettings({"h100": [(at(-50), ClockStart(start))]})
    assert [(row[1], row[3], row[4]) for row in rows(job, clock=clock)] == want


def test_clock_setting_is_the_one_at_the_reservation():
    job = Job().reserve(10).admit(20).see(20).finish(100).see(100)
    dated = [(at(-50), ClockStart.ADMITTED), (at(15), ClockStart.QUOTA_RESERVED)]
    assert [row[1] for row in rows(job, clock=ClockSettings({"h100": dated}))] == [
        "reserved",
        "billable",
    ]


def test_pods_ready_of_the_admission_before_does_not_start_the_clock():
    job = Job().admit(10).condition("PodsReady", 12).see(12).evict(50).release(55).see(55)
    job.admit(80).see(80).condition("PodsReady", 95).see(95).finish(120).see(120)
    clock = ClockSettings({"h100": [(at(-50), ClockStart.PODS_READY)]})
    billed = [row[3:5] for row in rows(job, clock=clock) if row[1] == "billable"]
    assert billed == [(12, 55), (95, 120)]


def test_clock_stops_when_quota_is_released_not_when_eviction_is_decided():
    job = Job().admit(10).see(10).evict(50).see(50).release(63).see(64)
    assert rows(job) == [("u1", "billable", 8, 10, 63, "closed")]


def test_finished_stops_the_clock_although_quota_stays_reserved():
    job = Job().admit(10).see(10).finish(40).see(41)
    assert rows(job) == [("u1", "billable", 8, 10, 40, "closed")]


def test_nothing_is_held_beyond_the_end_though_a_change_was_stamped_later():
    job = Job().admit(10).see(10).set(reclaimable=(("main", 2),)).see(42).finish(40).see(43)
    assert rows(job) == [("u1", "billable", 8, 10, 40, "closed")]


def test_running_interval_is_open():
    assert rows(Job().admit(10).see(10)) == [("u1", "billable", 8, 10, None, "open")]


def test_readmission_is_an_epoch_of_its_own_behind_in_the_waterfall():
    job = Job().admit(10).see(10).evict(30).release(31).see(31).admit(60).see(60)
    history = intervals(job.events)
    assert [(row.epoch, row.admitted_at) for row in history.intervals] == [(1, at(10)), (2, at(60))]


def test_reclaimable_pods_and_partial_admission_open_the_next_interval():
    job = Job().reserve(10, main=6).admit(10).see(10)
    job.set(reclaimable=(("main", 1),)).see(40).set(reclaimable=(("main", 3),)).see(70)
    # 6 GPUs over 4 pods do not divide; the admitted count decides, not the one asked for.
    job.events = [
        replace(
            event,
            facts=replace(
                event.facts,
                assignments=tuple(replace(row, count=3) for row in event.facts.assignments),
            ),
        )
        for event in job.events
    ]
    assert [row[2:5] for row in rows(job)] == [(6, 10, 40), (4, 40, 70)]


def test_uneven_pods_are_a_problem_and_cost_the_customer_less():
    job = Job().reserve(10, main=7).admit(10).see(10).set(reclaimable=(("main", 1),)).see(40)
    assert [row[2] for row in rows(job)] == [7, 3]
    assert problems(job) == [ProblemCode.UNEVEN_PODS]


def test_every_pod_set_and_flavor_has_its_own_interval():
    job = Job().reserve(10, head=4, workers=8).admit(10).see(10).finish(20).see(20)
    history = intervals(job.events)
    assert [(row.pod_set, row.gpus, row.seq) for row in history.intervals] == [
        ("head", 4, 1),
        ("workers", 8, 1),
    ]


def test_same_name_again_is_keyed_by_uid():
    first = Job(uid="u1").admit(10).see(10).finish(20).see(20).delete(25)
    second = Job(uid="u2", created=30).admit(31).see(31).finish(40).see(40)
    assert [row[0] for row in rows(first, second)] == ["u1", "u2"]


# Outages


def test_missing_after_a_gap_closes_at_the_early_bound_and_is_estimated():
    job = Job().admit(10).see(10).miss(500, last_seen=60)
    assert rows(job) == [("u1", "billable", 8, 10, 60, "estimated")]


def test_missing_closes_at_the_job_completion_when_it_can_still_be_read():
    job = Job().admit(10).see(10).miss(500, last_seen=60, completed=200)
    assert rows(job) == [("u1", "billable", 8, 10, 200, "estimated")]


def test_missing_after_it_was_seen_to_finish_changes_nothing():
    job = Job().admit(10).see(10).finish(40).see(40).miss(500, last_seen=400)
    assert rows(job) == [("u1", "billable", 8, 10, 40, "closed")]


def test_missing_that_was_seen_again_is_taken_back():
    job = Job().admit(10).see(10).miss(500, last_seen=60).see(700)
    assert rows(job) == [("u1", "billable", 8, 10, None, "open")]
    job.finish(800).see(800)
    assert rows(job) == [("u1", "billable", 8, 10, 800, "closed")]


def test_finish_that_was_seen_only_after_the_gap_has_its_exact_time():
    job = Job().admit(10).see(10).finish(300).see(900, gap=True)
    assert rows(job) == [("u1", "billable", 8, 10, 300, "closed")]


def test_release_in_a_gap_before_the_next_admission_is_the_early_bound():
    job = Job().admit(10).see(10).see(50)
    job.release(100).admit(200).see(900, gap=True)
    assert rows(job) == [
        ("u1", "billable", 8, 10, 50, "estimated"),
        ("u1", "billable", 8, 200, None, "open"),
    ]


def test_release_in_a_gap_is_not_before_the_eviction_that_is_still_seen():
    job = Job().admit(10).see(10).evict(90).release(100).admit(200).see(900, gap=True)
    assert rows(job)[0] == ("u1", "billable", 8, 10, 90, "estimated")


def test_two_evictions_in_a_gap_do_not_bill_the_wait_between():
    job = Job().admit(10).see(10).see(50)
    job.evict(90).release(95).admit(400).evict(500).release(510).see(900, gap=True)
    assert rows(job) == [("u1", "billable", 8, 10, 50, "estimated")]


def test_deletion_that_was_only_replayed_does_not_bill_the_outage():
    job = Job().admit(10).see(10).see(50).delete(5000, gap=True)
    assert rows(job) == [("u1", "billable", 8, 10, 50, "estimated")]


def test_deletion_on_a_live_watch_is_when_it_was_seen():
    assert rows(Job().admit(10).see(10).delete(80)) == [("u1", "billable", 8, 10, 80, "closed")]


def test_fewer_gpus_after_a_gap_count_from_before_it():
    job = Job().admit(10).see(10).see(50).set(reclaimable=(("main", 2),)).see(900, gap=True)
    assert rows(job) == [
        ("u1", "billable", 8, 10, 50, "estimated"),
        ("u1", "billable", 4, 50, None, "estimated"),
    ]


def test_more_gpus_after_a_gap_count_from_when_they_were_seen():
    job = Job().reserve(10, main=4).admit(10).see(10).see(50)
    job.reserve(10, main=8).see(900, gap=True)
    assert [row[2:5] for row in rows(job)] == [(4, 10, 900), (8, 900, None)]


def test_an_admission_whose_end_was_not_watched_and_of_which_no_second_is_proven_is_told():
    job = Job().admit(10).see(10, gap=True).delete(10, gap=True)
    assert rows(job) == []
    assert problems(job) == [ProblemCode.NOTHING_PROVEN]
    watched = Job().admit(10).see(10).delete(10)
    assert (rows(watched), problems(watched)) == ([], [])


# A cluster that comes back with an older past


def back_to(job: Job, facts: object) -> Job:
    """Its etcd holds what it held ten writes ago."""
    job.version, job.facts = job.version - 10, facts
    return job


def test_a_run_that_was_undone_is_counted_and_so_is_the_next_and_not_what_lay_between():
    """Admitted at 10, finished at 100; at 1,000 the cluster is as it was at 50 and runs it on."""
    job = Job().admit(10).see(10)
    running = job.facts
    job.finish(100).see(100)
    back_to(job, running).see(1000, gap=True).finish(1200).see(1200)
    assert rows(job) == [
        ("u1", "billable", 8, 10, 100, "closed"),
        ("u1", "billable", 8, 1000, 1200, "closed"),
    ]
    assert problems(job) == [ProblemCode.TAKEN_BACK]


def test_an_admission_that_an_older_past_knows_as_well_goes_on():
    job = Job().admit(10).see(10).set(priority=1).see(60)
    back_to(job, job.facts).see(1000, gap=True).finish(1200).see(1200)
    assert rows(job) == [("u1", "billable", 8, 10, 1200, "closed")]
    assert problems(job) == [ProblemCode.TAKEN_BACK]


def test_an_admission_that_an_older_past_does_not_know_ends_where_it_was_last_seen():
    job = Job().see(1)
    waiting = job.facts
    job.admit(10).see(10).set(priority=1).see(70)
    back_to(job, waiting).see(1000, gap=True).admit(1100).see(1100).finish(1200).see(1200)
    assert rows(job) == [
        ("u1", "billable", 8, 10, 70, "estimated"),
        ("u1", "billable", 8, 1100, 1200, "closed"),
    ]
    assert problems(job) == [ProblemCode.TAKEN_BACK]


def test_an_admission_that_an_older_past_has_another_for_ends_where_it_was_last_seen():
    job = Job().admit(10).see(10)
    running = job.facts
    job.evict(40).release(40).see(40).admit(60).see(60).set(priority=1).see(90)
    back_to(job, running).see(1000, gap=True).finish(1200).see(1200)
    assert rows(job) == [
        ("u1", "billable", 8, 10, 40, "closed"),
        ("u1", "billable", 8, 60, 90, "estimated"),
        ("u1", "billable", 8, 1000, 1200, "closed"),
    ]
    assert problems(job) == [ProblemCode.TAKEN_BACK]


def test_what_was_deleted_and_is_there_again_counts_from_when_it_was_seen():
    job = Job().admit(10).see(10)
    running = job.facts
    job.delete(100)
    back_to(job, running).see(1000, gap=True).finish(1200).see(1200)
    assert rows(job) == [
        ("u1", "billable", 8, 10, 100, "closed"),
        ("u1", "billable", 8, 1000, 1200, "closed"),
    ]


def test_two_watchers_a_moment_apart_take_nothing_back():
    job = Job().admit(10).see(40).finish(60).see(60)
    job.events.reverse()
    job.events[1] = replace(job.events[1], observed_at=at(61))
    assert rows(job) == [("u1", "billable", 8, 10, 60, "closed")]
    assert problems(job) == []


# Broken data


def test_negative_duration_is_refused_and_named():
    job = Job().admit(10).see(10).finish(4).see(11)
    assert rows(job) == []
    assert problems(job) == [ProblemCode.NEGATIVE_DURATION]


def test_end_between_reservation_and_clock_start_is_refused():
    job = Job().reserve(10).admit(30).see(30).finish(20).see(31)
    assert rows(job) == []
    assert problems(job) == [ProblemCode.NEGATIVE_DURATION]


def test_reservation_that_ends_before_it_starts_is_refused_without_a_clock_too():
    job = Job().reserve(10).see(10).finish(4).see(11)
    assert rows(job) == []
    assert problems(job) == [ProblemCode.NEGATIVE_DURATION]


def test_states_that_were_stamped_out_of_order_keep_the_order_of_their_versions():
    job = Job().admit(10).see(10).set(reclaimable=(("main", 1),)).see(42)
    job.set(reclaimable=(("main", 2),)).see(41)
    assert [row[2:5] for row in rows(job)] == [(8, 10, 42), (4, 42, None)]


@pytest.mark.parametrize(
    ("before", "after", "fewer"),
    [
        pytest.param({"main": 8, "tail": 0}, {"main": 8}, {"main": 4}, id="that is gone"),
        pytest.param({"main": 8}, {"main": 8, "tail": 0}, {"main": 4, "tail": 0}, id="that came"),
    ],
)
def test_pod_set_without_devices_puts_no_change_of_others_off(before, after, fewer):
    job = Job().reserve(10, **before).admit(10).see(10)
    job.reserve(10, **after).see(42).reserve(10, **fewer).see(41)
    assert [row[2:5] for row in rows(job)] == [(8, 10, 41), (4, 41, None)]


def test_admission_before_its_reservation_starts_no_clock():
    job = Job().reserve(10).condition("Admitted", 2).see(10).finish(30).see(30)
    assert [row[1] for row in rows(job)] == ["reserved"]
    assert problems(job) == [ProblemCode.START_BEFORE_RESERVATION]


@pytest.mark.parametrize(
    ("ahead", "want"),
    [
        pytest.param(2, [], id="two seconds are grain"),
        pytest.param(30, [False], id="thirty seconds warn"),
        pytest.param(61, [True], id="more than a minute blocks the close"),
    ],
)
def test_skew_is_named(ahead, want):
    job = Job().admit(100 + ahead).see(100)
    assert [problem.is_blocking for problem in intervals(job.events).problems] == want


def test_state_without_an_order_is_refused():
    job = Job().admit(10).see(10)
    job.events.append(replace(job.events[0], resource_version="abc"))
    assert problems(job) == [ProblemCode.BAD_RESOURCE_VERSION]


def test_conflicting_states_of_one_version_are_named():
    job = Job().admit(10).see(10)
    other = replace(job.events[0], facts=replace(job.facts, priority=9))
    job.events.append(other)
    assert problems(job) == [ProblemCode.CONFLICTING_STATES]


# Store


def test_changes_of_the_same_intervals_are_empty():
    found = intervals(Job().admit(10).see(10).events).intervals
    same = changes(found, found)
    assert (same.new, same.changed, same.superseded) == ((), (), ())


def test_changes_close_open_rows_and_supersede_what_is_not_true_any_more():
    job = Job().admit(10).see(10)
    job.set(reclaimable=(("main", 2),)).see(40)
    stored = intervals(job.events).intervals
    late = Job().admit(10).see(10).finish(30).see(30)
    rebuilt = intervals(late.events).intervals
    found = changes(stored, rebuilt)
    assert [row.end for row in found.changed] == [at(30)]
    assert [(row.seq, row.state.value) for row in found.superseded] == [(2, "superseded")]
    assert found.new == ()
    again = changes([*rebuilt, *found.superseded], rebuilt)
    assert again == changes(rebuilt, rebuilt)


def test_an_interval_says_which_eviction_ended_it():
    job = Job().admit(10).see(10).condition("Evicted", 50, reason="Preempted").see(50)
    job.release(63).see(64).admit(90).see(90).finish(99).see(99)
    history = intervals(job.events, manager=None, clock=ClockSettings())
    assert [row.ended_by for row in history.intervals] == ["Preempted", ""]


def test_only_the_last_interval_of_an_admission_says_what_ended_it():
    job = Job().admit(10).see(10).set(reclaimable=(("main", 2),)).see(30)
    job.condition("Evicted", 50, reason="Preempted").release(63).see(64)
    found = [(row.gpus, row.end, row.ended_by) for row in intervals(job.events).intervals]
    assert found == [(8, at(30), ""), (4, at(63), "Preempted")]
