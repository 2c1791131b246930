"""What the admission shift puts off, for how long, and that nothing is put off for good."""

from __future__ import annotations

import gc

import pytest

from clusters.errors import Conflict, Refusal, ServerFault
from clusters.kube import resources as r
from clusters.reconcile.admission.held import RETRY_CAP_S, Held
from clusters.reconcile.admission.patience import (
    CYCLE_REST,
    LONGEST_REST_S,
    PASS_EVERY_S,
    QUIET_AFTER_S,
    REST,
    SWEEP_EVERY_S,
    CyclePace,
    Patience,
)
from tests.reconcile.admission_harness import (
    Embedded,
    Place,
    condition,
    is_true,
    job,
    quota_objects,
)
from tests.waiting import eventually


def test_writes_that_can_wait_go_one_at_a_time_queues_and_workloads_in_turn():
    patience = Patience()
    patience.add(["ns/a", "ns/b", "ns/a"])
    patience.begin_pass(["ClusterQueue:x", "LocalQueue:ns/x"], now=0)
    taken = []
    now = 10.0
    while patience.wait_s(now) is not None:
        assert patience.wait_s(now) == 0
        key = patience.next()
        patience.sent(key, now=now)
        assert patience.wait_s(now) is None
        assert not patience.answered("ns/other", now=now)
        now += 0.01
        assert patience.answered(key, now=now)
        taken.append(key)
    assert taken == ["ClusterQueue:x", "ns/a", "LocalQueue:ns/x", "ns/b"]
    assert patience.next() == ""


def test_writes_that_can_wait_rest_while_decisions_are_written():
    patience = Patience()
    patience.add(["ns/a", "ns/b"])
    patience.note_haste(10.0)
    patience.sent(patience.next(), now=10.0)
    patience.answered("ns/a", now=10.04)
    assert patience.wait_s(10.04) == pytest.approx(REST * 0.04)
    assert patience.wait_s(10.04 + REST * 0.04) == pytest.approx(0)


def test_writes_that_can_wait_follow_at_once_on_a_quiet_cluster():
    patience = Patience()
    patience.add(["ns/a", "ns/b"])
    patience.note_haste(10.0)
    patience.sent(patience.next(), now=10.0 + QUIET_AFTER_S)
    patience.answered("ns/a", now=10.1 + QUIET_AFTER_S)
    assert patience.wait_s(10.1 + QUIET_AFTER_S) == 0


def test_pass_over_the_queues_begins_when_the_last_is_over_and_a_while_ago():
    patience = Patience()
    assert patience.is_pass_due(0.0)
    patience.begin_pass(["ClusterQueue:x"], now=0.0)
    assert not patience.is_pass_due(PASS_EVERY_S)
    assert patience.next() == "ClusterQueue:x"
    assert not patience.is_pass_due(PASS_EVERY_S / 2)
    assert patience.is_pass_due(PASS_EVERY_S)


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
    held = Held()
    assert held.failed("k", Conflict(Refusal("somebody was quicker")), now=0.0)
    assert "k" in held
    assert held.due(0.0) == ["k"] and "k" not in held
    waits = []
    for _ in range(12):
        assert not held.failed("k", ServerFault(Refusal("busy")), now=0.0)
        waits.append(next(at for at in (x / 10 for x in range(1, 100)) if held.due(at)))
    assert waits == sorted(waits)
    assert waits[-1] == RETRY_CAP_S
    held.succeeded("k")
    assert held.failed("k", Conflict(Refusal("somebody was quicker")), now=0.0)


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


def explained(place: Place, name: str) -> bool:
    shown = condition(place.workload_of(name), "QuotaReserved")
    return shown.get("status") == "False" and bool(shown.get("message"))


def pending(place: Place) -> int:
    (queue,) = place.all(r.CLUSTER_QUEUE)
    return int((queue.get("status") or {}).get("pendingWorkloads") or 0)
