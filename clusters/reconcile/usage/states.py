"""The newest state of a Workload, for pages: a function of its recorded events."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.json import decode

from budgets.intervals import WorkloadEvent as LedgerEvent
from budgets.intervals import WorkloadFacts
from clusters.models import WorkloadEvent, WorkloadState

Phase = WorkloadState.Phase
Type = WorkloadEvent.Type
DEACTIVATED = "Deactivated"
FAILED = "Failed"
COUNTED = (Phase.RUNNING, Phase.EVICTED)
HOLDING = (Phase.RESERVED, *COUNTED)
_ORDER = attrgetter("order")
Conditions = Mapping[str, Mapping[str, Any]]
_RANK = {Type.SEEN: 0, Type.MISSING: 1, Type.DELETED: 2}
# Everything that an event can change.
WRITTEN = (
    "namespace",
    "name",
    "is_remote_copy",
    "job_kind",
    "job_name",
    "queue",
    "priority",
    "phase",
    "reason",
    "message",
    "gpus",
    "gpu_total",
    "worker",
    "created_at",
    "reserved_at",
    "admitted_at",
    "finished_at",
    "evictions",
    "resource_version",
)


class Recorded(Struct, frozen=True):
    """A stored event, read.

    Attributes:
        payload: As it is stored, JSON.
        seen: The event as the ledger knows it.
    """

    pk: int
    type: Type
    payload: str
    seen: LedgerEvent

    @property
    def facts(self) -> WorkloadFacts:
        return self.seen.facts

    @property
    def order(self) -> tuple[int, int, int]:
        """Later states compare greater; a deletion comes after the state that it ended."""
        version = self.seen.resource_version
        return int(version) if version.isdecimal() else 0, _RANK[self.type], self.pk


def state_of(events: Sequence[Recorded]) -> tuple[Any, ...]:
    """The state that the events of one Workload on one cluster come to.

    Args:
        events: All of them, at least one, in any order.

    Returns:
        Values of :data:`WRITTEN`, in that order.
    """
    newest = max(events, key=_ORDER) if len(events) > 1 else events[0]
    facts = newest.facts
    status = decode(newest.payload)["status"]
    conditions = _conditions(status)
    gpus = held_gpus(facts)
    phase = phase_of(newest, conditions)
    reason, message = _why(phase, facts, conditions)
    is_gone = newest.type != Type.SEEN
    return (
        facts.namespace,
        facts.name,
        bool(facts.origin),
        facts.job_kind[:63],
        facts.job_name,
        facts.queue,
        facts.priority,
        phase.value,
        reason[:120],
        message,
        gpus,
        sum(gpus.values()),
        facts.cluster_name[:40],
        facts.created_at,
        facts.true_since("QuotaReserved"),
        facts.true_since("Admitted"),
        facts.true_since("Finished") or (newest.seen.observed_at if is_gone else None),
        _evictions(events, status),
        newest.seen.resource_version,
    )


def phase_of(event: Recorded, conditions: Conditions) -> Phase:
    """The phase of a Workload; what finished stays finished when its object is cleaned up."""
    facts = event.facts
    if _is(facts, "Finished"):
        is_failed = conditions.get("Finished", {}).get("reason") == FAILED
        return Phase.FAILED if is_failed else Phase.FINISHED
    if event.type != Type.SEEN:
        return Phase.GONE
    if _is(facts, "QuotaReserved") and (_is(facts, "Evicted") or facts.deleting_since is not None):
        return Phase.EVICTED
    if _is(facts, "Admitted"):
        return Phase.RUNNING
    return Phase.RESERVED if _is(facts, "QuotaReserved") else Phase.PENDING


def held_gpus(facts: WorkloadFacts) -> dict[str, int]:
    """Flavor → GPUs held, less what pods gave back; the request under "" before admission."""
    if not facts.assignments:
        total = sum(pod_set.count * pod_set.gpus for pod_set in facts.pod_sets)
        return {"": total} if total else {}
    found: dict[str, int] = {}
    for part in facts.assignments:
        pods = facts.pods_kept(part)
        gpus = part.gpus * pods // part.count if part.count else 0
        if gpus:
            found[part.flavor] = found.get(part.flavor, 0) + gpus
    return found


def held_on(cluster_id: int, *, phases: Collection[Phase] = HOLDING) -> dict[str, int]:
    """Flavor → GPUs that Workloads hold on a cluster at this moment. One query.

    Args:
        cluster_id: Primary key.
        phases: :data:`HOLDING`, or :data:`COUNTED` for what was admitted.
    """
    found: dict[str, int] = {}
    rows = WorkloadState.objects.filter(cluster_id=cluster_id, phase__in=phases)
    for gpus in rows.values_list("gpus", flat=True):
        for flavor, count in gpus.items():
            found[flavor] = found.get(flavor, 0) + count
    return found


def _why(phase: Phase, facts: WorkloadFacts, conditions: Conditions) -> tuple[str, str]:
    """Reason and message that say why the Workload is in its phase."""
    if phase is Phase.PENDING and not facts.is_active:
        told = conditions.get("Evicted") or {}
        return DEACTIVATED, str(told.get("message") or "The workload is deactivated")
    kind = {
        Phase.FINISHED: "Finished",
        Phase.FAILED: "Finished",
        Phase.EVICTED: "Evicted",
        Phase.RUNNING: "Admitted",
        Phase.GONE: "",
    }.get(phase, "QuotaReserved")
    told = conditions.get(kind) or {}
    return str(told.get("reason") or ""), str(told.get("message") or "")


def _conditions(status: Mapping[str, Any]) -> Conditions:
    return {str(entry.get("type")): entry for entry in status.get("conditions") or []}


def _is(facts: WorkloadFacts, kind: str) -> bool:
    return facts.true_since(kind) is not None


def _evictions(events: Collection[Recorded], status: Mapping[str, Any]) -> int:
    """Counted by the cluster, or as many as were seen, whichever is more."""
    stats = status.get("schedulingStats") or {}
    counted = sum(int(entry.get("count") or 0) for entry in stats.get("evictions") or [])
    seen = {event.seen.facts.true_since("Evicted") for event in events} - {None}
    return max(counted, len(seen))
