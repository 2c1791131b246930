"""How long a run of faults may take at most."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class OutOfTime(Exception):
    """The run takes longer than it may. No OSError: those are expected of a house in pieces."""


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Break off what takes longer; what it has started is ended by who started it.

    Raises:
        OutOfTime: it does.
    """

    def stop(*_: object) -> None:
        raise OutOfTime(f"The run did not end within {seconds:.0f} s.")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
