"""Kills shifts between any two writes, each kind of write once before and once after it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from clusters.reconcile.runtime.writer import Moment, Write
from tests.reconcile.admission_harness import Embedded, RunningShift
from tests.waiting import PATIENCE_S


class Killed(BaseException):
    """The process is gone; nothing after this point happened."""


class Reaper:
    """Restarts shifts that it killed; a context manager that ends them all."""

    def __init__(self, fleet: Embedded) -> None:
        self._fleet = fleet
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.killed_at: list[tuple[Moment, str, str]] = []
        self.errors: list[BaseException] = []

    def __enter__(self) -> Reaper:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert not self.errors, self.errors

    def keep_alive(self, name: str, role: str, body: Callable[..., Any], **start: Any) -> None:
        """Runs a shift, and another one each time it was killed."""
        thread = threading.Thread(target=self._run, args=(name, role, body, start), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, name: str, role: str, body: Callable[..., Any], start: dict[str, Any]) -> None:
        while not self._stop.is_set():
            shift: RunningShift = self._fleet.start(
                name, role, body=lambda context: body(context, hook=self._hook(role)), **start
            )
            while not shift.is_over and not self._stop.wait(0.02):
                pass
            if self._stop.is_set():
                shift.stop()
            if shift.error is not None and not isinstance(shift.error, Killed):
                self.errors.append(shift.error)
                return

    def _hook(self, role: str) -> Callable[[Moment, str, Write], None]:
        dead = threading.Event()

        def hook(moment: Moment, cluster: str, write: Write) -> None:
            if dead.is_set():
                # Other threads of the process die with it.
                raise Killed
            point = moment, f"{role}@{cluster}", write.step
            with self._lock:
                if point in self.killed_at:
                    return
                self.killed_at.append(point)
            dead.set()
            raise Killed

        return hook
