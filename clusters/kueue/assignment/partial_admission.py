"""Fewer pods than asked for: the smallest reduction that can go on.

Source: Kueue pkg/scheduler/flavorassigner/podset_reducer.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from clusters.kueue.workload.workloads import Workload

_Found = TypeVar("_Found")


def smallest_reduction(
    workload: Workload, *, attempt: Callable[[Sequence[int]], _Found | None]
) -> _Found | None:
    """Search the smallest number of pods to leave out.

    The search is binary, as Kueue's: it takes for granted that fewer pods never fit worse.

    Args:
        workload: with at least one pod set that accepts fewer pods.
        attempt: tries counts per pod set; returns what it found, ``None`` when that cannot go on.

    Returns:
        What the attempt with the most pods found, ``None`` when even the fewest cannot go on.
    """
    counts = [workload.remaining_count(item) for item in workload.pod_sets]
    spare = [
        max(0, count - item.min_count) if item.min_count is not None else 0
        for count, item in zip(counts, workload.pod_sets, strict=True)
    ]
    total = sum(spare)
    best: _Found | None = None
    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        reduced = [
            count - extra * middle // total for count, extra in zip(counts, spare, strict=True)
        ]
        found = attempt(reduced)
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return best
