"""What the large batches of the ledger have in common, and is no business of what they compute."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def uncollected(work: Callable[P, R]) -> Callable[P, R]:
    """Let a function run without the collector of cyclic garbage.

    A batch makes objects by the hundred thousand, none of them in a cycle, and all live until it
    ends: the collector looks through them again and again and finds nothing. Reference counts
    free them as ever.
    """

    @wraps(work)
    def quietly(*args: P.args, **kwargs: P.kwargs) -> R:
        was_on = gc.isenabled()
        gc.disable()
        try:
            return work(*args, **kwargs)
        finally:
            if was_on:
                gc.enable()

    return quietly
