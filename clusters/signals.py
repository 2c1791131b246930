"""What a process does when it is told to end: an event is set, and whoever works looks at it."""

from __future__ import annotations

import queue
import signal
import threading


def end_of(*numbers: signal.Signals) -> threading.Event:
    """An event that is set by the first of these signals.

    A signal's handler runs in the main thread, between any two of its steps: also where it has just
    taken the lock of the event that it waits for, and would wait for itself if the handler set it.
    So another thread sets it, and is told by a queue that may be put into at any moment.

    Args:
        numbers: Taken over for this process; call it in the main thread.
    """
    told: queue.SimpleQueue[int] = queue.SimpleQueue()
    over = threading.Event()

    def follow() -> None:
        told.get()
        over.set()

    threading.Thread(target=follow, name="signals", daemon=True).start()
    for number in numbers:
        signal.signal(number, lambda received, _: told.put(received))
    return over
