"""Which workload is the burst: the oldest admitted GPUs fill the floor, the rest is burst.

Policy ``waterfall/1``: in the order of (admitted, uid) each workload takes what is left of the
committed GPUs. Whole GPUs; a later job never re-labels an earlier one.

Source: spec money, sections 1.4 (4) and 3.2.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from budgets.metering.model import Held

Key = tuple[int, str, str, int]
"""(admitted, uid, cluster, place in the input): the order in which workloads fill a floor."""


@dataclass(slots=True, eq=False)
class HeldShare:
    """A workload's GPUs of one interval, and the GPU-seconds that they have come to so far."""

    held: Held
    key: Key
    since: int
    gpus: int
    filled: int = 0
    committed: int = 0
    burst: int = 0

    def accrue(self, now: int) -> None:
        """Count up to ``now`` with the split that held since the last call."""
        passed = now - self.since
        if passed:
            self.committed += self.filled * passed
            self.burst += (self.gpus - self.filled) * passed
            self.since = now

    def fill(self, gpus: int, *, now: int) -> None:
        """From ``now`` on, ``gpus`` of these stand on the floor."""
        if gpus != self.filled:
            self.accrue(now)
            self.filled = gpus


@dataclass(slots=True, eq=False)
class Waterfall:
    """The workloads of one workspace and flavor in the order in which they fill the floor.

    ``_full`` of them stand on the floor as a whole with ``_filled`` GPUs, the next one perhaps
    with a part. A change moves that edge, so it costs O(log n) plus the workloads it passes.
    """

    floor: int = 0
    used: int = 0
    _keys: list[Key] = field(default_factory=list)
    _shares: dict[Key, HeldShare] = field(default_factory=dict)
    _full: int = 0
    _filled: int = 0
    _partial: HeldShare | None = None

    def add(self, share: HeldShare, *, now: int) -> None:
        """Let a workload hold its GPUs from ``now`` on."""
        if not self._keys or share.key > self._keys[-1]:
            at = len(self._keys)
            self._keys.append(share.key)
        else:
            at = bisect_left(self._keys, share.key)
            insort(self._keys, share.key)
        self._shares[share.key] = share
        self.used += share.gpus
        if at < self._full:
            self._full += 1
            self._filled += share.gpus
            share.fill(share.gpus, now=now)
        self._move_edge(now)

    def remove(self, key: Key, *, now: int) -> None:
        """Let a workload release its GPUs at ``now``; it is counted up to then."""
        share = self._shares.pop(key)
        share.accrue(now)
        at = bisect_left(self._keys, key)
        del self._keys[at]
        self.used -= share.gpus
        if at < self._full:
            self._full -= 1
            self._filled -= share.gpus
        if self._partial is share:
            self._partial = None
        self._move_edge(now)

    def set_floor(self, gpus: int, *, now: int) -> None:
        """From ``now`` on, ``gpus`` are committed."""
        self.floor = gpus
        self._move_edge(now)

    def _move_edge(self, now: int) -> None:
        keys, shares = self._keys, self._shares
        while self._full and self._filled > self.floor:
            self._full -= 1
            share = shares[keys[self._full]]
            self._filled -= share.gpus
            share.fill(0, now=now)
        while self._full < len(keys):
            share = shares[keys[self._full]]
            if self._filled + share.gpus > self.floor:
                break
            share.fill(share.gpus, now=now)
            self._filled += share.gpus
            self._full += 1
        edge = shares[keys[self._full]] if self._full < len(keys) else None
        before = self._partial
        if before is not None and before is not edge and before.filled < before.gpus:
            before.fill(0, now=now)
        if edge is not None:
            edge.fill(self.floor - self._filled, now=now)
        self._partial = edge
