"""Order, parking and wake-ups of pending workloads."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.kueue.configuration import Configuration, Gates
from clusters.kueue.queueing.queues import PendingQueue, RequeueReason
from clusters.kueue.quota.specifications import QueueingStrategy
from clusters.kueue.workload.parser import WorkloadParser
from clusters.kueue.workload.requests import SurroundingsByNamespace
from tests.kueue.builders import START, World, cluster_queue, group, preemption, quota, workload
from tests.kueue.builders import reserved as holding

PARSER = WorkloadParser(Configuration())


def parsed(name: str, **fields):
    around = SurroundingsByNamespace(World().engine.configuration).of("ns")
    return PARSER.parse(workload(name, "q", **fields), surroundings=around)


def new_queue(strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO) -> PendingQueue:
    return PendingQueue("q", strategy=strategy, hashes_equals=True)


def pop_all(queue: PendingQueue) -> list[str]:
    names = []
    while (item := queue.pop()) is not None:
        names.append(item.key.removeprefix("ns/"))
    return names


def wake(queue: PendingQueue) -> bool:
    return queue.wake(is_welcome=lambda namespace: True, now=START)


def test_pop_order_is_priority_then_time_then_uid():
    queue = new_queue()
    for item in (
        parsed("late", age=9),
        parsed("b", age=5),
        parsed("a", age=5),
        parsed("high", priority=3, age=20),
    ):
        queue.add(item, now=START)
    assert pop_all(queue) == ["high", "a", "b", "late"]


EVICTED_AT = START + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("configuration", "kind", "reason", "want_time"),
    [
        pytest.param(
            Configuration(), "Evicted", "PodsReadyTimeout", EVICTED_AT, id="pods were not ready"
        ),
        pytest.param(
            Configuration(requeues_by_eviction=False),
            "Evicted",
            "PodsReadyTimeout",
            START,
            id="pods were not ready, by creation",
        ),
        pytest.param(
            Configuration(requeues_by_eviction=False),
            "Evicted",
            "AdmissionCheck",
            EVICTED_AT,
            id="a check always moves it",
        ),
        pytest.param(Configuration(), "Evicted", "Preempted", START, id="preempted stays"),
        pytest.param(
            Configuration(gates=Gates(priority_sorting_within_cohort=False)),
            "Preempted",
            "InCohortReclaimWhileBorrowing",
            EVICTED_AT + timedelta(milliseconds=1),
            id="gate off: reclaimed while borrowing",
        ),
    ],
)
def test_time_that_decides_among_equals(configuration, kind, reason, want_time):
    document = workload("w", "q")
    at = EVICTED_AT.isoformat()
    document["status"] = {
        "conditions": [{"type": kind, "status": "True", "reason": reason, "lastTransitionTime": at}]
    }
    around = SurroundingsByNamespace(configuration).of("ns")
    parser = WorkloadParser(configuration)
    assert parser.parse(document, surroundings=around).queued_at == want_time


@pytest.mark.parametrize(
    ("strategy", "reason", "want_active"),
    [
        pytest.param("BestEffortFIFO", RequeueReason.NO_FIT, False, id="no fit parks"),
        pytest.param("BestEffortFIFO", RequeueReason.GENERIC, False, id="not nominated parks"),
        pytest.param(
            "BestEffortFIFO", RequeueReason.PREEMPTION_NO_CANDIDATES, False, id="no candidates"
        ),
        pytest.param(
            "BestEffortFIFO", RequeueReason.FAILED_AFTER_NOMINATION, True, id="skipped comes back"
        ),
        pytest.param(
            "BestEffortFIFO", RequeueReason.PENDING_PREEMPTION, True, id="preempting comes back"
        ),
        pytest.param("StrictFIFO", RequeueReason.NO_FIT, True, id="strict blocks its queue"),
        pytest.param(
            "StrictFIFO", RequeueReason.NAMESPACE_MISMATCH, False, id="strict parks a stranger"
        ),
    ],
)
def test_requeue_parks_or_comes_back(strategy, reason, want_active):
    queue = new_queue(QueueingStrategy(strategy))
    queue.add(parsed("w"), now=START)
    item = queue.pop()
    assert item is not None
    queue.requeue(item, reason=reason, has_pending_flavors=False)
    assert bool(queue.active_keys()) == want_active
    assert bool(queue.parked_keys()) != want_active


@pytest.mark.parametrize("was_woken", [False, True])
def test_wake_between_pop_and_requeue_keeps_the_head_active(was_woken):
    queue = new_queue()
    queue.add(parsed("w"), now=START)
    item = queue.pop()
    if was_woken:
        wake(queue)
    queue.requeue(item, reason=RequeueReason.NO_FIT, has_pending_flavors=False)
    assert bool(queue.active_keys()) == was_woken


def test_pending_flavors_keep_the_head_active():
    queue = new_queue()
    queue.add(parsed("w"), now=START)
    item = queue.pop()
    queue.requeue(item, reason=RequeueReason.NO_FIT, has_pending_flavors=True)
    assert queue.active_keys() == ["ns/w"]


def test_equals_of_a_workload_without_fit_are_parked_with_it():
    queue = new_queue()
    for index in range(3):
        queue.add(parsed(f"same{index}", gpus=4, age=index), now=START)
    queue.add(parsed("other", gpus=1, age=9), now=START)
    item = queue.pop()
    queue.requeue(item, reason=RequeueReason.NO_FIT, has_pending_flavors=False)
    assert queue.active_keys() == ["ns/other"]
    assert queue.parked_keys() == ["ns/same0", "ns/same1", "ns/same2"]

    _, was_bypassed = queue.add(parsed("same3", gpus=4, age=10), now=START)
    assert was_bypassed
    wake(queue)
    _, was_bypassed = queue.add(parsed("same4", gpus=4, age=11), now=START)
    assert not was_bypassed
    assert pop_all(queue) == ["same0", "same1", "same2", "other", "same3", "same4"]


def test_workloads_in_the_heap_are_counted():
    queue = new_queue()
    for name, gpus in (("a", 1), ("b", 1), ("c", 1), ("d", 2), ("e", 3), ("f", 4)):
        queue.add(parsed(name, gpus=gpus), now=START)
    assert queue.active_count == 6
    head = queue.pop()
    assert head is not None
    assert queue.active_count == 5
    queue.requeue(head, reason=RequeueReason.NO_FIT, has_pending_flavors=False)
    assert (queue.active_count, len(queue)) == (3, 6)
    copy = new_queue()
    copy.adopt(queue)
    assert (copy.active_count, len(copy)) == (3, 6)
    assert copy.parked_keys() == ["ns/a", "ns/b", "ns/c"]
    assert copy.active_keys() == ["ns/d", "ns/e", "ns/f"]
    wake(copy)
    assert (copy.active_count, queue.active_count) == (6, 3)


def test_strict_queue_does_not_park_equals():
    queue = new_queue(QueueingStrategy.STRICT_FIFO)
    queue.add(parsed("a"), now=START)
    queue.add(parsed("b", age=1), now=START)
    item = queue.pop()
    queue.requeue(item, reason=RequeueReason.NO_FIT, has_pending_flavors=False)
    assert queue.active_keys() == ["ns/a", "ns/b"]


def test_preemptor_stays_first_until_it_leaves():
    queue = new_queue()
    queue.add(parsed("w"), now=START)
    item = queue.pop()
    queue.requeue(item, reason=RequeueReason.PENDING_PREEMPTION, has_pending_flavors=False)
    queue.add(parsed("higher", priority=9), now=START)
    assert queue.active_keys() == ["ns/w", "ns/higher"]
    queue.remove("ns/w")
    queue.add(parsed("w"), now=START)
    assert queue.active_keys() == ["ns/higher", "ns/w"]


def test_backoff_parks_until_it_is_over():
    document = workload("w", "q")
    document["status"] = {"requeueState": {"count": 1, "requeueAt": "2026-01-01T00:10:00Z"}}
    around = SurroundingsByNamespace(World().engine.configuration).of("ns")
    queue = new_queue()
    queue.add(PARSER.parse(document, surroundings=around), now=START)
    assert queue.active_keys() == []
    wake(queue)
    assert queue.active_keys() == []
    queue.wake(is_welcome=lambda namespace: True, now=START + timedelta(minutes=10))
    assert queue.active_keys() == ["ns/w"]


def test_churn_behind_a_stuck_head_leaves_nothing_behind():
    queue = new_queue(QueueingStrategy.STRICT_FIFO)
    queue.add(parsed("head", priority=9), now=START)
    for index in range(500):
        item = parsed(f"w{index}", gpus=index, age=index)
        queue.add(item, now=START)
        queue.remove(item.key)
    assert queue.active_keys() == ["ns/head"]
    assert len(queue._lanes[""].tops) < 100


def test_wake_leaves_unwelcome_namespaces_parked():
    queue = new_queue()
    queue.add(parsed("w"), now=START)
    item = queue.pop()
    queue.requeue(item, reason=RequeueReason.NO_FIT, has_pending_flavors=False)
    assert not queue.wake(is_welcome=lambda namespace: False, now=START)
    assert queue.parked_keys() == ["ns/w"]


steps = st.lists(
    st.tuples(st.sampled_from(["add", "pop", "park", "back", "remove", "wake"]), st.integers(0, 7)),
    max_size=40,
)


@settings(max_examples=150)
@given(steps)
def test_queue_behaves_like_two_plain_sets(sequence):
    """The grouped heaps against a model: a set of active and a set of parked keys."""
    queue = PendingQueue("q", strategy=QueueingStrategy.BEST_EFFORT_FIFO, hashes_equals=False)
    known = [parsed(f"w{n}", gpus=n % 3, priority=n % 2, age=n) for n in range(8)]
    orders = {item.key: item.order for item in known}
    active: set[str] = set()
    parked: set[str] = set()
    for action, index in sequence:
        key = known[index].key
        if action == "add":
            queue.add(known[index], now=START)
            active.add(key)
            parked.discard(key)
        elif action == "remove":
            queue.remove(key)
            active.discard(key)
            parked.discard(key)
        elif action == "wake":
            wake(queue)
            active |= parked
            parked.clear()
        else:
            item = queue.pop()
            want = min(active, key=orders.__getitem__, default=None)
            assert (item.key if item else None) == want
            if item is None:
                continue
            active.discard(item.key)
            if action == "pop":
                queue.remove(item.key)
                continue
            reason = (
                RequeueReason.NO_FIT if action == "park" else RequeueReason.FAILED_AFTER_NOMINATION
            )
            queue.requeue(item, reason=reason, has_pending_flavors=False)
            (parked if action == "park" else active).add(item.key)
        assert set(queue.active_keys()) == active
        assert set(queue.parked_keys()) == parked
        assert queue.active_count == len(active)
        assert len(queue) == len(active) + len(parked)


def test_finish_wakes_the_whole_tree():
    world = World().feed(
        cluster_queue("a", group(f0=quota(4)), in_cohort="pool"),
        cluster_queue("b", group(f0=quota(0)), in_cohort="pool"),
        cluster_queue("far", group(f0=quota(0)), in_cohort="elsewhere"),
        holding(workload("old", "a", gpus=4), "a"),
        workload("waits", "b", gpus=4),
        workload("elsewhere", "far", gpus=4),
    )
    assert world.admitted() == {}
    assert world.cycle().heads == 0
    world.engine.delete("Workload", key="ns/old", now=world.now)
    result = world.cycle()
    assert (result.heads, [item.key for item in result.admitted]) == (1, ["ns/waits"])


def test_strict_head_blocks_its_own_queue_only():
    world = World().feed(
        cluster_queue("a", group(f0=quota(4)), in_cohort="pool", queueingStrategy="StrictFIFO"),
        cluster_queue("b", group(f0=quota(4)), in_cohort="pool"),
        workload("huge", "a", gpus=99),
        workload("behind", "a", gpus=1, age=1),
        workload("sibling", "b", gpus=6),
    )
    assert list(world.admitted(4)) == ["sibling"]


def test_preempted_workload_keeps_its_place_by_creation():
    world = World().feed(
        cluster_queue("q", group(f0=quota(4)), preemption=preemption("LowerPriority")),
        holding(workload("old", "q", gpus=4), "q"),
        workload("newer", "q", gpus=4, age=50),
        workload("high", "q", gpus=4, priority=9, age=60),
    )
    world.run(3)
    world.engine.delete("Workload", key="ns/high", now=world.now)
    assert next(iter(world.admitted(1))) == "old"
