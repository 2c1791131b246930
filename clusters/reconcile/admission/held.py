"""Keys whose write failed: left alone until they were read again. Nothing here knows threads."""

from __future__ import annotations

from typing import Final

from clusters.errors import ClusterError, Conflict

RETRY_FIRST_S: Final = 0.1
RETRY_CAP_S: Final = 5.0


class Held:
    """Failures in a row by key, and until when each is left alone. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._until

    def failed(self, key: str, error: ClusterError, *, now: float) -> bool:
        """Hold a key back, longer with every failure in a row.

        Returns:
            Whether somebody else was only quicker, once: then it is not held back for any time.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        is_race = isinstance(error, Conflict) and failures == 1
        delay_s = 0.0 if is_race else min(RETRY_CAP_S, RETRY_FIRST_S * 2 ** min(failures, 12))
        self._until[key] = now + delay_s
        return is_race

    def succeeded(self, key: str) -> None:
        """A write of the key was answered well."""
        self._failures.pop(key, None)

    def due(self, now: float) -> list[str]:
        """Keys to be read again now; they are held back no longer."""
        keys = [key for key, at in self._until.items() if at <= now]
        for key in keys:
            del self._until[key]
        return keys
