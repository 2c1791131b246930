"""One thread beats for all shifts of a process; it reads once, and nobody's fault is another's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import OperationalError

from clusters.reconcile import heartbeats
from clusters.reconcile.heartbeats import Heart, Read
from tests.waiting import eventually


class Shift:
    """One that is due with every look, and does what it is told."""

    def __init__(self, slug: str, role: str, does: Callable[[], Any] = lambda: None) -> None:
        self.slug, self.role, self._does = slug, role, does
        self.found: list[object] = []
        self.is_broken = False

    def look(self, now: float) -> bool:
        return not self.is_broken

    def beat(self, now: float, read: Read) -> None:
        self._does()
        self.found.append(read(self.slug))

    def break_off(self) -> None:
        self.is_broken = True


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The clusters whose registration was read, in order."""
    found: list[str] = []

    def read(slug: str) -> str:
        found.append(slug)
        return f"{slug} {len(found)}"

    monkeypatch.setattr(heartbeats, "registered", read)
    monkeypatch.setattr(heartbeats, "TICK_S", 0.01)
    return found


def test_shifts_of_a_cluster_that_are_due_together_read_its_registration_once(reads: list[str]):
    heart = Heart()
    quota, usage, other = Shift("east", "quota"), Shift("east", "usage"), Shift("west", "quota")
    heart._turn([quota, usage, other])
    assert reads == ["east", "west"]
    assert quota.found == usage.found == ["east 1"] and other.found == ["west 2"]
    heart._turn([quota])
    assert quota.found == ["east 1", "east 3"], "what was read lasts for one turn"


def test_a_shift_that_breaks_ends_and_the_others_go_on(reads: list[str]):
    def fail() -> None:
        raise RuntimeError("broken")

    heart, broken, sound = Heart(), Shift("east", "usage", fail), Shift("east", "quota")
    with heart.beating(broken), heart.beating(sound):
        eventually(lambda: broken.is_broken and len(sound.found) > 2)
    assert not sound.is_broken


def test_a_database_that_fails_ends_nobody(reads: list[str]):
    tries: list[None] = []

    def fail() -> None:
        tries.append(None)
        if len(tries) < 3:
            raise OperationalError("gone")

    shift = Shift("east", "quota", fail)
    with Heart().beating(shift):
        eventually(lambda: shift.found)
    assert len(tries) >= 3 and not shift.is_broken


def test_the_thread_lives_as_long_as_there_is_a_shift(reads: list[str]):
    heart, shifts = Heart(), [Shift("east", role) for role in ("quota", "usage", "spend")]
    threads = lambda: [t for t in threading.enumerate() if t.name == "heartbeats"]  # noqa: E731
    for _ in range(2):  # and one that begins later has a thread again
        with ExitStack() as stack:
            for shift in shifts:
                stack.enter_context(heart.beating(shift))
            assert len(threads()) == 1
        assert not threads()
