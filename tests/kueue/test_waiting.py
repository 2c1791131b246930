"""Who waits in which queue, and why in none; heaps, lanes and classes by themselves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from budgets.plan import StopPolicy
from clusters.documents import labels
from clusters.kueue.configuration import Configuration
from clusters.kueue.queueing.buckets import Bucket, EquivalenceClass, Lane, QueueItem
from clusters.kueue.queueing.queue_set import NotQueued, QueueSet
from clusters.kueue.queueing.queues import PendingQueue, RequeueReason
from clusters.kueue.quota.specifications import LocalQueueSpec, QueueingStrategy
from clusters.kueue.workload.parser import WorkloadParser
from clusters.kueue.workload.requests import SurroundingsByNamespace
from clusters.kueue.workload.workloads import Workload
from tests.kueue.builders import START, workload

PARSER = WorkloadParser(Configuration())
AROUND = SurroundingsByNamespace(Configuration()).of("ns")
BEST, STRICT = QueueingStrategy.BEST_EFFORT_FIFO, QueueingStrategy.STRICT_FIFO
NO_FIT, SKIPPED = RequeueReason.NO_FIT, RequeueReason.FAILED_AFTER_NOMINATION


def parsed(name: str, queue: str = "l", **fields: Any) -> Workload:
    return PARSER.parse(workload(name, queue, **fields), surroundings=AROUND)


def feeding(name: str, queue: str, policy: StopPolicy = StopPolicy.NONE) -> LocalQueueSpec:
    return LocalQueueSpec(f"ns/{name}", "ns", queue, policy)


def queue_set(*local_queues: LocalQueueSpec, queues: str = "q", **options: Any) -> QueueSet:
    """ClusterQueues, LocalQueues, and nothing that waits."""
    made = QueueSet(**{"hashes_equals": True, **options})
    for name in queues:
        made.set_queue(name, strategy=BEST, now=START)
    for spec in local_queues or (feeding("l", "q"),):
        made.set_local_queue(spec, now=START)
    return made


def active(made: QueueSet, name: str = "q") -> list[str]:
    queue = made.queue(name)
    assert queue is not None
    return [key.removeprefix("ns/") for key in queue.active_keys()]


def parked(made: QueueSet, name: str = "q") -> list[str]:
    queue = made.queue(name)
    assert queue is not None
    return [key.removeprefix("ns/") for key in queue.parked_keys()]


def fail(made: QueueSet, name: str = "q", *, reason: str = "", **tried: int) -> None:
    """Pop a head and give it back as one that found no room."""
    [(_, item)] = made.heads(is_open=lambda queue: queue == name)
    item.reason = reason
    item.last_tried = {("main", resource): index for resource, index in tried.items()}
    made.requeue(name, item, reason=NO_FIT)


# Queues of a cluster


@pytest.mark.parametrize(
    ("annotations", "local_queue", "queues", "want"),
    [
        pytest.param(
            {labels.GATED_BY: "x.io/y", labels.REFUSED: "too big"},
            None,
            "",
            NotQueued("AdmissionGated", "Admission is gated by: x.io/y"),
            id="gated, before all else",
        ),
        pytest.param(
            {labels.REFUSED: "too big"},
            None,
            "",
            NotQueued("Misconfigured", "too big"),
            id="refused",
        ),
        pytest.param(
            {}, None, "q", NotQueued("Misconfigured", "LocalQueue l doesn't exist"), id="no queue"
        ),
        pytest.param(
            {},
            feeding("l", "q", StopPolicy.HOLD),
            "",
            NotQueued("Suspended", "LocalQueue l is inactive"),
            id="stopped",
        ),
        pytest.param(
            {},
            feeding("l", "q"),
            "p",
            NotQueued("Misconfigured", "ClusterQueue q doesn't exist"),
            id="no ClusterQueue",
        ),
    ],
)
def test_workload_that_waits_in_no_queue_says_why(annotations, local_queue, queues, want):
    document = workload("w", "l")
    document["metadata"]["annotations"] = annotations
    made = QueueSet(hashes_equals=True)
    for name in queues:
        made.set_queue(name, strategy=BEST, now=START)
    if local_queue is not None:
        made.set_local_queue(local_queue, now=START)
    assert not made.add(PARSER.parse(document, surroundings=AROUND), now=START)
    assert made.refusal("ns/w") == want
    assert (made.queue_of("ns/w"), made.item("ns/w"), made.active_count) == ("", None, 0)
    assert made.reason_of_equals("ns/w") == ""


def test_workload_leaves_its_queue_when_that_can_take_it_no_more_and_comes_back():
    made = queue_set()
    made.add(parsed("w"), now=START)
    assert (made.queue_of("ns/w"), made.refusal("ns/w"), active(made)) == ("q", None, ["w"])
    item = made.item("ns/w")
    assert item is not None
    assert (item.key, item.workload.name) == ("ns/w", "w")
    made.set_local_queue(feeding("l", "q", StopPolicy.HOLD), now=START)
    stopped = NotQueued("Suspended", "LocalQueue l is inactive")
    assert (made.queue_of("ns/w"), made.refusal("ns/w"), active(made)) == ("", stopped, [])
    made.set_local_queue(feeding("l", "q"), now=START)
    assert (made.queue_of("ns/w"), made.refusal("ns/w"), active(made)) == ("q", None, ["w"])
    made.delete_local_queue("ns/l", now=START)
    gone = NotQueued("Misconfigured", "LocalQueue l doesn't exist")
    assert (made.queue_of("ns/w"), made.refusal("ns/w"), active(made)) == ("", gone, [])
    assert made.local_queues == {}
    made.delete_local_queue("ns/l", now=START)
    made.delete_local_queue("ns/unknown", now=START)
    made.set_local_queue(feeding("l", "q"), now=START)
    assert (made.queue_of("ns/w"), active(made)) == ("q", ["w"])


def test_workloads_wait_for_their_cluster_queue_to_come_back():
    made = queue_set(feeding("l", "q"), feeding("m", "q"), feeding("n", "p"), queues="qp")
    for name, queue in (("w", "l"), ("v", "m"), ("u", "n")):
        made.add(parsed(name, queue), now=START)
    made.delete_queue("q", now=START)
    made.delete_queue("q", now=START)
    assert made.queue("q") is None
    assert [queue.name for queue in made.queues()] == ["p"]
    lost = NotQueued("Misconfigured", "ClusterQueue q doesn't exist")
    assert [made.refusal(f"ns/{name}") for name in "wvu"] == [lost, lost, None]
    assert [made.queue_of(f"ns/{name}") for name in "wvu"] == ["", "", "p"]
    made.set_queue("q", strategy=STRICT, now=START)
    assert [made.queue_of(f"ns/{name}") for name in "wvu"] == ["q", "q", "p"]
    assert (active(made), active(made, "p"), made.active_count) == (["v", "w"], ["u"], 3)
    queue = made.queue("q")
    assert queue is not None
    assert queue.strategy is STRICT
    made.set_queue("q", strategy=BEST, now=START)
    assert made.queue("q") is queue
    assert (queue.strategy, active(made)) == (BEST, ["v", "w"])


def test_workloads_move_with_their_local_queue():
    made = queue_set(feeding("l", "q"), queues="qp")
    made.add(parsed("w"), now=START)
    fail(made)
    made.set_local_queue(feeding("l", "q"), now=START)
    assert parked(made) == ["w"]
    made.set_local_queue(feeding("l", "p"), now=START)
    assert (parked(made), active(made, "p"), made.queue_of("ns/w")) == ([], ["w"], "p")
    # The queue that it left has nothing to do with it any more.
    made.delete_queue("q", now=START)
    assert made.queue_of("ns/w") == "p"
    made.set_queue("q", strategy=BEST, now=START)
    assert (active(made), active(made, "p")) == ([], ["w"])
    made.delete_queue("p", now=START)
    made.set_queue("p", strategy=BEST, now=START)
    assert active(made, "p") == ["w"]


def test_workload_that_is_added_again_under_another_queue_leaves_the_first():
    made = queue_set(feeding("l", "q"), feeding("m", "p"), queues="qp")
    made.add(parsed("w", "l"), now=START)
    made.add(parsed("w", "m"), now=START)
    assert (active(made), active(made, "p"), made.queue_of("ns/w")) == ([], ["w"], "p")


def test_waiting_workloads_of_a_local_queue_are_counted():
    made = queue_set(
        feeding("l", "q"), feeding("m", "gone"), feeding("n", "q", StopPolicy.HOLD), queues="q"
    )
    document = workload("gated", "l")
    document["metadata"]["annotations"] = {labels.GATED_BY: "x.io/y"}
    made.add(PARSER.parse(document, surroundings=AROUND), now=START)
    for name, queue in (("a", "l"), ("b", "l"), ("c", "m"), ("d", "n"), ("e", "x")):
        made.add(parsed(name, queue), now=START)
    assert [made.waiting_in(f"ns/{name}") for name in "lmnxy"] == [2, 1, 0, 0, 0]
    made.set_local_queue(feeding("z", "gone"), now=START)
    made.set_local_queue(feeding("y", "q"), now=START)
    assert [made.waiting_in(f"ns/{name}") for name in "zy"] == [0, 0]


def test_workload_that_is_removed_waits_nowhere():
    made = queue_set()
    made.add(parsed("w"), now=START)
    made.add(parsed("v", age=1), now=START)
    made.remove(parsed("w"))
    made.remove(parsed("w"))
    made.remove(parsed("x", "other"))
    assert (active(made), made.queue_of("ns/w"), made.waiting_in("ns/l")) == (["v"], "", 1)
    made.remove(parsed("v", age=1))
    assert (made.waiting_in("ns/l"), made.active_count) == (0, 0)
    refused = parsed("r", "nowhere")
    made.add(refused, now=START)
    made.remove(refused)
    assert made.refusal("ns/r") is None
    made.set_local_queue(feeding("nowhere", "q"), now=START)
    assert active(made) == []


@pytest.mark.parametrize("keeps", [True, False])
def test_precedence_of_a_preemptor_is_kept_where_that_is_asked(keeps):
    made = queue_set()
    first = parsed("w", age=9)
    made.add(first, now=START)
    [(_, item)] = made.heads(is_open=lambda name: True)
    made.requeue("q", item, reason=RequeueReason.PENDING_PREEMPTION)
    made.remove(first, keeps_sticky=keeps)
    made.add(parsed("v"), now=START)
    made.add(first, now=START)
    assert active(made) == (["w", "v"] if keeps else ["v", "w"])
    made.remove(first)
    made.add(first, now=START)
    assert active(made) == ["v", "w"]


def test_preemptor_that_comes_anew_without_having_left_is_still_first():
    made = queue_set()
    made.add(parsed("w", age=9), now=START)
    [(_, item)] = made.heads(is_open=lambda name: True)
    made.requeue("q", item, reason=RequeueReason.PENDING_PREEMPTION)
    made.add(parsed("v"), now=START)
    made.add(parsed("w", age=9, gpus=2), now=START)
    assert active(made) == ["w", "v"]
    # Whoever leaves its LocalQueue has no precedence when it comes back.
    made.set_local_queue(feeding("l", "q", StopPolicy.HOLD), now=START)
    made.set_local_queue(feeding("l", "q"), now=START)
    assert active(made) == ["v", "w"]


def test_version_that_changes_no_place_is_taken_where_the_old_one_waits():
    made = queue_set()
    made.add(parsed("w"), now=START)
    fail(made)
    newer = replace(parsed("w"), is_pods_ready=True)
    made.refresh(newer)
    item = made.item("ns/w")
    assert item is not None
    assert item.workload is newer
    assert (active(made), parked(made)) == ([], ["w"])
    made.set_local_queue(feeding("l", "q", StopPolicy.HOLD), now=START)
    latest = replace(newer, is_pods_ready=False)
    made.refresh(latest)
    made.set_local_queue(feeding("l", "q"), now=START)
    item = made.item("ns/w")
    assert item is not None
    assert item.workload is latest


def test_heads_are_those_of_open_queues_in_order_of_names():
    made = queue_set(*(feeding(name, name) for name in "cabd"), queues="cabd")
    for name in "bca":
        made.add(parsed(f"{name}1", name, age=1), now=START)
        made.add(parsed(f"{name}0", name), now=START)
    asked: list[str] = []

    def is_open(name: str) -> bool:
        asked.append(name)
        return name != "b"

    found = made.heads(is_open=is_open)
    assert [(name, item.key) for name, item in found] == [("a", "ns/a0"), ("c", "ns/c0")]
    # Whether d is open, where nothing waits, nobody asks.
    assert asked == ["a", "b", "c"]
    assert made.active_count == 4
    assert [made.queue_of(f"ns/{name}0") for name in "abc"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("tried", "is_parked"),
    [
        pytest.param({}, True, id="no flavor was tried"),
        pytest.param({"gpu": -1, "cpu": -1}, True, id="all flavors were"),
        pytest.param({"gpu": -1, "cpu": 0}, False, id="one has more to try"),
    ],
)
def test_head_that_has_flavors_to_try_comes_back_at_once(tried, is_parked):
    made = queue_set()
    made.add(parsed("w"), now=START)
    fail(made, **tried)
    assert (parked(made) == ["w"]) is is_parked
    assert (active(made) == ["w"]) is not is_parked


def test_head_of_a_queue_that_went_meanwhile_is_not_taken_back():
    made = queue_set()
    made.add(parsed("w"), now=START)
    [(_, item)] = made.heads(is_open=lambda name: True)
    made.delete_queue("q", now=START)
    made.requeue("q", item, reason=NO_FIT)
    made.set_queue("q", strategy=BEST, now=START)
    made.requeue("q", item, reason=NO_FIT)
    assert (active(made), parked(made)) == (["w"], [])


def test_reason_of_equals_is_that_of_the_last_one_that_was_tried():
    made = queue_set()
    for age, name in enumerate("wv"):
        made.add(parsed(name, age=age), now=START)
    assert made.reason_of_equals("ns/v") == ""
    fail(made, reason="WaitingForQuota")
    assert [made.reason_of_equals(f"ns/{name}") for name in "wvx"] == ["WaitingForQuota"] * 2 + [""]
    assert made.add(parsed("u", age=5), now=START)
    assert (active(made), parked(made)) == ([], ["w", "v", "u"])
    queue = made.queue("q")
    assert queue is not None
    assert queue.reason_of_equals("ns/none") == ""
    assert queue.wake(is_welcome=lambda name: name == "ns", now=START)
    assert not queue.wake(is_welcome=lambda name: True, now=START)
    assert made.reason_of_equals("ns/v") == ""
    assert not made.add(parsed("t", age=6), now=START)


def test_equals_are_tried_one_by_one_where_that_is_configured():
    made = queue_set(hashes_equals=False)
    for age, name in enumerate("wv"):
        made.add(parsed(name, age=age), now=START)
    fail(made, reason="WaitingForQuota")
    assert (active(made), parked(made)) == (["v"], ["w"])
    assert not made.add(parsed("u", age=5), now=START)


USED = {"ns/l": 5.0, "ns/m": 1.0, "ns/n": 1.0}


def by_usage(**options: Any) -> QueueSet:
    made = QueueSet(hashes_equals=True, usage_of=USED.__getitem__)
    made.set_queue("q", strategy=BEST, now=START, is_usage_based=True, **options)
    for name in "lmn":
        made.set_local_queue(feeding(name, "q"), now=START)
    return made


def test_usage_orders_local_queues_before_priority_and_time():
    made = by_usage()
    for name, queue, age, priority in (
        ("l0", "l", 0, 9),
        ("m1", "m", 1, 0),
        ("m0", "m", 8, 4),
        ("n0", "n", 2, 4),
        ("l1", "l", 9, 9),
    ):
        made.add(parsed(name, queue, age=age, priority=priority), now=START)
    assert active(made) == ["n0", "m0", "m1", "l0", "l1"]
    popped = [made.heads(is_open=lambda name: True)[0][1].key for _ in range(5)]
    assert popped == ["ns/n0", "ns/m0", "ns/m1", "ns/l0", "ns/l1"]
    assert made.heads(is_open=lambda name: True) == []


def test_preemptor_goes_first_among_those_of_equal_usage_only():
    made = by_usage()
    made.add(parsed("m9", "m", age=9), now=START)
    [(_, item)] = made.heads(is_open=lambda name: True)
    made.requeue("q", item, reason=RequeueReason.PENDING_PREEMPTION)
    made.add(parsed("n0", "n"), now=START)
    assert active(made) == ["m9", "n0"]
    assert made.heads(is_open=lambda name: True)[0][1].key == "ns/m9"
    made.add(parsed("l9", "l", age=9), now=START)
    made.remove(parsed("m9", "m", age=9))
    [(_, item)] = made.heads(is_open=lambda name: True)
    made.remove(item.workload)
    [(_, item)] = made.heads(is_open=lambda name: True)
    made.requeue("q", item, reason=RequeueReason.PENDING_PREEMPTION)
    made.add(parsed("n1", "n", age=20), now=START)
    assert active(made) == ["n1", "l9"]
    assert made.heads(is_open=lambda name: True)[0][1].key == "ns/n1"


def test_queue_that_is_ordered_otherwise_from_now_on_keeps_everybody():
    made = by_usage()
    made.add(parsed("l0", "l"), now=START)
    made.add(parsed("m1", "m", age=1), now=START)
    before = made.queue("q")
    made.set_queue("q", strategy=STRICT, now=START, is_usage_based=True)
    assert made.queue("q") is before
    assert active(made) == ["m1", "l0"]
    made.set_queue("q", strategy=BEST, now=START)
    after = made.queue("q")
    assert after is not None
    assert (after.is_usage_based, after.strategy) == (False, BEST)
    assert active(made) == ["l0", "m1"]
    plain = queue_set()
    kept = plain.queue("q")
    plain.set_queue("q", strategy=BEST, now=START, is_usage_based=True)
    assert plain.queue("q") is kept
    assert not kept.is_usage_based


def test_copy_knows_what_is_about_its_queues_and_changes_nothing_of_the_first():
    first = queue_set(feeding("l", "q"), feeding("m", "p"), queues="qp")
    for name, queue, gpus in (("a", "l", 1), ("b", "l", 2), ("c", "m", 1), ("d", "x", 1)):
        first.add(parsed(name, queue, gpus=gpus), now=START)
    fail(first, reason="WaitingForQuota")
    copy = QueueSet(hashes_equals=True)
    copy.adopt(first, names={"q"})
    assert [queue.name for queue in copy.queues()] == ["q"]
    assert (active(copy), parked(copy), copy.active_count) == (["b"], ["a"], 1)
    assert [copy.queue_of(f"ns/{name}") for name in "abcd"] == ["q", "q", "", ""]
    assert copy.reason_of_equals("ns/a") == "WaitingForQuota"
    assert copy.refusal("ns/d") == NotQueued("Misconfigured", "LocalQueue x doesn't exist")
    assert copy.local_queues == first.local_queues
    assert copy.waiting_in("ns/l") == 2
    copy.delete_local_queue("ns/l", now=START)
    copy.set_local_queue(feeding("x", "q"), now=START)
    copy.remove(parsed("b", gpus=2))
    # d is equal to a, which found no room just now.
    assert (active(copy), parked(copy)) == ([], ["d"])
    assert (active(first), parked(first)) == (["b"], ["a"])
    assert first.waiting_in("ns/l") == 2
    first.delete_queue("p", now=START)
    first.set_queue("p", strategy=BEST, now=START)
    assert active(first, "p") == ["c"]


def test_copy_of_a_queue_by_usage_is_one_too():
    first = by_usage()
    for name, queue in (("l0", "l"), ("m0", "m")):
        first.add(parsed(name, queue, age=int(queue == "m")), now=START)
    copy = QueueSet(hashes_equals=True, usage_of=USED.__getitem__)
    copy.adopt(first, names={"q"})
    made = copy.queue("q")
    assert made is not None
    assert (made.is_usage_based, active(copy)) == (True, ["m0", "l0"])
    popped = [copy.heads(is_open=lambda name: True)[0][1].key for _ in range(2)]
    assert popped == ["ns/m0", "ns/l0"]
    assert active(first) == ["m0", "l0"]


# One queue


def pending(strategy: QueueingStrategy = BEST) -> PendingQueue:
    return PendingQueue("q", strategy=strategy, hashes_equals=True)


def test_what_is_added_again_is_there_once_and_as_it_is_now():
    queue = pending()
    first, was_parked = queue.add(parsed("w"), now=START)
    assert (first.key, was_parked, len(queue), queue.active_count) == ("ns/w", False, 1, 1)
    second, _ = queue.add(parsed("w", gpus=2), now=START)
    assert (len(queue), queue.active_count, queue.item("ns/w")) == (1, 1, second)
    assert list(queue.items()) == [second]
    assert queue.pop() is second
    assert queue.pop() is None
    # What is in flight is here still, and may be taken back, unless it came again meanwhile.
    assert (queue.active_keys(), queue.item("ns/w")) == ([], second)
    third, _ = queue.add(parsed("w", gpus=2), now=START)
    queue.requeue(second, reason=NO_FIT, has_pending_flavors=False)
    assert (queue.active_keys(), queue.parked_keys()) == (["ns/w"], [])
    assert queue.item("ns/w") is third


def test_what_is_removed_tells_whether_it_was_there():
    queue = pending()
    queue.add(parsed("w"), now=START)
    assert queue.remove("ns/w")
    assert not queue.remove("ns/w")
    assert (len(queue), queue.active_count, queue.is_active("ns/w")) == (0, 0, False)


def test_what_backs_off_is_neither_active_nor_lost():
    queue = pending()
    later = replace(parsed("w"), requeue_at=START + timedelta(seconds=9))
    item, was_parked = queue.add(later, now=START)
    assert (was_parked, queue.is_active("ns/w"), queue.active_count) == (False, False, 0)
    queue.add(parsed("v", age=1), now=START)
    assert (queue.active_keys(), queue.parked_keys()) == (["ns/v"], ["ns/w"])
    assert queue.pop() is queue.item("ns/v")
    copy = pending()
    copy.adopt(queue)
    assert copy.parked_keys() == ["ns/w"]
    assert copy.item("ns/w") is not item
    in_time = START + timedelta(seconds=9)
    assert not copy.wake(is_welcome=lambda name: False, now=in_time)
    assert copy.wake(is_welcome=lambda name: name == "ns", now=in_time)
    assert (copy.active_keys(), copy.parked_keys()) == (["ns/w"], [])
    assert queue.parked_keys() == ["ns/w"]
    assert queue.remove("ns/w")
    assert not queue.wake(is_welcome=lambda name: True, now=in_time)


def test_copy_goes_on_where_the_first_one_is():
    queue = pending()
    for name, age in (("w", 9), ("v", 0)):
        queue.add(parsed(name, age=age, gpus=age + 1), now=START)
    item = queue.pop()
    assert item is not None
    item.message, item.reason, item.tried_cycle = "text", "Reason", 3
    item.last_tried, item.tried_generation, item.attempts = {("main", "gpu"): 0}, 2, ()
    queue.requeue(item, reason=RequeueReason.PENDING_PREEMPTION, has_pending_flavors=False)
    queue.add(parsed("high", priority=9, gpus=7), now=START)
    copy = pending()
    copy.adopt(queue)
    assert copy.active_keys() == queue.active_keys() == ["ns/v", "ns/high", "ns/w"]
    found = copy.item("ns/v")
    assert found is not None
    assert found is not item
    fields = ("sequence", "last_tried", "tried_generation", "tried_cycle", "message", "reason")
    for name in ("workload", *fields, "attempts"):
        assert getattr(found, name) == getattr(item, name)
    popped = [copy.pop(), copy.pop(), copy.pop(), copy.pop()]
    assert [made.key if made else None for made in popped] == ["ns/v", "ns/high", "ns/w", None]
    assert queue.active_count == 3
    copy.requeue(found, reason=SKIPPED, has_pending_flavors=False)
    copy.add(parsed("w2"), now=START)
    assert copy.active_keys() == ["ns/v", "ns/w2"]


def test_wake_counts_until_the_next_head_is_taken():
    queue = pending()
    queue.add(parsed("w", gpus=1), now=START)
    queue.add(parsed("v", gpus=2, age=1), now=START)
    first = queue.pop()
    assert first is not None
    queue.wake(is_welcome=lambda name: True, now=START)
    second = queue.pop()
    assert second is not None
    queue.requeue(first, reason=NO_FIT, has_pending_flavors=False)
    assert (queue.active_keys(), queue.parked_keys()) == ([], ["ns/w"])
    queue.wake(is_welcome=lambda name: True, now=START)
    queue.requeue(second, reason=NO_FIT, has_pending_flavors=False)
    assert queue.active_keys() == ["ns/w", "ns/v"]


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        (NO_FIT, ["ns/w", "ns/v"]),
        (RequeueReason.PREEMPTION_NO_CANDIDATES, ["ns/w", "ns/v"]),
        (RequeueReason.GENERIC, ["ns/w"]),
        (RequeueReason.NAMESPACE_MISMATCH, ["ns/w"]),
    ],
)
def test_equals_are_parked_for_what_would_be_the_same_for_them(reason, want):
    queue = pending()
    queue.add(parsed("w"), now=START)
    queue.add(parsed("v", age=1), now=START)
    item = queue.pop()
    assert item is not None
    queue.requeue(item, reason=reason, has_pending_flavors=False)
    assert queue.parked_keys() == want
    assert queue.active_count == 2 - len(want)
    following = queue.pop()
    assert (following.key if following else None) == (None if len(want) == 2 else "ns/v")


@pytest.mark.parametrize("strategy", [STRICT, BEST])
def test_who_caused_preemptions_goes_first_in_a_queue_that_may_skip_its_head(strategy):
    queue = pending(strategy)
    queue.add(parsed("w"), now=START)
    item = queue.pop()
    assert item is not None
    queue.requeue(item, reason=RequeueReason.PENDING_PREEMPTION, has_pending_flavors=False)
    queue.add(parsed("high", priority=1), now=START)
    is_first = strategy is BEST
    assert queue.active_keys()[0] == ("ns/w" if is_first else "ns/high")
    queue.forget_preemptor("ns/other")
    head = queue.pop()
    assert head is not None
    assert head.key == ("ns/w" if is_first else "ns/high")
    queue.forget_preemptor("ns/w")
    queue.requeue(head, reason=SKIPPED, has_pending_flavors=False)
    assert queue.active_keys() == ["ns/high", "ns/w"]


# Heaps and lanes


def item_of(name: str, **fields: Any) -> QueueItem:
    return QueueItem(parsed(name, **fields))


def filled(*names: str) -> tuple[Bucket, dict[str, QueueItem]]:
    """A bucket of workloads, the first of them the oldest."""
    bucket = Bucket()
    items = {name: item_of(name, age=age) for age, name in enumerate(names)}
    for sequence, item in enumerate(reversed(items.values())):
        bucket.push(item, sequence)
    return bucket, items


def test_first_of_a_bucket_is_its_oldest_member():
    bucket, items = filled("a", "b", "c")
    found = bucket.top()
    assert found == (items["a"].workload.order, 2, items["a"])
    assert bucket.discard("ns/a")
    assert not bucket.discard("ns/a")
    assert not bucket.discard("ns/none")
    assert bucket.top() == (items["b"].workload.order, 1, items["b"])
    assert len(bucket.heap) == 2
    bucket.push(items["b"], 9)
    assert bucket.top() == (items["b"].workload.order, 9, items["b"])
    assert items["b"].sequence == 9
    for name in ("b", "c"):
        bucket.discard(f"ns/{name}")
    assert (bucket.top(), bucket.heap, bucket.members) == (None, [], {})


def test_entries_of_who_left_are_swept_when_they_are_most():
    names = [f"w{index:02}" for index in range(40)]
    bucket, _ = filled(*names)
    sizes = []
    for name in reversed(names):
        bucket.discard(f"ns/{name}")
        sizes.append(len(bucket.heap))
    # 40 entries are more than twice eleven members and sixteen; of 11, none is too many.
    assert sizes == [40] * 28 + [11] * 12
    assert bucket.top() is None


def test_copy_of_a_bucket_has_its_members_and_order():
    bucket, items = filled("a", "b", "c", "d")
    bucket.discard("ns/b")
    copy = bucket.copy()
    assert list(copy.members) == ["ns/d", "ns/c", "ns/a"]
    assert all(copy.members[key] is not bucket.members[key] for key in copy.members)
    assert (len(copy.heap), len(bucket.heap)) == (3, 4)
    order = []
    while (top := copy.top()) is not None:
        order.append(top[2].workload.name)
        copy.discard(top[2].key)
    assert order == ["a", "c", "d"]
    assert bucket.top() == (items["a"].workload.order, 3, items["a"])


def test_bucket_takes_in_members_and_leaves_the_other_empty():
    bucket, _ = filled("b", "d")
    other, items = filled("a", "c", "e")
    other.discard("ns/c")
    bucket.take_in(other)
    assert (other.members, other.heap) == ({}, [])
    assert sorted(bucket.members) == ["ns/a", "ns/b", "ns/d", "ns/e"]
    assert len(bucket.heap) == 4
    assert bucket.top() == (items["a"].workload.order, 2, items["a"])


@pytest.mark.parametrize(("waiting", "asleep"), [("ab", "c"), ("a", "bc"), ("", "a"), ("a", "")])
def test_class_is_parked_and_woken_as_a_whole(waiting, asleep):
    group = EquivalenceClass("ns", "lane", *(filled(*names)[0] for names in (waiting, asleep)))
    everybody = sorted(f"ns/{name}" for name in waiting + asleep)
    group.park()
    assert (sorted(group.active.members), sorted(group.parked.members)) == ([], everybody)
    copy = group.copy()
    assert (copy.namespace, copy.lane, copy.advertised) == ("ns", "lane", None)
    group.wake()
    assert (sorted(group.active.members), sorted(group.parked.members)) == (everybody, [])
    assert (sorted(copy.active.members), sorted(copy.parked.members)) == ([], everybody)


def test_lane_shows_the_first_of_all_its_classes():
    lane = Lane()
    old, new = EquivalenceClass("ns"), EquivalenceClass("ns")
    old.active, items = filled("a", "d")
    new.active = filled("b", "c")[0]
    assert lane.first() is None
    lane.advertise(new, 1)
    lane.advertise(old, 2)
    lane.advertise(old, 3)
    assert len(lane.tops) == 2
    assert lane.first() is items["a"]
    old.active.discard("ns/a")
    # Nobody shows d before its class is looked at again.
    assert (lane.first() or items["a"]).key == "ns/b"
    lane.advertise(old, 4)
    assert (lane.first() or items["a"]).key == "ns/b"
    new.park()
    lane.advertise(new, 5)
    assert new.advertised is None
    assert lane.first() is items["d"]


def test_lane_forgets_what_is_shown_no_longer():
    lane, group = Lane(), EquivalenceClass("ns")
    sizes = []
    for index in range(70):
        group.active.push(item_of(f"w{index}", age=100 - index), index)
        lane.advertise(group, index)
        sizes.append(len(lane.tops))
    assert (max(sizes), sizes[63:66], lane.most) == (64, [64, 1, 2], 64)
    first = lane.first()
    assert first is not None
    assert first.key == "ns/w69"


def test_lane_of_many_classes_is_swept_when_it_has_doubled():
    lane = Lane()
    for index in range(65):
        group = EquivalenceClass("ns")
        group.active.push(item_of(f"w{index}", age=index), index)
        lane.advertise(group, index)
    assert (len(lane.tops), lane.most) == (65, 130)
