"""The recorder: events are bounded, told once where that is asked, and never in anybody's way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.errors import AlreadyExists, Forbidden, LeaseLost, Refusal
from clusters.reconcile.runtime import recorder as recording
from clusters.reconcile.runtime.recorder import (
    BURST,
    PER_S,
    QUEUE_LIMIT,
    Event,
    Recorder,
    Reference,
)
from clusters.reconcile.runtime.writer import Writer
from tests.waiting import eventually

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
ABOUT = Reference("kueue.x-k8s.io/v1beta2", "Workload", "team", "job-train-12345", "u1")


class Sink:
    """A cluster that keeps what is made there, or refuses it."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.made: list[dict[str, Any]] = []
        self._refusal = refusal

    def create(self, resource: object, document: dict[str, Any], **more: object) -> dict[str, Any]:
        self.made.append(document)
        if self._refusal is not None:
            raise self._refusal
        return document


def recorder(client: Any, *, may_write: bool = True, fence=lambda: None, clock=lambda: 0.0):
    writer = Writer(client, cluster="east", fence=fence, may_write=lambda: may_write)
    return Recorder(writer, cluster="east", now=lambda: NOW, monotonic=clock)


def event(message: str = "It starts.", **more: Any) -> Event:
    return Event(ABOUT, "Started", message, **more)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread takes events out."""
    monkeypatch.setattr(recording.Recorder, "_run", lambda self: None)


def test_events_come_in_a_burst_and_then_at_a_rate():
    moment = [0.0]
    spoken = recorder(Sink(), clock=lambda: moment[0])
    assert [spoken.pause_s() for _ in range(BURST)] == [0.0] * BURST
    assert spoken.pause_s() == pytest.approx(1 / PER_S)
    assert spoken.pause_s() == pytest.approx(2 / PER_S)
    moment[0] = 60.0
    assert spoken.pause_s() == 0.0


def test_more_events_than_fit_are_dropped_without_waiting(silent: None):
    spoken = recorder(Sink())
    spoken.record(event(f"It starts, {number}.") for number in range(QUEUE_LIMIT + 5))
    assert spoken.dropped == 5


def test_an_event_that_waits_is_not_queued_twice(silent: None):
    spoken = recorder(Sink())
    spoken.record([event()] * (QUEUE_LIMIT + 5))
    assert spoken.dropped == 0
    assert spoken._queue.qsize() == 1


def test_what_is_told_once_is_told_once_also_by_another_shift():
    client = Sink()
    once = event(is_once=True)
    first = recorder(client)
    first.record([once])
    eventually(lambda: client.made)
    first.record([once])
    first.close()
    assert once in first._told
    assert len(client.made) == 1
    # The next shift does not know; the name is the same, so the cluster refuses it quietly.
    again = Sink(AlreadyExists(Refusal("there")))
    recorder(again).write(once)
    assert again.made[0]["metadata"]["name"] == client.made[0]["metadata"]["name"]


def test_events_that_may_come_again_have_names_of_their_own():
    assert event().name != event().name
    assert event(is_once=True).name == event(is_once=True).name != event("x", is_once=True).name


@pytest.mark.parametrize(
    ("may_write", "fence_falls", "want"),
    [
        pytest.param(True, False, 1, id="may write"),
        pytest.param(False, False, 0, id="writing is switched off"),
        pytest.param(True, True, 0, id="another process has the lease"),
    ],
)
def test_events_respect_switch_and_fence(may_write, fence_falls, want):
    def fence() -> None:
        if fence_falls:
            raise LeaseLost(Refusal("lost"))

    client = Sink()
    recorder(client, may_write=may_write, fence=fence).write(event())
    assert len(client.made) == want


def test_cluster_that_refuses_events_is_not_asked_each_time():
    client = Sink(Forbidden(Refusal("no events for you")))
    spoken = recorder(client)
    spoken.write(event())
    spoken.write(event("Something else."))
    assert len(client.made) == 1


def test_a_message_is_cut_to_what_an_event_may_say():
    said = event("x" * 5000).document(now=NOW)
    assert len(said["message"]) <= 1024
    assert said["type"] == "Normal"
    assert event(is_warning=True).document(now=NOW)["type"] == "Warning"
