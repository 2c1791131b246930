"""Workers that dispatch passes over for their maintenance, as the database has it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from django.db import DatabaseError, connection

from clusters.selectors.cordons import Cordons, cordons_now

log = structlog.stdlib.get_logger(__name__)

FOR_S: Final = 1.0


class Cordoned:
    """Read once a second; one thread owns it.

    Args:
        changed: Called when a worker was cordoned or freed: what waits has to be looked at anew.
        read: Where the windows in force are known from.
    """

    def __init__(
        self, changed: Callable[[], None], *, read: Callable[[], Cordons] = cordons_now
    ) -> None:
        self._changed, self._read = changed, read
        self._words: Mapping[str, str] = {}
        self._read_at = -FOR_S

    def words(self) -> Mapping[str, str]:
        """Worker → why it takes nothing new; what was known last while the database fails."""
        now = time.monotonic()
        if now - self._read_at >= FOR_S:
            self._read_at = now
            try:
                found = self._read()
            except DatabaseError as error:
                log.warning("cordons_unknown", error=type(error).__name__)
                connection.close()
                return self._words
            words = {worker: found.words(worker) for worker in found.workers}
            is_other = words.keys() != self._words.keys()
            self._words = words
            if is_other:
                self._changed()
        return self._words
