"""For processes under libfaketime, whose clock_nanosleep refuses Python's sleep with EINVAL."""

from __future__ import annotations

import select
import time


def sleep(seconds: float) -> None:
    """The same, by another call of the system, which measures by the steady clock as well."""
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = sleep
