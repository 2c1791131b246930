"""Short histories written by hand, as an observer would have been told them."""

from __future__ import annotations

import itertools
from typing import Any

from tests.faults.invariants import Facts
from tests.faults.observer import JOBS, QUEUES, WORKLOADS, Told
from tests.faults.timeline import ATTEMPT, GPU, MANAGER, ORIGIN, PREBUILT

OURS = "ours"
CHECK = "dispatch"
_versions = itertools.count(1)


def facts(**changes: Any) -> Facts:
    """Grace of 10 s, 8 GPUs on each worker."""
    return Facts(OURS, 10.0, {MANAGER: 16, "w1": 8, "w2": 8}, **changes)


def told(
    at: float, cluster: str, kind: str, document: dict[str, Any], change: str = "MODIFIED"
) -> Told:
    document["metadata"]["resourceVersion"] = str(next(_versions))
    return Told(at, cluster, kind, change, document)


def workload(*conditions: str, name: str = "wl", gpus: int = 8, **status: Any) -> dict[str, Any]:
    """A Workload with conditions that are True, ``Type`` or ``Type=Reason``."""
    entries = []
    for text in conditions:
        kind, _, reason = text.partition("=")
        entries.append({"type": kind, "status": "True", "reason": reason or kind})
    if "QuotaReserved" in conditions:
        usage = {"name": "main", "flavors": {GPU: "h100"}, "resourceUsage": {GPU: str(gpus)}}
        status.setdefault("admission", {"clusterQueue": "q", "podSetAssignments": [usage]})
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {},
        "status": {"conditions": entries, **status},
    }


def running(worker: str, **status: Any) -> dict[str, Any]:
    """The manager's Workload while it runs on a worker."""
    return workload("QuotaReserved", clusterName=worker, admissionChecks=[check("Ready")], **status)


def check(state: str) -> dict[str, str]:
    return {"name": CHECK, "state": state}


def job(uid: str, *, attempt: str = "1", ended: str = "", origin: str = OURS) -> dict[str, Any]:
    """A Job on a worker that belongs to the Workload ``wl``."""
    return {
        "metadata": {
            "name": "train",
            "namespace": "ns",
            "uid": uid,
            "labels": {ORIGIN: origin} if origin else {},
            "annotations": {PREBUILT: "wl", ATTEMPT: attempt},
        },
        "spec": {},
        "status": {"conditions": [{"type": ended, "status": "True"}] if ended else []},
    }


def life(
    cluster: str, document: dict[str, Any], begin: float, end: float | None = None
) -> list[Told]:
    """An object that is made and, perhaps, deleted again."""
    kind = JOBS if "train" in document["metadata"]["name"] else WORKLOADS
    made = told(begin, cluster, kind, document, "ADDED")
    return [made] if end is None else [made, told(end, cluster, kind, document, "DELETED")]


def queue(name: str, **status: Any) -> tuple[str, dict[str, Any]]:
    return QUEUES, {"metadata": {"name": name, "uid": name}, "status": status}
