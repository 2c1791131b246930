"""Which keys are to be looked at, and which are left alone for a while. No threads, no clock.

A key is *ready* once something happened to it; *busy* from its write until the answer; *held* after
a failure, longer with each one in a row. What happens to a busy or held key is remembered, and the
key is handed out afterwards. Times are given: monotonic seconds, and UTC for what objects say.
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable
from datetime import datetime
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
E = TypeVar("E", bound=Hashable)
T = TypeVar("T", datetime, float)

FIRST_S: Final = 0.1
CAP_S: Final = 5.0
_GROWTH_LIMIT: Final = 16


def namespace_of(key: object) -> str:
    """Whose turn a key is: that of its namespace, or its own."""
    return str(key).partition("/")[0]


class Turns(Generic[E]):
    """What waits, each once: the first of each namespace first, then the second; O(1) for each."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, OrderedDict[E, None]] = OrderedDict()
        self._open: OrderedDict[str, None] = OrderedDict()
        self._shut: set[str] = set()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, namespace: str, entry: E) -> None:
        """Where it waits already, it keeps its place; the first of its namespace comes last."""
        line = self._lines.get(namespace)
        if line is None:
            line = self._lines[namespace] = OrderedDict()
            if namespace not in self._shut:
                self._open[namespace] = None
        self._count += entry not in line
        line[entry] = None

    def remove(self, namespace: str, entry: E) -> bool:
        """It waits no more; whether it did."""
        line = self._lines.get(namespace)
        if line is None or entry not in line:
            return False
        del line[entry]
        self._count -= 1
        if not line:
            self._forget(namespace)
        return True

    def shut(self, namespace: str) -> None:
        """It is none of the open namespaces any more, whether something of it waits or not."""
        self._shut.add(namespace)
        self._open.pop(namespace, None)

    def open(self, namespace: str) -> None:
        """It is open again, and comes last of those that are."""
        self._shut.discard(namespace)
        if namespace in self._lines:
            self._open[namespace] = None

    def next(self, *, is_open: bool = False) -> E | None:
        """Take out whose turn it is, of all namespaces or of the open ones; None for nobody."""
        namespace = next(iter(self._open if is_open else self._lines), None)
        if namespace is None:
            return None
        line = self._lines[namespace]
        found, _ = line.popitem(last=False)
        self._count -= 1
        if not line:
            self._forget(namespace)
            return found
        self._lines.move_to_end(namespace)
        if namespace in self._open:
            self._open.move_to_end(namespace)
        return found

    def _forget(self, namespace: str) -> None:
        del self._lines[namespace]
        self._open.pop(namespace, None)


class RateLimiter(Generic[K]):
    """How long a key waits after failures in a row.

    Args:
        first_s: Twice that after the first, and twice as long after each more.
        cap_s: At most so long.
    """

    def __init__(self, *, first_s: float = FIRST_S, cap_s: float = CAP_S) -> None:
        self._first_s, self._cap_s = first_s, cap_s
        self._failures: dict[K, int] = {}

    def failed(
        self, key: K, *, is_race: bool = False, cap_s: float = 0.0, least_s: float = 0.0
    ) -> float:
        """Count a failure; returns the wait in seconds.

        Args:
            key: What failed.
            is_race: Somebody else was only quicker: the first time in a row costs no wait.
            cap_s: At most so long, this once; 0 for the limiter's own.
            least_s: At least so long, this once, whatever the cap.
        """
        count = self._failures[key] = self._failures.get(key, 0) + 1
        if is_race and count == 1:
            return 0.0
        growth: int = 2 ** min(count, _GROWTH_LIMIT)
        return max(least_s, min(cap_s or self._cap_s, self._first_s * growth))

    def forget(self, key: K) -> None:
        """It went well: failures in a row are over."""
        self._failures.pop(key, None)


