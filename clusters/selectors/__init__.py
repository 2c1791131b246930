"""Reads for pages and API: what was seen on the clusters, limited to what a person may see."""

from __future__ import annotations

from clusters.selectors.bars import BudgetBar, bars_now, workload_counts
from clusters.selectors.fleet import (
    ClusterDetail,
    ClusterRow,
    DriftRow,
    ObjectRow,
    ShiftRow,
    StoredPreflight,
    StoredRow,
    TreeGroup,
    cluster_detail,
    cluster_for,
    cluster_rows,
    visible_clusters,
)
from clusters.selectors.previews import ClusterChanges, ManifestChange, preview_manifests
from clusters.selectors.rights import generated_rights, rights_documents, rights_yaml
from clusters.selectors.sync import SyncPlace, sync_state
from clusters.selectors.workload_detail import (
    TimelineEntry,
    WorkloadDetail,
    WorkloadHours,
    workload_detail,
    workload_hours,
)
from clusters.selectors.workloads import (
    WorkloadFilter,
    WorkloadPage,
    WorkloadRow,
    workloads,
)

__all__ = [
    "BudgetBar",
    "ClusterChanges",
    "ClusterDetail",
    "ClusterRow",
    "DriftRow",
    "ManifestChange",
    "ObjectRow",
    "ShiftRow",
    "StoredPreflight",
    "StoredRow",
    "SyncPlace",
    "TimelineEntry",
    "TreeGroup",
    "WorkloadDetail",
    "WorkloadFilter",
    "WorkloadHours",
    "WorkloadPage",
    "WorkloadRow",
    "bars_now",
    "cluster_detail",
    "cluster_for",
    "cluster_rows",
    "generated_rights",
    "preview_manifests",
    "rights_documents",
    "rights_yaml",
    "sync_state",
    "visible_clusters",
    "workload_counts",
    "workload_detail",
    "workload_hours",
    "workloads",
]
