"""Which rules a job's objects are asked, and what one cluster comes to."""

from __future__ import annotations

from typing import Final

from clusters.documents.conditions import is_true
from clusters.explaining.names import Names
from clusters.explaining.objects import queues
from clusters.explaining.objects.found import Objects, Trouble
from clusters.explaining.objects.refusing import REFUSING
from clusters.explaining.objects.unmade import UNMADE, first
from clusters.explaining.objects.unstarted import UNSTARTED

_QUEUE: Final = (
    queues.no_local_queue,
    queues.no_cluster_queue,
    queues.stopped_queue,
    queues.inactive_queue,
    queues.unselected_namespace,
)


def looked_at(found: Objects, names: Names) -> Trouble | None:
    """What the objects of one cluster say of why a job does not run; None for nothing.

    Of a worker nothing is said that could take the job.
    """
    workload = found.workload
    if found.role == "worker":
        if workload is None or not is_true(workload, "Admitted"):
            return first(REFUSING, found, names)
        return first(UNSTARTED, found, names)
    if workload is None:
        return first(UNMADE, found, names)
    if is_true(workload, "Finished"):
        return None
    if not is_true(workload, "QuotaReserved"):
        # Why there is no quota the page of the job says; here only what stops the whole queue.
        return first(_QUEUE, found, names)
    if found.role == "manager":
        return None if is_true(workload, "Admitted") else queues.unconnected(found, names)
    return first(UNSTARTED, found, names) if is_true(workload, "Admitted") else None
