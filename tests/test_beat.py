"""Beat on a machine whose wall clock somebody sets: nothing waits until that time comes again.

And several of them: one sends, and another one soon after it has gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from celery import Celery
from celery.beat import Scheduler, SchedulingError
from django.db import OperationalError
from django.db.models import F

from clusters.models import BeatLease as Row
from portal.beat import LEASE_S, MARGIN_S, RENEW_S, BeatLease, OneOfMany, SteadyScheduler

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


# What it remembers from one process to the next.


@pytest.fixture
def app() -> Iterator[Celery]:
    with Celery("beat-that-remembers", set_as_current=False) as app:
        app.conf.beat_schedule = {"daily": {"task": "a.task", "schedule": 86_400.0}}
        yield app


def test_beat_remembers_when_a_task_was_sent_last(app: Celery, tmp_path: Path) -> None:
    name = str(tmp_path / "schedule")
    beat = Sender(app, schedule_filename=name)
    beat.schedule["daily"].last_run_at = NOON
    beat.close()
    assert Sender(app, schedule_filename=name).schedule["daily"].last_run_at == NOON


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"daily": "2026-03-02T1', id="cut off"),
        pytest.param(b'{"daily": 7}', id="a number"),
        pytest.param(b'{"daily": "noon"}', id="no time"),
        pytest.param(b'{"daily": "0001-01-01T00:00:00+14:00"}', id="before all times"),
        pytest.param(b"[1]", id="a list"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"\0\xff\xfe", id="of another program"),
    ],
)
def test_beat_begins_whatever_its_file_holds(app: Celery, tmp_path: Path, found: bytes) -> None:
    file = tmp_path / "schedule"
    file.write_bytes(found)
    beat = Sender(app, schedule_filename=str(file))
    assert datetime.now(UTC) - beat.schedule["daily"].last_run_at < timedelta(minutes=1)
    beat.close()
    assert Sender(app, schedule_filename=str(file)).schedule == beat.schedule


def test_beat_goes_on_where_its_file_cannot_be_written(app: Celery, tmp_path: Path) -> None:
    beat = Sender(app, schedule_filename=str(tmp_path / "no folder" / "schedule"))
    beat.schedule["daily"].last_run_at = NOON
    beat.close()
    beat.tick()
    assert beat.sent == 1


def test_beat_that_is_cut_off_while_it_writes_keeps_what_it_had(
    app: Celery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(tmp_path / "schedule")
    beat = Sender(app, schedule_filename=name)
    beat.schedule["daily"].last_run_at = NOON
    beat.close()

    def half(self: Path, text: str) -> None:
        self.write_bytes(text.encode()[:9])
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    beat.schedule["daily"].last_run_at = NOON + timedelta(days=1)
    beat.close()
    assert Sender(app, schedule_filename=name).schedule["daily"].last_run_at == NOON


# Several of them.


class Standing:
    """One of several beats, on a machine whose monotonic clock stands still unless told."""

    def __init__(self, app: Celery, folder: Path, name: str) -> None:
        self.at = 1_000.0
        self.beat = OneOfMany(app, schedule_filename=str(folder / name))
        self.beat.lease.monotonic = lambda: self.at

    def turn(self) -> int:
        """How many tasks one look at everything that is due sends."""
        before = len(SENT)
        for entry in self.beat.schedule.values():
            entry.last_run_at = NOON
        self.beat._heap = None
        self.beat.tick()
        return len(SENT) - before


SENT: list[str] = []


@pytest.fixture
def pair(
    db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Standing, Standing]]:
    def send(self: OneOfMany, entry, **kwargs):  # type: ignore[no-untyped-def]
        SENT.append(entry.task)

    # It would end the test's transaction.
    monkeypatch.setattr("django.db.close_old_connections", lambda: None)
    monkeypatch.setattr(Scheduler, "apply_async", send)
    monkeypatch.setattr(OneOfMany, "producer", None)
    with Celery("beats-of-a-test", set_as_current=False) as app:
        app.conf.beat_schedule = {"often": {"task": "a.task", "schedule": EVERY_S}}
        both = Standing(app, tmp_path, "one"), Standing(app, tmp_path, "other")
        yield both
        for each in both:
            each.beat.close()


def age(seconds: float) -> None:
    """So much time passes in the database."""
    Row.objects.update(renewed_at=F("renewed_at") - timedelta(seconds=seconds))


def test_one_of_several_beats_sends(pair: tuple[Standing, Standing]) -> None:
    one, other = pair
    for _ in range(5):
        assert (one.turn(), other.turn()) == (1, 0)
        one.at += RENEW_S
        other.at += RENEW_S


def test_beat_that_renews_no_more_is_taken_over_and_sends_nothing_when_it_wakes_up(
    pair: tuple[Standing, Standing],
) -> None:
    one, other = pair
    assert one.turn() == 1
    age(LEASE_S - 1)
    assert other.turn() == 0
    age(2)
    other.at += RENEW_S
    assert other.turn() == 1
    one.at += LEASE_S + 1
    for _ in range(5):
        assert (one.turn(), other.turn()) == (0, 1)
        one.at += RENEW_S
        other.at += RENEW_S


def test_beat_stops_by_its_own_clock_before_another_one_may_begin(
    pair: tuple[Standing, Standing], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where it cannot ask, or was stopped between its question and the send."""
    one, _ = pair
    assert one.turn() == 1
    late = LEASE_S - MARGIN_S
    tick = SteadyScheduler.tick

    def stops_first(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        one.at += late
        return tick(self, *args, **kwargs)

    monkeypatch.setattr(SteadyScheduler, "tick", stops_first)
    assert one.turn() == 0
    assert not one.beat.lease.is_held()


def test_beat_counts_its_lease_from_before_it_asked(
    pair: tuple[Standing, Standing], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = pair
    taken = BeatLease._is_taken

    def answers_late(self: BeatLease) -> bool:
        found = taken(self)
        one.at += LEASE_S
        return found

    monkeypatch.setattr(BeatLease, "_is_taken", answers_late)
    assert one.turn() == 0


def test_beat_without_its_database_sends_until_its_lease_ends(
    pair: tuple[Standing, Standing], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = pair
    assert one.turn() == 1

    def away() -> None:
        raise OperationalError("the database is away")

    monkeypatch.setattr("django.db.close_old_connections", away)
    sent = 0
    while one.at < 1_000.0 + LEASE_S:
        one.at += 1
        sent += one.turn()
    assert sent == LEASE_S - MARGIN_S - 1


def test_beat_that_reaches_no_broker_lets_another_one_take_over(
    pair: tuple[Standing, Standing], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    assert one.turn() == 1
    working = Scheduler.apply_async

    def fails(self: OneOfMany, entry, **kwargs):  # type: ignore[no-untyped-def]
        if self is one.beat:
            raise SchedulingError("the broker is away")
        return working(self, entry, **kwargs)

    monkeypatch.setattr(Scheduler, "apply_async", fails)
    waited = 0
    while other.turn() == 0:
        assert one.turn() == 0
        waited += 1
        assert waited < LEASE_S + 2 * RENEW_S + 1
        one.at += 1
        other.at += 1
        age(1)
    assert waited >= LEASE_S
    for _ in range(10):
        one.at += RENEW_S
        assert one.turn() == 0


def test_beat_that_ends_gives_its_lease_back(pair: tuple[Standing, Standing]) -> None:
    one, other = pair
    assert (one.turn(), other.turn()) == (1, 0)
    one.beat.close()
    other.at += RENEW_S
    assert other.turn() == 1


def test_beat_that_is_started_again_succeeds_its_predecessor_at_once(
    pair: tuple[Standing, Standing], tmp_path: Path
) -> None:
    one, other = pair
    assert one.turn() == 1
    again = Standing(one.beat.app, tmp_path, "one")
    assert (again.turn(), other.turn()) == (1, 0)
    one.at += RENEW_S
    one.turn()
    one.at += LEASE_S
    assert one.turn() == 0


def test_beat_touches_its_file_with_each_turn_with_and_without_the_lease(
    pair: tuple[Standing, Standing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "heartbeat"
    monkeypatch.setenv("PORTAL_HEARTBEAT_FILE", str(file))
    for each in pair:
        each.turn()
        assert file.exists()
        file.unlink()
