"""The newest state of a Workload, for pages: a function of its recorded events."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from budgets.intervals import WorkloadFacts
from clusters.models import WorkloadEvent, WorkloadState

Phase = WorkloadState.Phase
Type = WorkloadEvent.Type
DEACTIVATED = "Deactivated"
FAILED = "Failed"
COUNTED = (Phase.RUNNING, Phase.EVICTED)
HOLDING = (Phase.RESERVED, *COUNTED)
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


@dataclass(frozen=True, slots=True)
class Recorded:
    """A stored event, read."""

    pk: int
    cluster: str
    uid: str
    resource_version: str
    type: Type
    observed_at: datetime
    last_seen_at: datetime | None
    payload: Mapping[str, Any]
    facts: WorkloadFacts

    @property
    def order(self) -> tuple[int, int, int]:
        """Later states compare greater; a deletion comes after the state that it ended."""
        version = int(self.resource_version) if self.resource_version.isdecimal() else 0
        return version, _RANK[self.type], self.pk


def state_of(events: Sequence[Recorded], *, cluster_id: int) -> WorkloadState:
    """The state that the events of one Workload on one cluster come to.

    Args:
        events: All of them, at least one, in any order.
        cluster_id: Primary key of the cluster.

    Returns:
        An unsaved row.
    """
    newest = max(events, key=lambda event: event.order)
    facts = newest.facts
    conditions = _conditions(newest)
    gpus = held_gpus(facts)
    phase = phase_of(newest)
    reason, message = _why(phase, facts, conditions)
    is_gone = newest.type != Type.SEEN
    return WorkloadState(
        cluster_id=cluster_id,
        uid=newest.uid,
        namespace=facts.namespace,
        name=facts.name,
        is_remote_copy=bool(facts.origin),
        job_kind=facts.job_kind[:63],
        job_name=facts.job_name,
        queue=facts.queue,
        priority=facts.priority,
        phase=phase,
        reason=reason[:120],
        message=message,
        gpus=gpus,
        gpu_total=sum(gpus.values()),
        worker=facts.cluster_name[:40],
        created_at=facts.created_at,
        reserved_at=_since(facts, "QuotaReserved"),
        admitted_at=_since(facts, "Admitted"),
        finished_at=_since(facts, "Finished") or (newest.observed_at if is_gone else None),
        evictions=_evictions(events, newest),
        resource_version=newest.resource_version,
    )


def phase_of(event: Recorded) -> Phase:
    """The phase of a Workload; what finished stays finished when its object is cleaned up."""
    facts = event.facts
    conditions = _conditions(event)
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
    given_back = dict(facts.reclaimable)
    found: dict[str, int] = {}
    for part in facts.assignments:
        pods = max(0, part.count - given_back.get(part.pod_set, 0))
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


def _why(
    phase: Phase, facts: WorkloadFacts, conditions: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str]:
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


def _conditions(event: Recorded) -> dict[str, Mapping[str, Any]]:
    entries = (event.payload.get("status") or {}).get("conditions") or []
    return {str(entry.get("type")): entry for entry in entries}


def _is(facts: WorkloadFacts, kind: str) -> bool:
    return any(entry.type == kind and entry.status for entry in facts.conditions)


def _since(facts: WorkloadFacts, kind: str) -> datetime | None:
    found = (entry.since for entry in facts.conditions if entry.type == kind and entry.status)
    return next(found, None)


def _evictions(events: Collection[Recorded], newest: Recorded) -> int:
    """Counted by the cluster, or as many as were seen, whichever is more."""
    stats = (newest.payload.get("status") or {}).get("schedulingStats") or {}
    counted = sum(int(entry.get("count") or 0) for entry in stats.get("evictions") or [])
    seen = {_since(event.facts, "Evicted") for event in events} - {None}
    return max(counted, len(seen))
