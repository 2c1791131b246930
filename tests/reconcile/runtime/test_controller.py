"""What a cluster tells, and how fast."""

from __future__ import annotations

import signal
import threading
import time
from types import SimpleNamespace

import pytest

from clusters.kube import resources as r
from clusters.reconcile.runtime import controller, watches
from clusters.reconcile.runtime.controller import Controller
from clusters.reconcile.runtime.faults import Faults
from clusters.reconcile.runtime.queue import WorkQueue
from clusters.reconcile.runtime.watches import Change, Inbox, Seen
from tests.waiting import PATIENCE_S, eventually


class Quiet(Controller[str]):
    """A controller without a cluster, of which only the inbox is looked at."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self._is_taking = True


class Slow(Controller[str]):
    """One that takes its time with each key, by a clock of its own, and hears of somebody else
    meanwhile."""

    def __init__(self) -> None:
        self.queue, self.faults = WorkQueue(), Faults("w1")
        self._unsure = {}
        self.handled: list[str] = []
        self.now = 0.0

    def handle(self, key: str) -> None:
        self.now += 0.02
        self.handled.append(key)


def test_a_turn_takes_in_what_came_before_it_has_handled_thousands(
    monkeypatch: pytest.MonkeyPatch,
):
    slow = Slow()
    monkeypatch.setattr(controller, "time", SimpleNamespace(monotonic=lambda: slow.now))
    slow.queue.add_all(f"crowd/{number}" for number in range(200))
    slow.handle_all()
    assert len(slow.handled) < 100 and slow.now < 2
    slow.queue.add("quiet/one")
    slow.handle_all()
    assert slow.handled.index("quiet/one") <= 101
    assert slow.queue.ready == 201 - len(slow.handled), "nobody is forgotten"


def event(number: int) -> Seen:
    return Seen(Change.UPSERT, "w1", r.JOB, {"metadata": {"name": f"job-{number}"}})


def test_a_cluster_that_tells_more_than_is_taken_in_is_slowed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(controller, "INBOX_LIMIT", 50)
    monkeypatch.setattr(watches, "BATCH", 30)
    quiet = Quiet()

    def flood() -> None:
        for number in range(10_000):
            quiet.tell(event(number))

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    eventually(lambda: len(quiet.inbox) >= 50)
    time.sleep(0.5)
    assert len(quiet.inbox) <= 52
    taken = quiet.inbox.take()
    eventually(lambda: len(quiet.inbox) >= 50)
    assert [seen.document["metadata"]["name"] for seen in taken] == [
        f"job-{number}" for number in range(30)
    ]
    quiet._is_taking = False  # the shift ends: nobody waits any more
    thread.join(30)
    assert not thread.is_alive()


def test_a_turn_ends_though_a_signal_is_handled_for_longer_than_it_waits():
    inbox: Inbox[str] = Inbox()
    signals: list[int] = []

    def handle(number: int, _: object) -> None:
        signals.append(number)
        if len(signals) == 1:
            time.sleep(0.3)
        else:
            inbox.put("what a signal much later brought")

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 5)
    try:
        assert inbox.take(wait_s=0.2) == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(signals) == 1


def test_what_comes_in_from_many_is_taken_whole_in_order_and_at_once():
    inbox: Inbox[tuple[int, int]] = Inbox()

    def tell(number: int) -> None:
        for count in range(500):
            inbox.put((number, count))
            if not count % 50:
                time.sleep(0.002)

    threads = [threading.Thread(target=tell, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    came: list[tuple[int, int]] = []
    begun = time.monotonic()
    while len(came) < 2_000:
        came += inbox.take(wait_s=PATIENCE_S)
    assert time.monotonic() - begun < PATIENCE_S, "it waited though something was there"
    for number in range(4):
        assert [count for teller, count in came if teller == number] == list(range(500))
