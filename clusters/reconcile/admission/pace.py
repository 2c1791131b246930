"""When cycles run again, and when writes that can wait may go. Nothing here knows threads.

Why a workload is pending, and the statuses of queues, only tell; each write of them costs the API
server as much as a decision does. So they go out one at a time, each worked out when its turn
comes, and while decisions are being written they rest between two of them. On a quiet cluster they
follow at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# While decisions are written: seconds of rest for each second that a low-priority write took.
REST: Final = 3.0
# So long after the last decision the cluster counts as quiet again, seconds.
QUIET_AFTER_S: Final = 0.5
PASS_EVERY_S: Final = 1.0
# So many queues that changed are told before one of the pass.
CHANGED_IN_ROW: Final = 4


class LowPriority:
    """Keys whose writes can wait, and when the next one may go.

    Workloads are told one by one as they are added; queues in passes over all of them, as what one
    workload does may show in many. Those whose own workloads changed go before the rest of a pass:
    one over a thousand queues takes a while. Times are monotonic seconds.

    Attributes:
        under_way: The key whose write was sent and not answered; empty when there is none.
    """

    def __init__(self) -> None:
        self._workloads: dict[str, None] = {}
        self._queues: dict[str, None] = {}
        self._changed: dict[str, None] = {}
        self._is_queues_turn = True
        self._changed_in_row = 0
        self.under_way = ""
        self._begun_at = self._free_at = self._pass_at = self._hasty_at = float("-inf")

    def add(self, keys: Iterable[str]) -> None:
        """Workloads that have something to tell; the order stays that of the first wish."""
        self._workloads.update(dict.fromkeys(keys))

    def change(self, queues: Iterable[str]) -> None:
        """Something happened in these queues; the order stays that of the first time."""
        self._changed.update(dict.fromkeys(queues))

    def begin_pass(self, keys: Iterable[str], *, now: float) -> None:
        """Look at every queue again."""
        self._pass_at = now
        self._queues.update(dict.fromkeys(keys))

    def is_pass_due(self, now: float) -> bool:
        """Whether the last pass is over and was long enough ago for another."""
        return not self._queues and now - self._pass_at >= PASS_EVERY_S

    def note_haste(self, now: float) -> None:
        """A write that cannot wait was sent or answered."""
        self._hasty_at = now

    def wait_s(self, now: float) -> float | None:
        """Seconds until the next key may go; None while one is under way or none is there."""
        if self.under_way or not (self._workloads or self._changed or self._queues):
            return None
        return max(0.0, self._free_at - now)

    def next(self) -> str:
        """Take the next key out, queues and workloads in turn; empty when there is none."""
        queues = self._next_queues()
        first, second = queues, self._workloads
        if not self._is_queues_turn:
            first, second = second, first
        keys = first or second
        if not keys:
            return ""
        self._is_queues_turn = keys is self._workloads
        key = next(iter(keys))
        del keys[key]
        if keys is not self._workloads:
            self._changed_in_row = self._changed_in_row + 1 if keys is self._changed else 0
            self._changed.pop(key, None)
            self._queues.pop(key, None)
        return key

    def _next_queues(self) -> dict[str, None]:
        """Those that changed, but for every few of them one of the pass."""
        is_turn_of_pass = self._changed_in_row >= CHANGED_IN_ROW and self._queues
        return self._queues if is_turn_of_pass else self._changed or self._queues

    def sent(self, key: str, *, now: float) -> None:
        """The key's write is under way."""
        self.under_way, self._begun_at = key, now

    def answered(self, key: str, *, now: float) -> bool:
        """Whether it was this key's write that was under way; then the next may follow."""
        if not key or key != self.under_way:
            return False
        self.under_way = ""
        is_quiet = now - self._hasty_at >= QUIET_AFTER_S
        self._free_at = now if is_quiet else now + REST * (now - self._begun_at)
        return True


# After cycles that left nothing to decide: rest for so many times as long as they took, at most so
# many seconds; and look again after so many even if nothing seems to have changed.
CYCLE_REST: Final = 4.0
LONGEST_REST_S: Final = 0.2
SWEEP_EVERY_S: Final = 5.0


class CyclePace:
    """When to run cycles again: something changed, and the last ones are not just over.

    Where workloads end all the time, what they leave is gathered for a moment. Times are monotonic
    seconds.
    """

    def __init__(self) -> None:
        self._is_changed = True
        self._revision = 0
        self._rests_until = 0.0

    def change(self) -> None:
        """Something changed that cycles look at."""
        self._is_changed = True

    def is_due(self, revision: int, *, now: float) -> bool:
        """Whether to run cycles now.

        Args:
            revision: of the engine's state, see ``ClusterState.revision``.
            now: Monotonic seconds.
        """
        is_sweep = now - self._rests_until >= SWEEP_EVERY_S
        self._is_changed = self._is_changed or is_sweep or revision != self._revision
        self._revision = revision
        return self._is_changed and now >= self._rests_until

    def settled(self, *, now: float, took_s: float) -> None:
        """Cycles left nothing to decide, after so many seconds."""
        self._is_changed = False
        self._rests_until = now + min(LONGEST_REST_S, CYCLE_REST * took_s)

    def wait_s(self, now: float) -> float | None:
        """Seconds until cycles are due; None while nothing is known to have changed."""
        return max(0.0, self._rests_until - now) if self._is_changed else None
