"""What a cycle decided, as values; the caller writes them to the cluster, or reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Admit:
    """Reserve quota for a workload.

    Attributes:
        key: ``namespace/name``.
        admission: the ``status.admission`` document.
        is_admitted: no AdmissionCheck is pending, Admitted becomes true in the same write.
        checks: AdmissionChecks that apply with these flavors, sorted.
        message: of the QuotaReserved condition.
    """

    key: str
    admission: Mapping[str, Any]
    is_admitted: bool
    checks: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Preempt:
    """Evict a workload to make room.

    Attributes:
        key: the victim.
        reason: of the Preempted condition.
        message: of the Preempted and the Evicted condition.
        preemptor: key of the workload that gets the room.
        cluster_queue: the victim's.
    """

    key: str
    reason: str
    message: str
    preemptor: str
    cluster_queue: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a workload for its own sake: a node of its placement failed and nothing replaces it.

    Attributes:
        reason, message: of the Evicted condition.
        cluster_queue: where it holds quota.
    """

    key: str
    reason: str
    message: str
    cluster_queue: str


@dataclass(frozen=True, slots=True)
class Pending:
    """A workload keeps waiting.

    Attributes:
        reason: of the QuotaReserved=False condition.
        message: of that condition.
        cluster_queue: where it waits, empty when nowhere.
        has_changed: false when reason and message are those of its last decision.
    """

    key: str
    reason: str
    message: str
    cluster_queue: str
    has_changed: bool


Decision: TypeAlias = Admit | Preempt | Evict | Pending


@dataclass(frozen=True, slots=True)
class CycleResult:
    """Everything one cycle decided.

    Attributes:
        number: of the cycle, from 1.
        heads: how many workloads were looked at.
        admitted, preempted, evicted, pending: the decisions, in the order in which they were made.
        replaced: keys of older slices of elastic jobs whose place an admitted one takes: they end.
        is_settled: nothing moved and nothing was parked: another cycle would find the same.
    """

    number: int
    heads: int
    admitted: tuple[Admit, ...] = field(default=())
    preempted: tuple[Preempt, ...] = field(default=())
    evicted: tuple[Evict, ...] = field(default=())
    pending: tuple[Pending, ...] = field(default=())
    replaced: tuple[str, ...] = field(default=())
    is_settled: bool = True

    @property
    def has_moved(self) -> bool:
        """Whether anything was admitted or preempted; without, the next cycle may wait."""
        return bool(self.admitted or self.preempted or self.evicted)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All decisions: preemptions first, then evictions, admissions, and what waits."""
        return (*self.preempted, *self.evicted, *self.admitted, *self.pending)
