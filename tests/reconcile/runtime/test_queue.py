"""The work queue: what is handed out when, by tables and by a model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from clusters.reconcile.runtime.queue import RateLimiter, Timers, Turns, WorkQueue, namespace_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_keys_come_once_in_the_order_of_the_first_wish():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_all(["b", "a"])
    queue.add("b")
    queue.add("c")
    assert queue.ready == 3
    assert [queue.next(), queue.next()] == ["b", "a"]
    assert queue.take() == ["c"]
    assert not queue.ready and queue.next() is None


def test_what_happens_to_a_busy_key_is_handed_out_afterwards():
    queue: WorkQueue[str] = WorkQueue()
    queue.begin("a")
    queue.add("a")
    queue.add_all(["a", "b"])
    assert queue.take() == ["b"]
    assert queue.is_busy("a") and not queue.is_free("a") and queue.load == 1
    queue.done("a")
    assert queue.take() == ["a"] and queue.load == 0


def test_a_key_that_becomes_busy_while_it_is_ready_waits_for_its_answer():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.begin("a")
    assert queue.take() == []
    queue.done("a")
    assert queue.take() == ["a"]


def test_a_held_key_is_left_alone_until_its_time():
    queue: WorkQueue[str] = WorkQueue()
    queue.begin("a")
    assert queue.retry("a", 10.0) == pytest.approx(0.2)
    queue.add("a")
    queue.done("a")
    assert queue.take() == [] and not queue.is_free("a")
    assert queue.wait_s(10.0) == pytest.approx(0.2)
    assert queue.wake(NOW, 10.1) == []
    assert queue.wake(NOW, 10.3) == ["a"]
    assert queue.is_free("a") and queue.take() == ["a"]
    assert queue.wait_s(10.3) is None


def test_waits_grow_to_a_cap_and_end_with_a_success():
    limiter: RateLimiter[str] = RateLimiter(first_s=0.1, cap_s=5.0)
    waits = [limiter.failed("a") for _ in range(8)]
    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])
    assert limiter.failed("b") == pytest.approx(0.2), "others wait for their own failures"
    limiter.forget("a")
    assert limiter.failed("a") == pytest.approx(0.2)
    assert [limiter.failed("c", cap_s=60.0) for _ in range(40)][-1] == 60.0


def test_the_first_lost_race_costs_no_wait():
    queue: WorkQueue[str] = WorkQueue()
    assert queue.retry("a", 1.0, is_race=True) == 0.0
    assert not queue.is_free("a"), "it is held until time passes, so that it is read again first"
    assert queue.wake(NOW, 1.0) == ["a"]
    assert queue.retry("a", 1.0, is_race=True) == pytest.approx(0.4)


def test_a_wish_makes_a_key_ready_and_the_earlier_one_counts():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_at("a", NOW + timedelta(seconds=5))
    queue.add_at("a", NOW + timedelta(seconds=9))
    queue.add_at("b", NOW + timedelta(seconds=7))
    assert queue.wake(NOW + timedelta(seconds=4), 0.0) == [] and queue.take() == []
    queue.wake(NOW + timedelta(seconds=6), 0.0)
    assert queue.take() == ["a"]
    queue.wake(NOW + timedelta(seconds=60), 0.0)
    assert queue.take() == ["b"]


def test_nothing_is_remembered_of_a_key_that_is_gone():
    queue: WorkQueue[str] = WorkQueue()
    queue.retry("a", 0.0)
    queue.add("a")
    queue.add_at("a", NOW)
    queue.drop("a")
    assert queue.wake(NOW, 100.0) == [] and queue.take() == []
    assert queue.retry("a", 0.0) == pytest.approx(0.2)


@pytest.mark.parametrize("count", [1, 3])
def test_timers_tell_each_key_once(count: int):
    timers: Timers[str, float] = Timers()
    for _ in range(count):
        timers.set("a", 3.0)
    timers.set("b", 1.0)
    assert timers.next() == 1.0
    assert timers.due(5.0) == ["b", "a"]
    assert timers.due(5.0) == [] and timers.next() is None


class Model(RuleBasedStateMachine):
    """Whatever happens: no busy or held key is handed out, and no news of a key is lost."""

    keys = st.sampled_from("abcd")

    def __init__(self) -> None:
        super().__init__()
        self.queue: WorkQueue[str] = WorkQueue()
        self.moment = 0.0
        self.busy: set[str] = set()
        self.news: set[str] = set()

    @rule(key=keys)
    def happens(self, key: str) -> None:
        self.queue.add(key)
        self.news.add(key)

    @rule(key=keys)
    def starts(self, key: str) -> None:
        if self.queue.is_free(key):
            self.queue.begin(key)
            self.busy.add(key)

    @rule(key=keys, fails=st.booleans())
    def ends(self, key: str, fails: bool) -> None:
        if key in self.busy:
            self.busy.discard(key)
            self.queue.done(key)
            if fails:
                self.queue.retry(key, self.moment)
                self.news.add(key)
            else:
                self.queue.forget(key)

    @rule(seconds=st.floats(0, 6))
    def passes(self, seconds: float) -> None:
        self.moment += seconds
        self.queue.add_all(self.queue.wake(NOW, self.moment))

    @rule(count=st.integers(1, 4), most=st.integers(0, 4))
    def hands_out(self, count: int, most: int) -> None:
        for key in islice(iter(lambda: self.queue.next(most), None), count):
            assert self.queue.is_free(key)
            self.news.discard(key)

    @invariant()
    def knows_who_is_busy(self) -> None:
        assert set(self.queue.busy()) == self.busy

    def teardown(self) -> None:
        for key in list(self.busy):
            self.queue.done(key)
        self.queue.add_all(self.queue.wake(NOW, self.moment + 100))
        assert self.news <= set(self.queue.take())


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40)


CROWD = [*(f"crowd/{number}" for number in range(4)), "quiet/a", "Cohort:x", "quiet/b"]
IN_TURN = ["crowd/0", "quiet/a", "Cohort:x", "crowd/1", "quiet/b", "crowd/2", "crowd/3"]


def test_namespaces_take_turns():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_all(CROWD)
    assert queue.take() == IN_TURN
    turns: Turns[str] = Turns()
    for key in CROWD:
        turns.add(namespace_of(key), key)
    assert turns.remove("crowd", "crowd/1") and not turns.remove("crowd", "crowd/1")
    assert len(turns) == 6
    wanted = ["crowd/0", "quiet/a", "Cohort:x", "crowd/2", "quiet/b", "crowd/3"]
    assert list(iter(turns.next, None)) == wanted
    assert not turns.remove("quiet", "quiet/a") and not turns


def test_where_all_is_full_a_namespace_with_nothing_under_way_goes_on():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_all(CROWD)
    for _ in range(2):
        queue.begin(queue.next(2) or "")
    assert queue.next(2) == "Cohort:x"
    assert queue.next(2) is None, "crowd and quiet have their writes under way"
    queue.done("quiet/a")
    assert queue.load == 1
    assert queue.next(1) == "quiet/b" and queue.next(1) is None
    queue.done("crowd/0")
    assert queue.take() == ["crowd/1", "crowd/2", "crowd/3"]
