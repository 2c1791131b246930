"""Reads for pages and API: what was seen on the clusters, limited to what a person may see."""

from __future__ import annotations

from clusters.selectors.acted import action_for, actions_on, stuck_actions
from clusters.selectors.bars import BudgetBar, bars_now, sorted_workspaces, workload_counts
from clusters.selectors.cluster_detail import ClusterDetail, cluster_detail, objects_of
from clusters.selectors.differences import shadow_report
from clusters.selectors.dispatch import OfferRow, dispatch_races, dispatch_trail
from clusters.selectors.explained import (
    WhyPending,
    askable_about_nodes,
    askable_workspaces,
    first_start,
    questions_for,
    stored_why,
    why_pending,
)
from clusters.selectors.fleet import (
    cluster_for,
    cluster_names,
    cluster_rows,
    lost_clusters,
    removed_clusters,
    visible_clusters,
)
from clusters.selectors.guard import incidents_of
from clusters.selectors.kueue_versions import VersionRow, kueue_versions
from clusters.selectors.maintenance import (
    visible_windows,
    window_for,
    windows_of,
    windows_over,
    worker_at_stake,
)
from clusters.selectors.overview import ClusterToday, clusters_today, job_counts
from clusters.selectors.places import submitted_on
from clusters.selectors.preemptions import newest_preempted, preemptions_of, recent_preemptions
from clusters.selectors.previews import preview_manifests
from clusters.selectors.racks import (
    FlavorDomains,
    labels_seen,
    largest_domains,
    level_word,
    nodes_of,
    standings,
)
from clusters.selectors.rights import generated_rights, rights_documents, rights_yaml
from clusters.selectors.search import Found, search
from clusters.selectors.shares import contest_of, contests, fair_clusters, with_weight
from clusters.selectors.sync import sync_state
from clusters.selectors.workload_detail import WorkloadDetail, workload_detail, workload_hours
from clusters.selectors.workloads import (
    WorkloadFilter,
    WorkloadRow,
    jobs_now,
    workloads,
    workloads_csv,
)
