"""How much of one process's memory each of several clusters may take with what it tells.

A process of one cluster has the operating system's limit; one that reads several clusters has this
as well, so that one of them does not take what the others need. What a document takes is estimated
from its bytes before it is read, rather too high, and counts until nobody has the document. Whoever
keeps a part of it for long has that counted anew: for what it takes, and not with its whole page.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import Any, Final

from clusters.documents.packed import Packed
from clusters.errors import Refusal, ServerFault

MIB: Final = 1024**2
LARGEST: Final = 4
"""One answer may be a fourth of a share; a list that has more is read in smaller pages."""
_LEAST: Final = 256
# Bytes of memory for each of these in a JSON text, as CPython keeps what follows or is begun there.
_COSTS: Final = ((b"{", 160), (b"[", 128), (b",", 64), (b":", 128))


def weigh(body: bytes) -> int:
    """Bytes of memory that a JSON text takes at most once it is read; O(bytes)."""
    # One character outside of Latin-1 makes four bytes of each other one in its string.
    is_plain = body.isascii() and b"\\u" not in body
    texts = _LEAST + len(body) * (1 if is_plain else 4)
    return texts + sum(body.count(at) * cost for at, cost in _COSTS)


def size_of(document: dict[str, Any]) -> int:
    """Bytes of memory that a document takes with all that is in it; O(parts).

    A key that it has more than once is one text.
    """
    size, left, keys = _LEAST, [document], set[str]()
    while left:
        each = left.pop()
        size += sys.getsizeof(each)
        if isinstance(each, dict):
            for key, value in dict.items(each):  # of a packed one, too, as it is
                keys.add(key)
                left.append(value)
        elif isinstance(each, list):
            left += each
    return size + sum(map(sys.getsizeof, keys))


class Held:
    """A part of a share that is taken for as long as somebody has this.

    Attributes:
        weight: Bytes; the share's lock is its own.
    """

    __slots__ = ("_share", "weight")

    def __init__(self, share: Share, weight: int) -> None:
        self._share, self.weight = share, weight

    def __deepcopy__(self, known: dict[int, Any]) -> Held:
        return self

    def __del__(self) -> None:
        self._share.returned.append(self.weight)

    def part(self, weight: int) -> Held:
        """Some of it, or a little more, that is taken as long as somebody has that."""
        return self._share.part(self, weight)


class Counted(dict[str, Any]):
    """A document that counts as long as somebody has it."""

    __slots__ = ("held",)

    def __init__(self, document: dict[str, Any], held: Held) -> None:
        super().__init__(document)
        self.held = held


def recounted(document: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """What somebody keeps of a document: it counts for what it takes, whatever came with it."""
    if not isinstance(document, Counted):
        return kept
    held = document.held.part(size_of(kept))
    if not isinstance(kept, Counted | Packed):
        return Counted(kept, held)
    kept.held = held
    return kept


class Shares:
    """Of one process, for so many clusters; safe to use from several threads.

    All of them together never have more than twice the memory: one may have taken it all while
    there was room, and each other one has its part all the same.

    Args:
        memory: Bytes for all of them. One may have more than its part while there is room.
        among: For so many clusters at least; where there are more, parts are smaller.
        advice: What an admin can do where a part is not enough.

    Attributes:
        largest: Bytes of memory that one answer, or one event, may take.
    """

    def __init__(self, *, memory: int, among: int, advice: str = "") -> None:
        self.memory, self.advice = memory, advice
        self._among = max(1, among)
        self.largest = memory // self._among // LARGEST
        self.lock = threading.Lock()
        self.taken = 0
        self._of: dict[str, Share] = {}

    @property
    def each(self) -> int:
        """Bytes that are a cluster's own part."""
        return self.memory // max(self._among, len(self._of))

    def of(self, cluster: str) -> Share:
        """The share of a cluster."""
        with self.lock:
            return self._of.setdefault(cluster, Share(self, cluster))

    def settle(self) -> None:
        """Subtract what is not held any more; the lock is the caller's."""
        for share in self._of.values():
            share.settle()


class Share:
    """What one cluster has of it.

    Attributes:
        largest: Bytes of memory that one answer, or one event, may take.
        returned: What is not held any more and was not subtracted yet. Whoever collects garbage
            only puts it here: it may be in the middle of anything.
    """

    def __init__(self, shares: Shares, cluster: str) -> None:
        self._shares, self._cluster, self._taken = shares, cluster, 0
        self.largest = shares.largest
        self.returned: deque[int] = deque()

    @property
    def taken(self) -> int:
        """Bytes that are held."""
        with self._shares.lock:
            self._shares.settle()
            return self._taken

    def hold(self, weight: int, *, target: str) -> Held:
        """Take so many bytes until the answer is not held any more.

        Raises:
            ServerFault: the cluster has its part, and there is no room besides.
        """
        shares = self._shares
        with shares.lock:
            shares.settle()
            is_over = self._taken + weight > shares.each
            if is_over and shares.taken + weight > shares.memory:
                words = (
                    f"{self._cluster} shows more than its part of this process's memory"
                    f" ({shares.each // MIB:,} MiB). {shares.advice}"
                )
                raise ServerFault(Refusal(words.strip(), target=target))
            self._taken += weight
            shares.taken += weight
        return Held(self, weight)

    def part(self, held: Held, weight: int) -> Held:
        """As :meth:`Held.part`; never refused, as what it is of was not."""
        shares = self._shares
        with shares.lock:
            more = max(0, weight - held.weight)
            held.weight -= weight - more
            self._taken += more
            shares.taken += more
        return Held(self, weight)

    def settle(self) -> None:
        """As :meth:`Shares.settle`, of this one."""
        while self.returned:
            weight = self.returned.popleft()
            self._taken -= weight
            self._shares.taken -= weight


IN_TASKS: Final = Shares(memory=512 * MIB, among=4)
"""Of a worker whose short tasks ask all clusters, however many there are. An answer may be as heavy
as the heaviest object that an API server stores: 32 MiB."""
