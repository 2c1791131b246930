"""The newest state of a Workload, for pages: a function of its recorded events."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from budgets.intervals import WorkloadEvent as LedgerEvent
from budgets.intervals import WorkloadFacts, lives
from clusters.documents.keys import version_number
from clusters.documents.queues import FLEET_QUEUE
from clusters.models import Cluster, WorkloadEvent, WorkloadState

Phase = WorkloadState.Phase
Type = WorkloadEvent.Type
DEACTIVATED = "Deactivated"
FAILED = "Failed"
COUNTED = (Phase.RUNNING, Phase.EVICTED)
HOLDING = (Phase.RESERVED, *COUNTED)
_ORDER = attrgetter("order")
# The condition that says why a Workload is in a phase; QuotaReserved for the rest.
_TOLD_BY = {
    Phase.FINISHED: "Finished",
    Phase.FAILED: "Finished",
    Phase.EVICTED: "Evicted",
    Phase.RUNNING: "Admitted",
    Phase.GONE: "",
}
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
        return version_number(self.seen.resource_version), _RANK[self.type], self.pk


def state_of(
    events: Sequence[Recorded], origins: Collection[str], *, is_owned: bool = False
) -> tuple[Any, ...]:
    """The state that the events of one Workload on one cluster come to.

    Args:
        events: All of them, at least one, in any order.
        origins: Marks of copies that this fleet's managers make.
        is_owned: A manager has a Workload of the name: then any mark makes it a copy of that.

    Returns:
        Values of :data:`WRITTEN`, in that order.
    """
    newest = _newest(events) if len(events) > 1 else events[0]
    facts = newest.facts
    gpus = held_gpus(facts)
    phase = phase_of(newest)
    reason, message = _why(phase, newest)
    is_gone = newest.type != Type.SEEN
    return (
        facts.namespace,
        facts.name,
        facts.origin in origins or (bool(facts.origin) and is_owned),
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
        _evictions(events, newest),
        newest.seen.resource_version,
    )


def _newest(events: Sequence[Recorded]) -> Recorded:
    """Of the last life, where the cluster came back with an older past."""
    readable = [event.seen for event in events if event.seen.resource_version.isdecimal()]
    last = {id(seen) for seen in (lives(readable)[-1] if readable else ())}
    return max([event for event in events if id(event.seen) in last] or events, key=_ORDER)


def phase_of(event: Recorded) -> Phase:
    """The phase of a Workload; what finished stays finished when its object is cleaned up."""
    facts = event.facts
    finished = facts.condition("Finished")
    if finished is not None and finished.status:
        return Phase.FAILED if finished.reason == FAILED else Phase.FINISHED
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
        return {"": facts.requested_gpus} if facts.requested_gpus else {}
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
    # A manager that runs jobs itself has none of the GPUs of those that it dispatched.
    rows = rows.exclude(cluster__role=Cluster.Role.MANAGER, queue=FLEET_QUEUE)
    for gpus in rows.values_list("gpus", flat=True):
        for flavor, count in gpus.items():
            found[flavor] = found.get(flavor, 0) + count
    return found


class _Told(Struct, frozen=True):
    """A condition in words."""

    type: str = ""
    reason: str | None = None
    message: str | None = None


class _Status(Struct, frozen=True):
    conditions: list[_Told] = []


class _Shown(Struct, frozen=True):
    """What of a stored Workload is shown and not counted."""

    status: _Status


_SHOWN = Decoder(_Shown)


def _why(phase: Phase, event: Recorded) -> tuple[str, str]:
    """Reason and message that say why the Workload is in its phase."""
    entries = _SHOWN.decode(event.payload).status.conditions
    if phase is Phase.PENDING and not event.facts.is_active:
        told = next((entry.message for entry in entries if entry.type == "Evicted"), None)
        return DEACTIVATED, told or "The workload is deactivated"
    kind = _TOLD_BY.get(phase, "QuotaReserved")
    for entry in entries:
        if entry.type == kind:
            return entry.reason or "", entry.message or ""
    return "", ""


def _is(facts: WorkloadFacts, kind: str) -> bool:
    return facts.true_since(kind) is not None


def _evictions(events: Collection[Recorded], newest: Recorded) -> int:
    """Counted by the cluster, or as many as were seen, whichever is more."""
    seen = {event.seen.facts.true_since("Evicted") for event in events} - {None}
    return max(newest.facts.evictions, len(seen))
