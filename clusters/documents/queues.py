"""Names of the two queues of a workspace where a cluster runs jobs itself and dispatches others."""

from __future__ import annotations

from typing import Final

FLEET_QUEUE: Final = "fleet"
"""LocalQueue of jobs that go to a worker, on a manager whose queue ``default`` is its own."""

_DISPATCHED: Final = ".fleet"


def dispatched_queue(namespace: str) -> str:
    """ClusterQueue behind ``fleet``. With a dot: no namespace has one, so no name is taken."""
    return f"{namespace}{_DISPATCHED}"


def is_for_workers(cluster_queue: str) -> bool:
    """Whether a ClusterQueue is one behind ``fleet``: its quota is used on workers."""
    return cluster_queue.endswith(_DISPATCHED)


def workspace_of(cluster_queue: str) -> str:
    """Namespace of the workspace that one of the portal's ClusterQueues belongs to."""
    return cluster_queue.removesuffix(_DISPATCHED)
