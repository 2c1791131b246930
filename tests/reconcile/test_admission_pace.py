"""What the admission shift puts off, for how long, and that nothing is put off for good."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise

import pytest

from clusters.documents.keys import Document
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.reconcile.admission.body import AdmissionBody
from clusters.reconcile.admission.pace import (
    AT_ONCE,
    CYCLE_REST,
    LONGEST_REST_S,
    PASS_EVERY_S,
    PASS_REST,
    QUEUE_EVERY_S,
    QUIET_AFTER_S,
    SAME_QUEUE_EVERY_S,
    SWEEP_EVERY_S,
    WORKLOAD_EVERY_S,
    CyclePace,
    LowPriority,
)
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.runtime.queue import CAP_S, WorkQueue, namespace_of
from tests.reconcile.admission_harness import (
    Embedded,
    Place,
    condition,
    is_true,
    job,
    quota_objects,
)
from tests.waiting import eventually

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("kind", ["ClusterQueue:", "ns/"])
def test_of_each_kind_a_few_are_under_way_at_once(kind: str):
    low, keys = LowPriority(), [f"{kind}{number}" for number in range(2 * AT_ONCE)]
    (low.change if kind.endswith(":") else low.add)(keys)
    assert told(low, 10.0) == keys[:AT_ONCE] == low.under_way
    assert low.wait_s(10.0) is None
    assert not low.answered("ns/other")
    assert low.answered(keys[1]) and not low.answered(keys[1])
    assert low.wait_s(10.2) == 0
    assert told(low, 10.2) == [keys[AT_ONCE]]


def test_queues_go_before_workloads_and_hold_none_up():
    low, queues = LowPriority(), [f"ClusterQueue:{number}" for number in range(2 * AT_ONCE)]
    low.add(["ns/a", "ns/b", "ns/a"])
    low.begin_pass(queues, now=0)
    assert told(low) == [*queues[:AT_ONCE], "ns/a", "ns/b"]


def told(low: LowPriority, now: float = 0.0) -> list[str]:
    """Send all that may go now."""
    keys = []
    while key := low.next(now):
        low.sent(key, now=now)
        keys.append(key)
    return keys


def test_queues_that_changed_go_before_the_rest_of_a_pass_and_do_not_hold_it_up():
    low = LowPriority()
    low.begin_pass([f"ClusterQueue:{number}" for number in range(9)], now=0)
    changed = [f"ClusterQueue:{number}" for number in (8, 3, 7, 6, 5, 8)]
    low.change(changed)
    assert low.wait_s(0) == 0
    first = ["8", "3", "7", "6", "0", "5"]
    rest = ["1", "2", "4"]
    assert list(iter(partial(low.next, 0), "")) == [f"ClusterQueue:{n}" for n in first + rest]
    low.change(["ClusterQueue:8"])
    low.add(["ns/a", "ns/b"])
    assert low.wait_s(0) == 0
    assert set(iter(partial(low.next, 0), "")) == {"ClusterQueue:8", "ns/a", "ns/b"}


def test_queue_that_changes_while_it_is_told_is_told_again_afterwards():
    low = LowPriority()
    low.change(["ClusterQueue:a"])
    assert told(low) == ["ClusterQueue:a"]
    low.change(["ClusterQueue:a"])
    assert low.wait_s(0) is None
    low.answered("ClusterQueue:a")
    assert told(low, 1.0) == ["ClusterQueue:a"]
    low.answered("ClusterQueue:a")
    assert low.wait_s(2.0) is None


@pytest.mark.parametrize(
    ("kind", "every_s"), [("ClusterQueue:", QUEUE_EVERY_S), ("ns/", WORKLOAD_EVERY_S)]
)
def test_they_follow_one_another_at_their_pace_while_decisions_are_written(
    kind: str, every_s: float
):
    low, keys = LowPriority(), [f"{kind}{number}" for number in range(60)]
    (low.change if kind.endswith(":") else low.add)(keys)
    taken, now = [], 10.0
    for _ in range(8):
        low.note_haste(now)
        taken.append(len(told(low, now)))
        for key in low.under_way:
            low.answered(key)
        # Of a shift that was busy for a moment, and then for long.
        now += every_s * (2.01 if len(taken) < 5 else 100)
    assert taken == [AT_ONCE, 2, 2, 2, 2, AT_ONCE, AT_ONCE, AT_ONCE]


@pytest.mark.parametrize(("kind", "most"), [("ClusterQueue:", AT_ONCE), ("ns/", 3 * AT_ONCE)])
def test_events_of_workloads_make_statuses_of_queues_few_and_reasons_not(kind: str, most: int):
    low, keys = LowPriority(), [f"{kind}{number}" for number in range(3 * AT_ONCE)]
    (low.change if kind.endswith(":") else low.add)(keys)
    low.note_event(10.0)
    sent = []
    for _ in range(3):
        sent += told(low, 10.0)
        for key in low.under_way:
            low.answered(key)
    assert len(sent) == most


@pytest.mark.parametrize("is_hasty", [True, False])
def test_a_queue_that_changes_all_the_time_rests_and_tells_its_last_state(is_hasty: bool):
    low, now = LowPriority(), 10.0
    busy, other = "ClusterQueue:busy", "ClusterQueue:other"
    times: dict[str, list[float]] = {busy: [], other: []}
    for turn in range(400):
        if turn < 300:
            if is_hasty:
                low.note_haste(now)
            low.change([busy])
        if turn in (40, 60):
            low.change([other])
            low.begin_pass([busy, other], now=now)
        for key in told(low, now):
            times[key].append(now)
            low.answered(key)
        now += 0.01
    gaps = [later - first for first, later in pairwise(times[busy])]
    assert gaps == [pytest.approx(SAME_QUEUE_EVERY_S, abs=QUEUE_EVERY_S + 0.02)] * 6
    assert len(times[other]) == 2
    assert low.wait_s(now) is None, "nothing is left untold"


def test_pass_over_the_queues_takes_no_longer_where_the_cluster_answers_late():
    low, now = LowPriority(), 10.0
    low.begin_pass([f"ClusterQueue:{number}" for number in range(60)], now=now)
    answers: dict[str, float] = {}
    while low.wait_s(now) is not None or answers:
        low.note_haste(now)
        for key in [key for key, at in answers.items() if at <= now]:
            low.answered(key)
            del answers[key]
        answers |= dict.fromkeys(told(low, now), now + 6 * QUEUE_EVERY_S)
        now += 0.001
    assert now - 10.0 == pytest.approx(60 * QUEUE_EVERY_S, abs=0.2)


def test_writes_that_can_wait_follow_at_once_on_a_quiet_cluster():
    low, keys = LowPriority(), [f"ns/{number}" for number in range(4 * AT_ONCE)]
    low.add(keys)

    def told_and_answered(now: float) -> int:
        sent = told(low, now)
        for key in sent:
            low.answered(key)
        return len(sent)

    low.note_haste(10.0)
    assert [told_and_answered(10.0) for _ in range(2)] == [AT_ONCE, 0]
    quiet = 10.0 + QUIET_AFTER_S
    assert [told_and_answered(quiet) for _ in range(4)] == [AT_ONCE, AT_ONCE, AT_ONCE, 0]


def test_pass_over_the_queues_begins_when_the_last_is_over_and_a_while_ago():
    low = LowPriority()
    assert low.is_pass_due(0.0)
    low.begin_pass(["ClusterQueue:x"], now=0.0)
    assert not low.is_pass_due(PASS_EVERY_S)
    assert low.next(0.0) == "ClusterQueue:x"
    assert not low.is_pass_due(PASS_EVERY_S / 2)
    assert low.is_pass_due(PASS_EVERY_S)


@pytest.mark.parametrize(
    ("is_changed", "is_news", "want"),
    [
        pytest.param(False, False, False, id="as long as it took, times a hundred"),
        pytest.param(False, True, True, id="no longer where a flavor changed"),
        pytest.param(True, False, True, id="what was told of its own accord is none of it"),
    ],
)
def test_pass_over_many_queues_takes_a_hundredth_of_the_time(is_changed, is_news, want):
    low, key = LowPriority(), "ClusterQueue:x"
    low.begin_pass([key], now=0.0)
    if is_changed:
        low.change([key])
    assert low.next(0.0) == key
    low.looked(2 * PASS_EVERY_S / PASS_REST)
    low.add(["ns/w"])
    assert low.next(0.0) == "ns/w"
    low.looked(60.0)
    if is_news:
        low.hurry()
    assert low.is_pass_due(PASS_EVERY_S) is want
    assert low.is_pass_due(2 * PASS_EVERY_S)


def settled_pace(took_s: float) -> CyclePace:
    pace = CyclePace()
    assert pace.is_due(1, now=0.0)
    pace.settled(now=0.0, took_s=took_s)
    return pace


def test_cycles_rest_in_proportion_and_run_again_when_something_changed():
    pace = settled_pace(0.01)
    assert not pace.is_due(1, now=1.0)
    assert pace.wait_s(1.0) is None
    assert pace.is_due(2, now=1.0)
    pace = settled_pace(0.01)
    assert not pace.is_due(2, now=0.001)
    assert pace.wait_s(0.001) == pytest.approx(CYCLE_REST * 0.01 - 0.001)
    assert pace.is_due(2, now=CYCLE_REST * 0.01)


def test_cycles_never_rest_long_and_are_swept_even_if_nothing_seems_to_have_changed():
    pace = settled_pace(60.0)
    pace.change()
    assert pace.is_due(1, now=LONGEST_REST_S)
    assert settled_pace(0.0).is_due(1, now=SWEEP_EVERY_S)


def test_key_that_fails_is_held_longer_each_time_but_a_lost_race_is_not():
    work: WorkQueue[str] = WorkQueue()
    assert work.retry("k", 0.0, is_race=True) == 0.0
    assert not work.is_free("k")
    assert work.wake(NOW, 0.0) == ["k"] and work.is_free("k")
    waits = []
    for _ in range(12):
        assert work.retry("k", 0.0)
        waits.append(next(at for at in (x / 10 for x in range(1, 100)) if work.wake(NOW, at)))
    assert waits == sorted(waits)
    assert waits[-1] == CAP_S
    work.forget("k")
    assert work.retry("k", 0.0, is_race=True) == 0.0


@pytest.mark.embedded
def test_everything_put_off_is_written_once_the_cluster_is_quiet():
    with Embedded("w1", webhooks=True) as world:
        place = world["w1"]
        place.create(*quota_objects(8), *(job(f"j{n}", gpus=8 - n, run_s=60) for n in range(4)))
        shift = world.start("w1", "admission")
        names = [f"j{n}" for n in range(4)]
        eventually(lambda: any(is_true(place.workload_of(name), "Admitted") for name in names))
        # Of different sizes: of equal ones that wait, only the first is tried and told.
        eventually(lambda: len([n for n in names if explained(place, n)]) == 3)
        eventually(lambda: pending(place) == 3)
        assert gc.get_freeze_count()
        shift.stop()
    assert not gc.get_freeze_count()


class Noting(AdmissionBody):
    """Notes the namespaces of the workloads that it looks at."""

    looked_at: set[str]

    def handle(self, key: str) -> None:
        if ":" not in key:
            self.looked_at.add(namespace_of(key))
        super().handle(key)


@pytest.mark.embedded
def test_news_of_one_workspace_has_its_own_workloads_looked_at_and_a_flavor_all():
    with Embedded("w1", webhooks=True) as world:
        place, bodies = world["w1"], list[Noting]()
        place.create(*quota_objects(2, namespace="a"))
        rest = [each for each in quota_objects(2, namespace="b") if not is_flavor(each)]
        place.create(*rest, *(job("j", namespace=name, run_s=60) for name in ("a", "b")))

        def noting(context: ShiftContext) -> Noting:
            bodies.append(Noting(context))
            bodies[0].looked_at = set()
            return bodies[0]

        world.start("w1", "admission", body=noting)

        def looked_at_after(change: Callable[[], object]) -> set[str]:
            time.sleep(1.0)
            bodies[0].looked_at.clear()
            change()
            eventually(lambda: bool(bodies[0].looked_at))
            time.sleep(1.0)
            return set(bodies[0].looked_at)

        def patch(resource: Resource, name: str, body: Document, namespace: str = "") -> None:
            place.client.patch(resource, name, body, namespace=namespace or None)

        for name in ("a", "b"):
            eventually(lambda name=name: is_true(place.workload_of("j", name), "Admitted"))
        hold = {"spec": {"stopPolicy": "Hold"}}
        assert looked_at_after(lambda: patch(r.CLUSTER_QUEUE, "a", hold)) == {"a"}
        assert looked_at_after(lambda: patch(r.LOCAL_QUEUE, "default", hold, "b")) == {"b"}
        marks = {"metadata": {"labels": {"team": "a"}}}
        assert looked_at_after(lambda: patch(r.NAMESPACE, "a", marks)) == {"a"}
        tolerations = [{"key": "gpu", "operator": "Exists"}]
        flavor = {"spec": {"tolerations": tolerations}}
        assert looked_at_after(lambda: patch(r.RESOURCE_FLAVOR, "host", flavor)) == {"a", "b"}


def is_flavor(document: Document) -> bool:
    return bool(document["kind"] == "ResourceFlavor")


def explained(place: Place, name: str) -> bool:
    shown = condition(place.workload_of(name), "QuotaReserved")
    return shown.get("status") == "False" and bool(shown.get("message"))


def pending(place: Place) -> int:
    (queue,) = place.all(r.CLUSTER_QUEUE)
    return int((queue.get("status") or {}).get("pendingWorkloads") or 0)
