"""Tables of the enforcement: clusters, what was applied there, what was seen there."""

from __future__ import annotations

from clusters.models.cluster import Cluster, ClusterHealth, ShiftRun
from clusters.models.sync import AppliedGeneration, Drift, ObjectState
from clusters.models.workload import WorkloadEvent, WorkloadState

__all__ = [
    "AppliedGeneration",
    "Cluster",
    "ClusterHealth",
    "Drift",
    "ObjectState",
    "ShiftRun",
    "WorkloadEvent",
    "WorkloadState",
]