class Timers(Generic[K, T]):
    """The earliest time that was asked for, by key."""

    def __init__(self) -> None:
        self._at: dict[K, T] = {}
        self._heap: list[tuple[T, int, K]] = []
        self._count = 0

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def set(self, key: K, at: T) -> None:
        """Ask for a time; an earlier one that was asked for stays."""
        known = self._at.get(key)
        if known is None or at < known:
            self._at[key] = at
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, key))

    def cancel(self, key: K) -> None:
        """Nothing is asked for any more."""
        self._at.pop(key, None)

    def due(self, now: T) -> list[K]:
        """Keys whose time has come, earliest first; each is told once."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                found.append(key)
        return found

    def next(self) -> T | None:
        """The earliest time; None when nothing is asked for."""
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


class WorkQueue(Generic[K]):
    """Keys of one role; owned by its deciding thread.

    Args:
        first_s: See :class:`RateLimiter`.
        cap_s: The same.
    """

    def __init__(self, *, first_s: float = FIRST_S, cap_s: float = CAP_S) -> None:
        self._ready: Turns[K] = Turns()
        self._later: dict[K, None] = {}
        self._busy: set[K] = set()
        self._writing: Counter[str] = Counter()
        self._held: Timers[K, float] = Timers()
        self._wishes: Timers[K, datetime] = Timers()
        self._limiter: RateLimiter[K] = RateLimiter(first_s=first_s, cap_s=cap_s)

    # What happened

    def add(self, key: K) -> None:
        """Something happened to a key; within its namespace the order stays that of the first."""
        if key in self._busy or key in self._held:
            self._later[key] = None
        else:
            self._ready.add(namespace_of(key), key)

    def add_all(self, keys: Iterable[K]) -> None:
        """Something happened to all of these."""
        for key in keys:
            self.add(key)

    def add_at(self, key: K, at: datetime) -> None:
        """Look at a key at a time; an earlier wish stays."""
        self._wishes.set(key, at)

    def wake(self, now: datetime, monotonic: float) -> list[K]:
        """Let time pass: what was asked for by now is ready, and so is what is held no longer.

        Returns:
            The keys that were held until now; the caller adds them, or reads something first.
        """
        self.add_all(self._wishes.due(now))
        freed = self._held.due(monotonic)
        for key in freed:
            if key in self._later:
                del self._later[key]
                self.add(key)
        return freed

    # What is to be done

    def next(self, most_under_way: int = sys.maxsize) -> K | None:
        """Take out the key whose turn it is, neither busy nor held; namespaces take turns.

        Args:
            most_under_way: Where so many keys are busy, a namespace that has one of them waits.

        Returns:
            None where no key is ready, or none may begin.
        """
        return self._ready.next(is_open=self.load >= most_under_way)

    def take(self) -> list[K]:
        """Take out all keys that are ready, in turn."""
        return list(iter(self._ready.next, None))

    @property
    def ready(self) -> int:
        """How many keys are ready."""
        return len(self._ready)

    @property
    def load(self) -> int:
        """How many keys are busy."""
        return len(self._busy)

    def is_free(self, key: K) -> bool:
        """Whether a key is neither busy nor held."""
        return key not in self._busy and key not in self._held

    def is_busy(self, key: K) -> bool:
        """Whether a write of this key is under way; its answer has not been taken yet."""
        return key in self._busy

    def busy(self) -> Iterable[K]:
        """The keys that are busy."""
        return iter(self._busy)

    def wait_s(self, monotonic: float) -> float | None:
        """Seconds until the next hold ends; None when nothing is held."""
        at = self._held.next()
        return None if at is None else max(0.0, at - monotonic)

    # What became of it

    def begin(self, key: K) -> None:
        """A write of the key is under way until :meth:`done`."""
        if key not in self._busy:
            self._busy.add(key)
            self._writing[namespace_of(key)] += 1
            self._ready.shut(namespace_of(key))
        if self._ready.remove(namespace_of(key), key):
            self._later[key] = None

    def done(self, key: K) -> None:
        """The answer to its write was taken."""
        if key in self._busy:
            self._busy.remove(key)
            namespace = namespace_of(key)
            self._writing[namespace] -= 1
            if not self._writing[namespace]:
                del self._writing[namespace]
                self._ready.open(namespace)
        if key in self._later and key not in self._held:
            del self._later[key]
            self._ready.add(namespace_of(key), key)

    def hold(self, key: K, *, until: float) -> None:
        """Leave a key alone until then; :meth:`wake` tells that it is over."""
        self._held.set(key, until)
        self._ready.remove(namespace_of(key), key)

    def retry(
        self,
        key: K,
        monotonic: float,
        *,
        is_race: bool = False,
        cap_s: float = 0.0,
        least_s: float = 0.0,
    ) -> float:
        """It failed: hold it, longer with each failure in a row; see :meth:`RateLimiter.failed`.

        Returns:
            For how many seconds.
        """
        wait_s = self._limiter.failed(key, is_race=is_race, cap_s=cap_s, least_s=least_s)
        self._held.cancel(key)
        self.hold(key, until=monotonic + wait_s)
        return wait_s

    def forget(self, key: K) -> None:
        """It went well: failures in a row are over."""
        self._limiter.forget(key)

    def drop(self, key: K) -> None:
        """It is gone: nothing is held, wished for or remembered of it; what is busy stays so."""
        self._limiter.forget(key)
        self._held.cancel(key)
        self._wishes.cancel(key)
        self._ready.remove(namespace_of(key), key)
        self._later.pop(key, None)
