"""Threads of a shift are told of before they start.

A thread's stack counts as memory of its process. Whoever limits that memory leaves room for the
threads that there are, and for those that are said to come; without it the start of one fails.
Source: Linux ``setrlimit(2)``, RLIMIT_DATA.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final


class Coming:
    """How many threads may start at any time.

    Attributes:
        on_more: Called, in any thread, before more of them come.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self.on_more: Callable[[], None] | None = None

    @property
    def count(self) -> int:
        """Those that were told of and did not start yet."""
        return self._count

    def add(self, threads: int) -> None:
        """So many come; or, below zero, so many have come, or never will."""
        with self._lock:
            self._count += threads
        if threads > 0 and self.on_more is not None:
            self.on_more()


COMING: Final = Coming()
"""Of this process, as its limit of memory is."""


def start(thread: threading.Thread) -> None:
    """Start a thread that has room for its stack."""
    COMING.add(1)
    try:
        thread.start()
    finally:
        COMING.add(-1)


class Executor(ThreadPoolExecutor):
    """Starts a thread when there is work for it, at any time: each has its room from now on.

    Args:
        threads: So many at most.
        name: Of the threads.
    """

    def __init__(self, threads: int, *, name: str) -> None:
        super().__init__(threads, thread_name_prefix=name, initializer=self._came)
        self._lock, self._missing = threading.Lock(), threads
        COMING.add(threads)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As the library's; those that never started need no room any more."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        with self._lock:
            missing, self._missing = self._missing, 0
        COMING.add(-missing)

    def _came(self) -> None:
        with self._lock:
            if not self._missing:  # it was closed meanwhile
                return
            self._missing -= 1
        COMING.add(-1)
