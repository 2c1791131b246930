"""Tables of the enforcement: clusters, what was applied there, what was seen there."""

from __future__ import annotations

from clusters.models.cluster import BeatLease, Cluster, ClusterHealth, NodeSight, ShiftRun
from clusters.models.dispatch import DispatchRound, GuardIncident, NominationWay
from clusters.models.explained import (
    ForecastMade,
    PendingReason,
    Question,
    QueueShare,
    ShadowDifference,
    ShadowTally,
)
from clusters.models.operating import MaintenanceFloor, MaintenanceWindow, WorkloadAction
from clusters.models.sync import AppliedGeneration, Drift, ObjectState
from clusters.models.workload import WorkloadEvent, WorkloadState
