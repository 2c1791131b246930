"""Faults that tests and demonstrations switch on: slowness, errors, silence, refusal."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class PlannedError:
    """The next `count` requests that match are answered with this status code."""

    code: int
    count: int
    method: str = ""
    path: str = ""

    def matches(self, method: str, path: str) -> bool:
        if self.count <= 0 or (self.method and self.method != method):
            return False
        return not self.path or re.search(self.path, path) is not None


class InjectedFaults:
    """What is broken at the moment; safe to change while requests run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._errors: list[PlannedError] = []
        self._thawed = threading.Event()
        self._thawed.set()
        self.latency_s = 0.0
        self.is_refusing = False

    def fail(self, code: int, *, count: int = 1, method: str = "", path: str = "") -> None:
        """Answers the next `count` matching requests with `code`; `path` is a pattern to search."""
        with self._lock:
            self._errors.append(PlannedError(code, count, method, path))

    def freeze(self) -> None:
        """Connections are accepted and then nothing is answered, until `thaw`."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def clear(self) -> None:
        """Everything works again."""
        with self._lock:
            self._errors.clear()
        self.latency_s, self.is_refusing = 0.0, False
        self._thawed.set()

    def wait_while_frozen(self) -> None:
        self._thawed.wait()

    def before(self, method: str, path: str) -> int:
        """Waits as long as the faults ask for; the status code to fail with, or 0."""
        self._thawed.wait()
        if self.latency_s:
            time.sleep(self.latency_s)
        with self._lock:
            for error in self._errors:
                if error.matches(method, path):
                    error.count -= 1
                    return error.code
        return 0

    def set(self, wish: Mapping[str, Any]) -> None:
        """Faults as the admin address takes them: latency_s, refuse, freeze, errors, clear."""
        if wish.get("clear"):
            self.clear()
        self.latency_s = float(wish.get("latency_s", self.latency_s))
        self.is_refusing = bool(wish.get("refuse", self.is_refusing))
        for error in wish.get("errors") or []:
            self.fail(**error)
        if "freeze" in wish:
            (self.freeze if wish["freeze"] else self.thaw)()
