"""How long jobs of one kind run: an empirical distribution that knows how little it knows.

With n complete runs a new one falls between any two neighbours, below the shortest or above the
longest with the same chance of 1 in n + 1. Draws keep to that, so ranges made of them hold as often
as they say; a draw above the longest run is "unknown", not a guess. Runs that were cut off
(preempted, evicted) say only that the job takes longer: a draw that lands on one goes on among the
longer ones, as in the Kaplan-Meier estimate.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

# What generators append: digits, hashes, the five characters of generateName.
_SUFFIX = re.compile(r"[-_.](?:\d+|[0-9a-f]{6,}|[bcdfghjklmnpqrstvwxz2456789]{5})$")
_DIGITS = re.compile(r"(?<=[a-z])\d+$")


def kind_of(name: str) -> str:
    """The part of a job's name that its repetitions share: ``train-17-x8f2c`` → ``train``."""
    before = ""
    while name != before:
        before, name = name, _SUFFIX.sub("", name)
    return _DIGITS.sub("", name) or before


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded run.

    Attributes:
        seconds: From start to end, not negative.
        is_cut_off: It was stopped before it was done.
    """

    seconds: float
    is_cut_off: bool = False


class RunTimes:
    """Run times of one kind of job."""

    def __init__(self, runs: Iterable[Run]) -> None:
        """Args: runs: in any order; those of no length are left out."""
        lasted = (run for run in runs if run.seconds > 0)
        self._runs = sorted(lasted, key=lambda run: (run.seconds, run.is_cut_off))
        self._seconds = [run.seconds for run in self._runs]

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def complete(self) -> int:
        """Runs that went to their end."""
        return sum(not run.is_cut_off for run in self._runs)

    def draw(self, rng: random.Random, *, elapsed: float = 0.0) -> float | None:
        """A total run time beyond ``elapsed`` seconds; None where the records do not reach."""
        first = bisect_right(self._seconds, elapsed)
        floor = elapsed
        while first < len(self._runs):
            spot = rng.random() * (len(self._runs) - first + 1)
            rank, part = int(spot), spot - int(spot)
            if first + rank >= len(self._runs):
                return None
            run = self._runs[first + rank]
            if not run.is_cut_off:
                below = self._seconds[first + rank - 1] if rank else floor
                return below + part * (run.seconds - below)
            first, floor = first + rank + 1, run.seconds
        return None


def runs_by_kind(
    spans: Mapping[tuple[str, str, int], tuple[str, str, datetime, datetime]],
) -> dict[tuple[str, str], RunTimes]:
    """Run times by namespace and kind of job.

    Args:
        spans: by cluster, uid and epoch: namespace, name of the job, start and end. What went on in
            a later epoch was cut off in the one before.
    """
    last: dict[tuple[str, str], int] = {}
    for cluster, uid, epoch in spans:
        last[cluster, uid] = max(epoch, last.get((cluster, uid), epoch))
    runs: defaultdict[tuple[str, str], list[Run]] = defaultdict(list)
    for (cluster, uid, epoch), (namespace, name, start, end) in spans.items():
        run = Run((end - start).total_seconds(), is_cut_off=epoch < last[cluster, uid])
        runs[namespace, kind_of(name)].append(run)
    return {key: RunTimes(found) for key, found in runs.items()}
