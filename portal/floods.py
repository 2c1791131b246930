"""Keeps one cluster from filling the log: of its lines of one kind so many a minute are written.

What is beyond is counted, and told in one line with the first line of any kind after that minute.
Lines that name no cluster pass.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog

log = structlog.stdlib.get_logger(__name__)

WINDOW_S: Final = 60.0
MOST: Final = 30
"""Lines of one kind about one cluster in a window."""
MOST_TOLD: Final = 300
"""The same of lines below a warning: what goes well is told more often."""
_Kind: TypeAlias = tuple[str, str]  # cluster, event


@dataclass(slots=True)
class _Count:
    written: int = 0
    left_out: int = 0


class Flood(logging.Filter):
    """Of a handler; safe from any thread. O(1) a line.

    Args:
        monotonic: Seconds of a clock that nobody sets.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._counts: dict[_Kind, _Count] = {}
        self._ends_at = monotonic() + WINDOW_S

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        is_written, over = True, {}
        with self._lock:
            now = self._monotonic()
            if now >= self._ends_at:
                over, self._counts, self._ends_at = self._counts, {}, now + WINDOW_S
            if (kind := _kind_of(record)) is not None:
                count = self._counts.setdefault(kind, _Count())
                most = MOST if record.levelno >= logging.WARNING else MOST_TOLD
                is_written = count.written < most
                count.written += is_written
                count.left_out += not is_written
        for (cluster, event), count in over.items():
            if count.left_out:
                log.warning("lines_left_out", of=event, cluster=cluster, count=count.left_out)
        return is_written


def _kind_of(record: logging.LogRecord) -> _Kind | None:
    """By names that the portal gave, so that there are not many."""
    told = record.msg
    if not isinstance(told, dict) or record.name == __name__:
        return None
    # A process of shifts says its place, ``CLUSTER/ROLE``.
    cluster = told.get("cluster") or told.get("place")
    return (str(cluster), str(told.get("event"))) if cluster else None
