"""The heartbeats of all shifts of a process, from one thread that lives as long as there are any.

Most processes work the shifts of one cluster, which have one registration: it is read once for all
that are due together. A shift that breaks here ends, and takes no other with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final, Protocol

import structlog
from django.db import DatabaseError, connection

from clusters.reconcile.context import Registered, registered
from clusters.reconcile.runtime import threads

log = structlog.stdlib.get_logger(__name__)

TICK_S: Final = 0.5
JOIN_S: Final = 10.0

Read = Callable[[str], Registered | None]


class Beating(Protocol):
    """A shift as its heart sees it."""

    slug: str
    role: str

    def look(self, now: float) -> bool:
        """Whether a heartbeat is due now (monotonic seconds)."""

    def beat(self, now: float, read: Read) -> None:
        """Say that it is alive; ``read`` gives a cluster's registration, None when it is gone."""

    def break_off(self) -> None:
        """It cannot go on, for it would keep its Lease and go by what it knew for ever."""


class Heart:
    """Beats for every shift of this process; safe to use from all of its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shifts: list[Beating] = []
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()

    @contextmanager
    def beating(self, shift: Beating) -> Iterator[None]:
        """Beats for a shift meanwhile; who leaves last waits for the thread to end."""
        with self._lock:
            self._shifts.append(shift)
            if self._thread is None:
                self._is_over = over = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(over,), name="heartbeats", daemon=True
                )
                threads.start(self._thread)
        try:
            yield
        finally:
            ended = None
            with self._lock:
                self._shifts.remove(shift)
                if not self._shifts:
                    ended, self._thread = self._thread, None
                    self._is_over.set()
            if ended is not None:
                ended.join(timeout=JOIN_S)

    def _run(self, over: threading.Event) -> None:
        try:
            while not over.wait(TICK_S):
                with self._lock:
                    shifts = list(self._shifts)
                self._turn(shifts)
        finally:
            connection.close()

    def _turn(self, shifts: list[Beating]) -> None:
        read = cache(registered)
        for shift in shifts:
            self._beat(shift, read)

    def _beat(self, shift: Beating, read: Read) -> None:
        try:
            now = time.monotonic()
            if shift.look(now):
                shift.beat(now, read)
        except DatabaseError as error:
            # The Lease still guards the cluster; without a heartbeat the row goes stale.
            log.warning(
                "heartbeat_failed", cluster=shift.slug, role=shift.role, error=type(error).__name__
            )
            connection.close()
        except MemoryError:
            raise  # it ends the process
        except Exception:
            log.exception("heartbeat_broke", cluster=shift.slug, role=shift.role)
            shift.break_off()
