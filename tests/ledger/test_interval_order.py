"""Intervals are the same bytes, however the events arrived."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from budgets.intervals import EventType, IntervalKind, intervals
from tests.ledger.placed import held_by
from tests.ledger.story import Job, at

STEPS = ("reserve", "admit", "ready", "reclaim", "evict", "release", "finish", "name", "gap")


@st.composite
def lives(draw, cluster: str, *, uid: str, origin: str = ""):
    """One object with a random, but never backwards running, life."""
    job = Job(cluster, uid, origin=origin)
    now = 0
    for step in draw(st.lists(st.sampled_from(STEPS), max_size=10)):
        now += draw(st.integers(0, 40))
        if step == "reserve":
            job.release(now).reserve(now)
        elif step == "admit":
            job.admit(now)
        elif step == "ready":
            job.condition("PodsReady", now)
        elif step == "reclaim" and job.facts.assignments:
            job.set(reclaimable=(("main", draw(st.integers(1, 4))),))
        elif step == "evict":
            job.evict(now)
        elif step == "release":
            job.release(now)
        elif step == "finish":
            job.finish(now)
        elif step == "name" and cluster == "hub":
            job.set(cluster_name=draw(st.sampled_from(["", "east", "west"])))
        job.see(now + draw(st.integers(0, 3)), gap=step == "gap")
    if draw(st.booleans()) and job.events:
        job.miss(now + 100, last_seen=now)
    return job.events


@st.composite
def handed_on(draw):
    """A workload that its manager hands from worker to worker; what it held there lives on."""
    hub, now = Job("hub", "m1").see(0).reserve(0).see(0), 0
    for cluster in draw(st.lists(st.sampled_from(["", "east", "west"]), min_size=2, max_size=5)):
        now += draw(st.integers(1, 30))
        if draw(st.booleans()):
            hub.evict(now)
        hub.set(cluster_name=cluster).see(now + draw(st.integers(0, 3)))
    jobs = [hub]
    for cluster in ("east", "west"):
        job, now = Job(cluster, f"{cluster}-1", origin="p"), 0
        for _ in range(draw(st.integers(1, 2))):
            now += draw(st.integers(1, 60))
            job.release(now).admit(now).see(now)
        jobs.append(job)
    return [event for job in jobs for event in job.events]


EVENTS = st.tuples(
    lives("hub", uid="m1"), lives("east", uid="e1", origin="p"), lives("west", uid="w1", origin="p")
).map(lambda parts: [event for part in parts for event in part])


@settings(max_examples=150, database=None)
@given(events=EVENTS, random=st.randoms(use_true_random=False))
def test_any_order_and_any_repeat_give_the_same_bytes(events, random):
    want = repr(intervals(events, manager="hub"))
    again = events + random.sample(events, k=len(events) // 2)
    random.shuffle(again)
    assert repr(intervals(again, manager="hub")) == want


@settings(max_examples=150, database=None)
@given(events=EVENTS)
def test_natural_keys_are_unique_and_nothing_is_negative_or_overlaps(events):
    found = intervals(events, manager="hub").intervals
    keys = [
        row[:6]
        for row in ((r.cluster, r.uid, r.epoch, r.pod_set, r.flavor, r.seq, r) for r in found)
    ]
    assert len(set(keys)) == len(keys)
    assert all(row.end is None or row.start < row.end for row in found)
    for before, after in pairwise(found):
        if (before.uid, before.epoch) == (after.uid, after.epoch):
            assert before.end is not None
            assert before.end <= after.start


@settings(max_examples=150, database=None)
@given(events=EVENTS)
def test_copies_of_one_job_are_never_billed_at_the_same_time_once_it_is_decided(events):
    _never_billed_twice(events)


@settings(max_examples=400, database=None)
@given(events=handed_on())
def test_what_is_handed_from_worker_to_worker_is_billed_on_one_at_a_time(events):
    _never_billed_twice(events)


def _never_billed_twice(events) -> None:
    found = intervals(events, manager="hub").intervals
    assert all(row.role is IntervalKind.MANAGER_WAIT for row in found if row.cluster == "hub")
    placed = held_by(found, workspaces={"acme-vision": "v", "": "v"})
    far = at(10**6)
    edges = sorted({row.start for row in placed.held})
    for edge in edges:
        now = [row for row in placed.held if row.start <= edge < (row.end or far)]
        assert len({row.cluster for row in now}) <= 1


@settings(max_examples=100, database=None)
@given(events=lives("east", uid="e1"), cut=st.integers(0, 300))
def test_estimated_interval_is_never_longer_than_the_watched_one(events, cut):
    """What an outage hides costs nobody more than what a watcher without one saw."""
    live = [e for e in events if e.type is not EventType.MISSING and not e.after_gap]
    if not live or live[-1].facts.true_since("Finished") is None:
        return
    seen = [event for event in live if event.observed_at < at(cut)]
    if not seen:
        return
    last = seen[-1]
    gone = replace(
        last,
        type=EventType.MISSING,
        observed_at=live[-1].observed_at + timedelta(seconds=50),
        last_seen_at=last.observed_at,
    )
    assert _billed([*seen, gone]) <= _billed(live)


def _billed(events) -> int:
    return sum(
        row.gpus * int((row.end - row.start).total_seconds())
        for row in intervals(events).intervals
        if row.role is IntervalKind.BILLABLE and row.end is not None
    )
