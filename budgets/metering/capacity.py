"""Where every GPU of a cluster was: samples of nodes and pods, added up by UTC hour.

Pure: no Django, no clock, no I/O. Samples are held until the next one, so an hour's figures are
whole GPU-seconds of what nodes and pods showed, and stand beside what the ledger says was held.

Source: spec money, section 1.3 (GPU held outside budgets); issue 6, section 1 (the identity).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from budgets.units import HOUR_S, Period

HOLD = timedelta(minutes=5)
"""A sample counts until the next one, but no longer: then nobody knows what was there."""
SHARE = Fraction(1, 50)
LEAST = 1800
"""Unexplained GPU-seconds of an hour that may be: a fiftieth of the capacity, at least these.
Pods begin after their workload is admitted and end after its quota is released."""


@dataclass(frozen=True, slots=True)
class CapacitySample:
    """GPUs of one flavor on one cluster at an instant, as its nodes and pods show them.

    Attributes:
        at: UTC, whole seconds, by the cluster's clock.
        ready: On nodes that take work.
        down: On nodes that do not, or broken.
        used: Taken by pods on the nodes.
        held: What the workloads of the cluster hold, as the portal knew then.
        outside: Of ``used``, by pods in namespaces of no workspace.
        by_pods: Whether the pods could be seen; without them ``held`` counts as used.
    """

    at: datetime
    ready: int
    down: int
    used: int
    held: int
    outside: int = 0
    by_pods: bool = True

    @property
    def free(self) -> int:
        """Ready GPUs that no pod takes."""
        return max(0, self.ready - (self.used if self.by_pods else self.held))

    @property
    def over_admitted(self) -> int:
        """What is held beyond the GPUs that are ready: oversubscribed, or the nodes went away."""
        return max(0, self.held - self.ready)


@dataclass(frozen=True, slots=True)
class CapacityPart:
    """GPU-seconds that one sample stands for within one UTC hour; ``seconds`` of it."""

    hour: datetime
    seconds: int
    capacity: int
    down: int
    free: int
    over_admitted: int
    outside: int


def capacity_parts(before: CapacitySample, until: datetime) -> Iterator[CapacityPart]:
    """What a sample stands for up to the next one, hour by hour.

    Args:
        before: The sample.
        until: When the next was taken; a clock that went back makes it stand for nothing.
    """
    end = min(until, before.at + HOLD)
    if end <= before.at:
        return
    for hour, piece in Period(before.at, end).utc_hours():
        seconds = piece.seconds
        yield CapacityPart(
            hour,
            seconds,
            capacity=(before.ready + before.down) * seconds,
            down=before.down * seconds,
            free=before.free * seconds,
            over_admitted=before.over_admitted * seconds,
            outside=before.outside * seconds,
        )


@dataclass(frozen=True, slots=True)
class CapacityFact:
    """The identity of one flavor on one cluster in one UTC hour, GPU-seconds.

    committed_used + burst + race + undecided + outside + starting + free + down − over_admitted
    + unexplained = capacity.

    Attributes:
        measured_s: Seconds of the hour that samples stand for.
        undecided: Held by copies of a job of which none was chosen yet.
        outside: Held outside budgets: by workloads of foreign queues or, if that is more, by
            pods in namespaces of no workspace.
        starting: Held by pods that are not ready yet, where the clock starts when they are.
        free: Measured, not a remainder.
        by_pods: False: the cluster shows no pods, and what workloads held counts as used.
    """

    hour: datetime
    cluster: str
    flavor: str
    measured_s: int
    capacity: int
    committed_used: int = 0
    burst: int = 0
    race: int = 0
    undecided: int = 0
    outside: int = 0
    starting: int = 0
    free: int = 0
    down: int = 0
    over_admitted: int = 0
    by_pods: bool = True

    @property
    def is_measured(self) -> bool:
        """Whether samples stand for the whole hour; without that nothing can be compared."""
        return self.measured_s >= HOUR_S

    @property
    def unexplained(self) -> int:
        """What is missing from the capacity (below zero: there is more than it)."""
        held = self.committed_used + self.burst + self.race + self.undecided
        held += self.outside + self.starting
        return self.capacity - held - self.free - self.down + self.over_admitted

    @property
    def tolerance(self) -> int:
        """Unexplained GPU-seconds that are no fault."""
        return max(LEAST, int(self.capacity * SHARE))

    @property
    def is_explained(self) -> bool:
        """Whether the hour was measured and adds up within the tolerance."""
        return self.is_measured and abs(self.unexplained) <= self.tolerance
