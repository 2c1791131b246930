"""Workloads that hold quota and still look for domains: when they are looked at again.

Either their nodes were made after quota was reserved, or a node of their placement failed.

Source: Kueue pkg/cache/queue/second_pass_queue.go, pkg/workload/workload.go, v0.19.2. Deviation:
the first try is at once, not after a second.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from clusters.kueue.workload.workloads import Workload

_FIRST_WAIT: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = timedelta(seconds=30)
_MOST_DOUBLINGS: Final = 5


class SecondPasses:
    """What waits for a second pass, with the time of the next try."""

    def __init__(self) -> None:
        self._due: dict[str, datetime] = {}
        self._tries: dict[str, int] = {}

    def note(self, workload: Workload, *, now: datetime) -> None:
        """Take in a workload that needs a second pass, let go of one that does not."""
        if not needs_second_pass(workload):
            self.drop(workload.key)
        elif workload.key not in self._due:
            self._due[workload.key] = now

    def drop(self, key: str) -> None:
        """Let go of a workload."""
        self._due.pop(key, None)
        self._tries.pop(key, None)

    def adopt(self, other: SecondPasses, *, keys: Collection[str]) -> None:
        """Become a copy of another one, as far as some workloads are concerned."""
        self._due = {key: due for key, due in other._due.items() if key in keys}
        self._tries = {key: tries for key, tries in other._tries.items() if key in keys}

    def due(self, now: datetime) -> list[str]:
        """Keys of workloads to look at now."""
        return sorted(key for key, due in self._due.items() if due <= now)

    def put_off(self, key: str, *, now: datetime) -> None:
        """Look at a workload again later, each time after twice as long."""
        tries = self._tries.get(key, 0)
        self._tries[key] = tries + 1
        self._due[key] = now + min(_FIRST_WAIT * 2 ** min(tries, _MOST_DOUBLINGS), _LONGEST_WAIT)


def needs_second_pass(workload: Workload) -> bool:
    """Whether a workload holds quota but domains are missing."""
    reservation = workload.reservation
    if reservation is None or workload.is_finished or workload.is_evicted:
        return False
    states = workload.check_states.values()
    is_delayed = workload.is_placement_delayed and not reservation.is_admitted
    if is_delayed and states and all(state == "Ready" for state in states):
        return True
    return workload.has_lost_node and reservation.is_admitted
