"""A gate for shifts that begin: where too many begin at once, none gets on.

A shift that begins reads whole lists and works out all that it knows anew. On a machine that is too
small for its fleet, many of them at once keep the processors from those that already work: these
lose their Leases, begin again, and make it worse. So the shifts of a worker begin a few at a time,
and a fleet that is too large becomes slow instead.

A place is an advisory lock on a file: it is free again when its process ends, however it ends. A
cluster that hangs keeps none for longer than :data:`KEEPS_S`.

Source: Linux ``flock(2)``.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

PLACES: Final = 4 * (os.cpu_count() or 1)
"""So many shifts of a worker begin at once."""
KEEPS_S: Final = 5.0
"""So long a shift has its place, though it still begins: its cluster may hang."""
WAITS_S: Final = 60.0
"""So long it waits for one; then it begins all the same."""
_POLL_S: Final = 0.2


class Place:
    """A place that a shift has while it begins; safe to use from all of its threads."""

    def __init__(self, descriptor: int | None) -> None:
        self._lock = threading.Lock()
        self._descriptor = descriptor
        self._until = time.monotonic() + KEEPS_S

    @property
    def is_mine(self) -> bool:
        """Whether it has one, and has not left it."""
        return self._descriptor is not None

    def leave(self) -> None:
        """Let the next one begin; once is enough."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def leave_if_late(self) -> None:
        """Let the next one begin although this one still does."""
        if self.is_mine and time.monotonic() > self._until:
            self.leave()


class Gate:
    """Lets a few begin at a time, in all processes that know its folder.

    Args:
        folder: For its locks.
        places: How many begin at once.
    """

    def __init__(self, folder: Path, *, places: int = PLACES) -> None:
        self._files = [folder / str(number) for number in range(places)]

    @contextmanager
    def passing(self, stop: threading.Event) -> Iterator[Place]:
        """Wait for a place; go on without one after :data:`WAITS_S`, or when told to stop."""
        ends, descriptor = time.monotonic() + WAITS_S, self._try()
        while descriptor is None and time.monotonic() < ends and not stop.wait(_POLL_S):
            descriptor = self._try()
        place = Place(descriptor)
        try:
            yield place
        finally:
            place.leave()

    def _try(self) -> int | None:
        for file in self._files:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            else:
                return descriptor
        return None


_lock = threading.Lock()
_folder: TemporaryDirectory[str] | str | None = None


def folder() -> str:
    """Where the gate of this worker is; made when first asked for."""
    global _folder
    with _lock:
        if _folder is None:
            _folder = TemporaryDirectory(prefix="shifts-begin-")
        return _folder if isinstance(_folder, str) else _folder.name


def share(of_worker: str) -> None:
    """In a process of the worker: pass its gate."""
    global _folder
    _folder = of_worker


def gate() -> Gate:
    """The gate of this worker."""
    return Gate(Path(folder()))
