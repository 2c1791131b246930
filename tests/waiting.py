"""Waiting for what threads, processes and servers do: one rule of how long, and how often to look.

Without a limit a condition is waited for generously, however loaded the machine is: it costs
nothing once it holds. A limit that is given is the limit. What the product promises to do within a
time is measured by the bench (``tests/perf/bench_reaction.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.1


def eventually(
    check: Callable[[], Any],
    *,
    seconds: float = PATIENCE_S,
    why: str | Callable[[], object] = "it did not happen",
) -> Any:
    """What the check returns once that is true.

    Args:
        check: Asked again and again, ever more seldom, for each look costs the others time.
        seconds: How long at most.
        why: What to say when it never is.

    Raises:
        AssertionError: it never was.
    """
    ends = time.monotonic() + seconds
    pause = _FIRST_PAUSE_S
    while not (found := check()):
        if time.monotonic() > ends:
            raise AssertionError(why() if callable(why) else why)
        time.sleep(pause)
        pause = min(pause * 1.3, _LONGEST_PAUSE_S)
    return found
