"""Celery's beat, for machines whose wall clock somebody sets, and for several processes of it.

Celery keeps when a task was sent last, and when it is due, by the wall clock: one that was ahead
for a moment and is set back leaves tasks waiting until that time comes round again. It remembers
that in a shelf that is written in place: one that a kill or a full disk leaves half written ends
each beat that reads it. Ours is written beside and moved into place, and missed by nobody for long.

Any number of processes may run beat; the one with the lease sends. The lease is a row of the
database and not a lock in Redis (celery-redbeat): Redis may lose all its data at any time, and two
would then send. It is not a lock of a database session either, which a stopped process keeps.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import structlog
from celery.beat import Scheduler
from django import db
from django.db.models import Q
from django.db.models.functions import Now

from portal.celery import touch_heartbeat

log = structlog.stdlib.get_logger(__name__)

LEAP_S: Final = 5.0
LEASE_S: Final = 15.0
"""So long after the holder's last renewal another process takes over."""
RENEW_S: Final = LEASE_S / 5
"""Between two renewals; who waits for the lease asks as often."""
MARGIN_S: Final = LEASE_S / 5
"""The holder sends nothing in the last seconds of its lease: what it began to send has to be sent
before somebody else begins. One that is stopped in the middle of sending still sends that one
message when it goes on; each task bears to be sent twice."""


class SteadyScheduler(Scheduler):  # type: ignore[misc]  # celery has no types
    """Moves what it remembers along with a wall clock that was set, or that it finds set back.

    Args:
        schedule_filename: Where it remembers, from one process to the next, when each task was sent
            last. Without it, or where it cannot be read, each is due after its own time again.
    """

    steady: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, *args: Any, schedule_filename: str, **kwargs: Any) -> None:
        self._ahead_s: float | None = None
        self._file = Path(schedule_filename)
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """As Celery's, with the times that were stored."""
        super().setup_schedule()
        for name, sent_at in self._stored().items():
            if name in self.schedule:
                self.schedule[name].last_run_at = sent_at

    def _stored(self) -> Mapping[str, datetime]:
        try:
            told = json.loads(self._file.read_bytes())
            return {name: datetime.fromisoformat(at).astimezone(UTC) for name, at in told.items()}
        except FileNotFoundError:
            return {}
        except Exception as error:  # whatever is in it, and whatever keeps it from being read
            log.warning("beat_file_not_read", file=str(self._file), says=str(error))
            return {}

    def sync(self) -> None:
        """Store when each task was sent last."""
        told = {name: entry.last_run_at.isoformat() for name, entry in self.schedule.items()}
        beside = self._file.with_name(self._file.name + ".new")
        try:
            beside.write_text(json.dumps(told))
            beside.replace(self._file)
        except OSError as error:
            log.warning("beat_file_not_written", file=str(self._file), says=str(error))

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """As Celery's, after a look at the clocks."""
        now = self.app.now()
        ahead_s = now.timestamp() - self.steady()
        leap_s = 0.0 if self._ahead_s is None else ahead_s - self._ahead_s
        if self._ahead_s is None or abs(leap_s) > LEAP_S:
            self._ahead_s = ahead_s
            self._move(timedelta(seconds=leap_s), latest=now)
        return super().tick(*args, **kwargs)

    def _move(self, leap: timedelta, *, latest: Any) -> None:
        for entry in self.schedule.values():
            last = entry.last_run_at
            if last is not None:
                entry.last_run_at = min(last + leap, latest.astimezone(last.tzinfo))
        # What is due when is worked out anew from these times.
        self._heap = None
        if leap:
            log.warning("clock_was_set", by_s=round(leap.total_seconds()))


class BeatLease:
    """One process's hold on the lease.

    Ages in the database are taken by its own clock. The holder counts from before it asked, by its
    monotonic clock: however late an answer comes, or the process wakes up, its time is over first.

    Args:
        name: Of this process among those that run at a time; one that is started again under it
            succeeds its predecessor at once.
    """

    monotonic: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, name: str) -> None:
        self.name = name[-250:]
        self._holder = f"{self.name} {uuid.uuid4().hex}"
        self._until = self._ask_at = float("-inf")
        self._is_first = self._has_sent = True
        self._is_asking = False

    def is_held(self) -> bool:
        """Whether this process may send now."""
        return self.monotonic() < self._until

    def note_sent(self) -> None:
        """A task has reached the broker."""
        self._has_sent = True

    def ask(self) -> None:
        """Take the lease, or renew it, when it is time.

        A holder that has sent nothing since its last renewal does not renew: the broker may be out
        of reach for it alone. It then stands back for as long as another one needs to take over.
        """
        now = self.monotonic()
        if now < self._ask_at:
            return
        if self._has_sent:
            self._ask_at = now + RENEW_S
            if self._is_taken():
                self._until = now + LEASE_S - MARGIN_S
                self._has_sent = False
        elif not self.is_held():
            self._ask_at = self._until + MARGIN_S + 2 * RENEW_S
            self._has_sent = True

    def _is_taken(self) -> bool:
        from clusters.models import BeatLease as Row

        is_ours = Q(holder=self._holder)
        if self._is_first:
            is_ours |= Q(holder__startswith=f"{self.name} ")
        is_over = Q(renewed_at__lt=Now() - timedelta(seconds=LEASE_S))
        ours: dict[str, Any] = {"holder": self._holder, "renewed_at": Now()}
        self._is_asking = True
        try:
            db.close_old_connections()
            taken = bool(Row.objects.filter(is_ours | is_over).update(**ours))
            if not taken:
                _, taken = Row.objects.get_or_create(pk=Row.ONLY, defaults=ours)
        except db.Error as error:
            log.warning("beat_without_database", says=str(error))
            return False
        finally:
            self._is_asking = False
        self._is_first = False
        return taken

    def give_back(self) -> None:
        """Let another one take over at once; a signal may call it in the middle of anything."""
        from clusters.models import BeatLease as Row

        self._until = float("-inf")
        if self._is_asking:
            return
        try:
            Row.objects.filter(holder=self._holder).delete()
        except db.Error as error:
            log.warning("beat_without_database", says=str(error))


class OneOfMany(SteadyScheduler):
    """Sends while it has the lease, and waits for it otherwise."""

    def __init__(self, *args: Any, schedule_filename: str, **kwargs: Any) -> None:
        # No two on one machine have the same schedule file.
        self.lease = BeatLease(f"{socket.gethostname()}:{os.path.abspath(schedule_filename)}")
        self._sends = False
        super().__init__(*args, schedule_filename=schedule_filename, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """As Celery's for the holder; seconds until the next turn.

        What was due while this process waited is sent once when it takes over.
        """
        touch_heartbeat()
        self.lease.ask()
        sends = self.lease.is_held()
        if sends != self._sends:
            self._sends = sends
            if sends:
                log.info("beat_sends", lease=self.lease.name)
            else:
                log.info("beat_waits", lease=self.lease.name)
        return super().tick(*args, **kwargs) if sends else RENEW_S / 3

    def apply_async(self, entry: Any, *args: Any, **kwargs: Any) -> Any:
        """As Celery's, unless the lease ran out since the loop's turn began."""
        if not self.lease.is_held():
            log.warning("beat_is_late", task=entry.task)
            return None
        sent = super().apply_async(entry, *args, **kwargs)
        self.lease.note_sent()
        return sent

    def close(self) -> None:
        """As Celery's; the next one need not wait until the lease ends."""
        super().close()
        self.lease.give_back()
