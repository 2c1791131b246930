"""The cross-check of a worker's queues: what Kueue says is used against what the ledger holds.

Pure: no Django, no clock, no I/O. Source: spec money, section 1.4 (cross-check each minute).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

MOST_SAMPLES = 3
"""A mismatch of more samples than these in a row is a discrepancy; fewer are lag."""


@dataclass(frozen=True, slots=True)
class QueueSample:
    """What ``status`` of one ClusterQueue said of one flavor at an instant, in GPUs.

    Attributes:
        at: UTC, whole seconds, by the cluster's clock.
        total: ``flavorsUsage[].resources[].total``, or of ``flavorsReservation`` where the
            clock starts before or after the admission.
        borrowed: ``borrowed`` beside it.
        nominal: The quota of the queue as it stood on the cluster: the applied floor.
    """

    at: datetime
    total: int
    borrowed: int
    nominal: int

    def is_matched(self, held: int) -> bool:
        """Whether open intervals of ``held`` GPUs come to the same use and the same borrowing."""
        return held == self.total and max(0, held - self.nominal) == self.borrowed


def lasting_mismatch(
    samples: Iterable[QueueSample], held_at: Callable[[datetime], int]
) -> Sequence[QueueSample]:
    """The longest run of mismatches in a row when it is longer than lag explains.

    Args:
        samples: In the order of time, each one sampling after the other.
        held_at: GPUs of the intervals of that queue and flavor that were open at an instant.

    Returns:
        The samples of the run; empty when none is longer than :data:`MOST_SAMPLES`.
    """
    longest: list[QueueSample] = []
    run: list[QueueSample] = []
    for sample in samples:
        run = [] if sample.is_matched(held_at(sample.at)) else [*run, sample]
        if len(run) > len(longest):
            longest = run
    return longest if len(longest) > MOST_SAMPLES else ()
