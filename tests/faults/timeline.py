"""Readings of what the observer was told: Workloads over time, and the lives of Jobs on workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.faults.observer import JOBS, WORKLOADS, Document, Told

ORIGIN = "kueue.x-k8s.io/multikueue-origin"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
ATTEMPT = "gpu-budget-portal.dev/attempt"
GPU = "nvidia.com/gpu"
MANAGER = "manager"


@dataclass(slots=True)
class Life:
    """One object from its first to its last event; ``ended_at`` None while it is there."""

    cluster: str
    uid: str
    name: str
    told: list[Told] = field(default_factory=list)
    ended_at: float | None = None

    @property
    def began_at(self) -> float:
        return self.told[0].at

    @property
    def last(self) -> Document:
        return self.told[-1].document

    def at(self, moment: float) -> Document | None:
        """As it was then; None before it was made and after its end."""
        if self.ended_at is not None and moment >= self.ended_at:
            return None
        found = None
        for told in self.told:
            if told.at > moment:
                break
            found = told.document
        return found

    def within(self, begin: float, end: float) -> Iterator[Document | None]:
        """Every state that it may have had between two moments; None for not there."""
        yield self.at(begin)
        for told in self.told:
            if begin < told.at <= end:
                yield told.document
        if self.ended_at is not None and self.ended_at <= end:
            yield None

    def changes(self) -> Iterator[tuple[Document, Told]]:
        """(before, event) of each change; before is empty for the first."""
        before: Document = {}
        for told in self.told:
            if told.change != "DELETED":
                yield before, told
                before = told.document


def lives(history: Sequence[Told], kind: str) -> list[Life]:
    """Objects of a kind on all clusters, oldest first."""
    found: dict[tuple[str, str], Life] = {}
    for told in history:
        if told.kind != kind:
            continue
        life = found.setdefault((told.cluster, told.uid), Life(told.cluster, told.uid, told.name))
        life.told.append(told)
        if told.change == "DELETED":
            life.ended_at = told.at
    return list(found.values())


def workloads(history: Sequence[Told]) -> list[Life]:
    """The manager's."""
    return [life for life in lives(history, WORKLOADS) if life.cluster == MANAGER]


def copies(history: Sequence[Told], origin: str) -> list[Life]:
    """Jobs on workers that carry this manager's origin."""
    return [
        life
        for life in lives(history, JOBS)
        if life.cluster != MANAGER and labels(life.last).get(ORIGIN) == origin
    ]


def workload_of(copy: Life) -> str:
    """Name of the Workload that a Job on a worker belongs to."""
    metadata = copy.last["metadata"]
    for marks in (metadata.get("annotations") or {}, metadata.get("labels") or {}):
        if PREBUILT in marks:
            return str(marks[PREBUILT])
    return copy.name


def labels(document: Document) -> dict[str, str]:
    return document["metadata"].get("labels") or {}


def attempt(document: Document) -> str:
    return str((document["metadata"].get("annotations") or {}).get(ATTEMPT, ""))


def is_true(document: Document, kind: str) -> bool:
    return condition(document, kind).get("status") == "True"


def condition(document: Document, kind: str) -> Document:
    for entry in (document.get("status") or {}).get("conditions") or []:
        if entry["type"] == kind:
            return dict(entry)
    return {}


def chosen(document: Document) -> str:
    return str((document.get("status") or {}).get("clusterName") or "")


def outcome(job: Document) -> str:
    """``Complete``, ``Failed``, or nothing yet."""
    return next((kind for kind in ("Complete", "Failed") if is_true(job, kind)), "")


def checks(document: Document) -> dict[str, str]:
    """State by AdmissionCheck."""
    found = (document.get("status") or {}).get("admissionChecks") or []
    return {entry["name"]: entry["state"] for entry in found}


def is_reserved(document: Document) -> bool:
    return is_true(document, "QuotaReserved")


def holds(document: Document) -> int:
    """GPUs that it holds of its queue's quota."""
    if not is_reserved(document) or is_true(document, "Finished"):
        return 0
    admission = (document.get("status") or {}).get("admission") or {}
    usages = [pod_set.get("resourceUsage") or {} for pod_set in admission["podSetAssignments"]]
    return sum(int(usage.get(GPU, 0)) for usage in usages)


def runs_on(workload: Document) -> str:
    """The worker where the manager says that it runs; empty while it stops or has ended."""
    is_over = is_true(workload, "Evicted") or is_true(workload, "Finished")
    if is_over or workload["metadata"].get("deletionTimestamp") or not is_reserved(workload):
        return ""
    return chosen(workload)
