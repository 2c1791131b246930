"""When cycles run again, and when writes that can wait may go. Nothing here knows threads.

Why a workload is pending, and the statuses of queues, only tell; each write of them costs the API
server as much as a decision does. So each is worked out when its turn comes, and while decisions
are being written they are few; statuses of queues also while workloads come, end and change
otherwise. On a quiet cluster they follow at once, but for a queue that was told just now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# While the cluster is not quiet: seconds from one queue, and one workload, to the next.
QUEUE_EVERY_S: Final = 0.05
WORKLOAD_EVERY_S: Final = 0.2
# At any time: seconds from one status of a queue to its next. One in which something happens all
# the time would be written as often as all others together.
SAME_QUEUE_EVERY_S: Final = 0.5
# So many writes of each kind are under way at most. With one, what they tell would grow old just
# when most happens: an API server at work takes longer to answer than it is to the next.
AT_ONCE: Final = 8
# So long after the last decision the cluster counts as quiet again, seconds; for queues, after the
# last event of a workload, too.
QUIET_AFTER_S: Final = 0.5
PASS_EVERY_S: Final = 1.0
# After a pass over all queues: rest for so many times as long as its looks took, unless something
# else than a workload changed. What one workload does to its own queues is told without a pass.
PASS_REST: Final = 100.0
# So many queues that changed are told before one of the pass.
CHANGED_IN_ROW: Final = 4


class LowPriority:
    """Keys whose writes can wait, and when the next one may go.

    Workloads are told one by one as they are added; queues in passes over all of them, as what one
    workload does may show in many. Those whose own workloads changed go before the rest of a pass:
    one over a thousand queues takes a while. Times are monotonic seconds; of the two kinds of keys
    those of queues have a colon.
    """

    def __init__(self) -> None:
        self._workloads: dict[str, None] = {}
        self._queues: dict[str, None] = {}
        self._changed: dict[str, None] = {}
        self._changed_in_row = 0
        # Until when queues rest that were told just now, in the order of these times; and those of
        # them that have something to tell again.
        self._resting: dict[str, float] = {}
        self._restless: set[str] = set()
        self._workload_lane, self._queue_lane = _Lane(WORKLOAD_EVERY_S), _Lane(QUEUE_EVERY_S)
        self._pass_at = float("-inf")
        self._pass_took_s = 0.0
        self._is_of_pass = False

    @property
    def under_way(self) -> list[str]:
        """Keys whose writes were sent and not answered."""
        return [*self._queue_lane.under_way, *self._workload_lane.under_way]

    def add(self, keys: Iterable[str]) -> None:
        """Workloads that have something to tell; the order stays that of the first wish."""
        self._workloads.update(dict.fromkeys(keys))

    def change(self, queues: Iterable[str]) -> None:
        """Something happened in these queues; the order stays that of the first time."""
        for key in queues:
            if key in self._queue_lane.under_way:
                self._queue_lane.under_way[key] = True  # the write may not say it yet
            else:
                self._wish(key, self._changed)

    def _wish(self, key: str, wishes: dict[str, None]) -> None:
        """A queue has something to tell, at once or when it has rested."""
        if key in self._resting:
            self._restless.add(key)
        else:
            wishes[key] = None

    def _wake(self, now: float) -> None:
        """Those that have rested may tell."""
        while self._resting:
            key, until = next(iter(self._resting.items()))
            if until > now:
                return
            del self._resting[key]
            if key in self._restless:
                self._restless.discard(key)
                self._changed[key] = None

    def begin_pass(self, keys: Iterable[str], *, now: float) -> None:
        """Look at every queue again."""
        self._pass_at, self._pass_took_s = now, 0.0
        for key in keys:
            self._wish(key, self._queues)

    def is_pass_due(self, now: float) -> bool:
        """Whether the last pass is over and was long enough ago for another."""
        rest_s = max(PASS_EVERY_S, PASS_REST * self._pass_took_s)
        return not self._queues and now - self._pass_at >= rest_s

    def hurry(self) -> None:
        """Something may show in many queues at once: the next pass rests for the least time."""
        self._pass_took_s = 0.0

    def looked(self, took_s: float) -> None:
        """The key that was taken out last has been looked at."""
        if self._is_of_pass:
            self._pass_took_s += took_s

    def note_haste(self, now: float) -> None:
        """A write that cannot wait was sent or answered."""
        self._queue_lane.busy_at = self._workload_lane.busy_at = now

    def note_event(self, now: float) -> None:
        """Something happened to a workload, be it why it waits that was told."""
        self._queue_lane.busy_at = now

    def wait_s(self, now: float) -> float | None:
        """Seconds until the next key may go; None while there is none, or enough are under way."""
        self._wake(now)
        waits: list[float | None] = [
            until - now for key, until in self._resting.items() if key in self._restless
        ]
        if self._changed or self._queues:
            waits.append(self._queue_lane.wait_s(now))
        if self._workloads:
            waits.append(self._workload_lane.wait_s(now))
        return min((wait for wait in waits if wait is not None), default=None)

    def next(self, now: float) -> str:
        """Take out a key that may go now, a queue before a workload; empty when there is none."""
        self._wake(now)
        if (self._changed or self._queues) and self._queue_lane.wait_s(now) == 0.0:
            return self._next_queue()
        if self._workloads and self._workload_lane.wait_s(now) == 0.0:
            key = next(iter(self._workloads))
            del self._workloads[key]
            self._is_of_pass = False
            return key
        return ""

    def _next_queue(self) -> str:
        """One that changed, but after every few of them one of the pass."""
        is_turn_of_pass = self._changed_in_row >= CHANGED_IN_ROW and self._queues
        is_changed = bool(self._changed) and not is_turn_of_pass
        key = next(iter(self._changed if is_changed else self._queues))
        self._changed_in_row = self._changed_in_row + 1 if is_changed else 0
        self._is_of_pass = not is_changed
        self._changed.pop(key, None)
        self._queues.pop(key, None)
        return key

    def sent(self, key: str, *, now: float) -> None:
        """The key's write is under way."""
        lane = self._lane_of(key)
        lane.under_way[key] = False
        if now - lane.busy_at < QUIET_AFTER_S:
            lane.rest(now)
        if lane is self._queue_lane:
            self._resting.pop(key, None)
            self._resting[key] = now + SAME_QUEUE_EVERY_S

    def answered(self, key: str) -> bool:
        """Whether a write of this key was under way; then another may follow."""
        has_changed = self._lane_of(key).under_way.pop(key, None)
        if has_changed:
            self._wish(key, self._changed)
        return has_changed is not None

    def _lane_of(self, key: str) -> _Lane:
        return self._queue_lane if ":" in key else self._workload_lane


class _Lane:
    """Writes of one kind, and when another may go.

    Args:
        every_s: From one to the next, where they have to rest.

    Attributes:
        busy_at: When the cluster was last not quiet.
        under_way: Keys of those under way; whether something has happened to them since.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._free_at = self.busy_at = float("-inf")
        self.under_way: dict[str, bool] = {}

    def wait_s(self, now: float) -> float | None:
        """Seconds until another may go; None while enough are under way."""
        return None if len(self.under_way) >= AT_ONCE else max(0.0, self._free_at - now)

    def rest(self, now: float) -> None:
        """Another may go after a while; who was busy meanwhile catches up with a few."""
        least_at = now - (AT_ONCE - 0.5) * self._every_s
        self._free_at = max(self._free_at, least_at) + self._every_s


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
