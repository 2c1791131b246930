"""Whether everything has come to rest: every job at its end, nothing left, no quota held."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.faults.invariants import Facts
from tests.faults.observer import JOBS, QUEUES, WORKLOADS, Document
from tests.faults.timeline import MANAGER, ORIGIN, holds, is_true, labels, outcome


def unrest(now: Callable[[str, str], list[Document]], facts: Facts) -> Iterator[str]:
    """What is still open once faults have stopped; nothing when everything has come to rest.

    Args:
        now: (cluster, kind) → what is there.
        facts: Of the run.
    """
    for job in now(MANAGER, JOBS):
        if not outcome(job):
            yield f"{job['metadata']['name']} has not ended"
    for workload in now(MANAGER, WORKLOADS):
        if not is_true(workload, "Finished"):
            yield f"Workload {workload['metadata']['name']} is not Finished"
    for cluster in facts.quota:
        for kind in (JOBS, WORKLOADS):
            for item in now(cluster, kind) if cluster != MANAGER else ():
                if labels(item).get(ORIGIN) == facts.origin:
                    yield f"{cluster}: {kind.rpartition('/')[2]} {item['metadata']['name']} is left"
        yield from _quota_unrest(cluster, now)


def _quota_unrest(cluster: str, now: Callable[[str, str], list[Document]]) -> Iterator[str]:
    """Quota that is held, by what the queue says or by what the Workloads say."""
    counted = sum(holds(workload) for workload in now(cluster, WORKLOADS))
    if counted:
        yield f"{cluster}: Workloads hold {counted} GPUs"
    for queue in now(cluster, QUEUES):
        status = queue.get("status") or {}
        told = [
            int(resource.get("total") or 0)
            for flavor in status.get("flavorsReservation") or ()
            for resource in flavor["resources"]
            if resource["name"].endswith("/gpu")
        ]
        waiting = [status.get(name) or 0 for name in ("reservingWorkloads", "pendingWorkloads")]
        if sum(told) or sum(waiting):
            name = queue["metadata"]["name"]
            yield f"{cluster}: queue {name} says {told} GPUs, {waiting} reserving and pending"
