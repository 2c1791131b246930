"""Waiting for what a thread of a shift writes to the database."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.db import OperationalError

from tests.waiting import PATIENCE_S

PAUSE_S = 0.2


def stored(
    check: Callable[[], Any], *, seconds: float = PATIENCE_S, why: Any = "it was not stored"
) -> Any:
    """What the check returns once that is true.

    SQLite in memory locks a table against readers while it is written, and against writers while
    it is read: who waits looks seldom, and takes a lock for not yet.
    """
    ends = time.monotonic() + max(seconds, PATIENCE_S)
    while True:
        try:
            found = check()
        except OperationalError:
            found = None
        if found:
            return found
        if time.monotonic() > ends:
            raise AssertionError(why() if callable(why) else why)
        time.sleep(PAUSE_S)
