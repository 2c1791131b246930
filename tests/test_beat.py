"""Beat on a machine whose wall clock somebody sets: nothing waits until that time comes again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from celery import Celery

from portal.beat import SteadyScheduler

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
EVERY_S = 2.0


class Machine:
    """Two clocks, of which somebody sets one."""

    set_by = timedelta(0)
    passed_s = 0.0

    def wall(self) -> datetime:
        return NOON + timedelta(seconds=self.passed_s) + self.set_by

    def steady(self) -> float:
        return self.passed_s


class Sender(SteadyScheduler):
    """Counts instead of sending."""

    sent = 0

    def apply_async(self, entry, producer=None, advance=True, **kwargs):  # type: ignore[no-untyped-def]
        self.sent += 1

    @property
    def producer(self) -> None:
        return None


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def beat(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sender]:
    with Celery("beat-of-a-test", set_as_current=False) as app:
        app.conf.beat_schedule = {"often": {"task": "a.task", "schedule": EVERY_S}}
        monkeypatch.setattr(app, "now", machine.wall)
        beat = Sender(app, schedule_filename=str(tmp_path / "schedule"), lazy=True)
        beat.steady = machine.steady
        beat.setup_schedule()
        for entry in beat.schedule.values():
            entry.schedule.nowfun = machine.wall
        yield beat
        beat.close()


def run(beat: Sender, machine: Machine, seconds: int) -> int:
    """How many were sent in a time."""
    before = beat.sent
    for _ in range(seconds):
        machine.passed_s += 1
        beat.tick()
        beat.tick()
    return beat.sent - before


@pytest.mark.parametrize("leap", [timedelta(minutes=10), timedelta(minutes=-10)])
def test_clock_that_is_set_and_set_back_keeps_the_pace(
    beat: Sender, machine: Machine, leap: timedelta
) -> None:
    assert run(beat, machine, 10) in (4, 5, 6)
    machine.set_by = leap
    assert run(beat, machine, 10) in (4, 5, 6)
    machine.set_by = timedelta(0)
    assert run(beat, machine, 10) in (4, 5, 6)


def test_schedule_of_a_machine_that_was_ahead_holds_nothing_up(
    beat: Sender, machine: Machine
) -> None:
    for entry in beat.schedule.values():
        entry.last_run_at = machine.wall() + timedelta(minutes=10)
    assert run(beat, machine, 10) in (4, 5, 6)
