"""Counts of what people do, in Redis, over all processes of the web.

While Redis is away each process counts for itself: a limit is one for each process then, and what
was counted before is not known. More goes through than should, and never everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog
from django.core.cache import cache
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.locmem import LocMemCache
from redis.exceptions import RedisError

log = structlog.stdlib.get_logger(__name__)

MOST_OWN: Final = 30_000
"""Counts that one process keeps; a third of them is forgotten beyond."""
own: Final[BaseCache] = LocMemCache("counts", {"OPTIONS": {"MAX_ENTRIES": MOST_OWN}})


def counts(keys: Sequence[str]) -> list[int]:
    """How often each was counted; 0 for what was not."""
    try:
        found = cache.get_many(keys)
    except RedisError as error:
        log.warning("counted_by_one_process", error=error)
        found = own.get_many(keys)
    return [value if isinstance(value := found.get(key), int) else 0 for key in keys]


def count(keys: Sequence[str], *, window_s: int) -> list[int]:
    """Count each once more; how often that makes. They are forgotten after ``window_s`` s."""
    try:
        return _counted(cache, keys, window_s)
    except (RedisError, ValueError) as error:
        log.warning("counted_by_one_process", error=error)
        return _counted(own, keys, window_s)


def _counted(place: BaseCache, keys: Sequence[str], window_s: int) -> list[int]:
    for key in keys:
        place.add(key, 0, timeout=window_s)
    return [place.incr(key) for key in keys]
