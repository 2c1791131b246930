"""Reads: named querysets and read models. What a user may not see does not exist here."""

from __future__ import annotations

from budgets.selectors.audit import audit_entries
from budgets.selectors.clock import utc_now
from budgets.selectors.fleet import (
    FleetCell,
    FleetGrid,
    FleetTotal,
    SetupStep,
    fleet_grid,
    setup_steps,
    unplaced_floor,
)
from budgets.selectors.fleet_rows import (
    visible_capacities,
    visible_envelopes,
    visible_memberships,
    visible_pools,
)
from budgets.selectors.future import promises_at
from budgets.selectors.history import (
    DiffRow,
    budget_history,
    requests_waiting,
    revision_diff,
    revision_for,
)
from budgets.selectors.impact import preview_reallocation
from budgets.selectors.metered import clock_settings
from budgets.selectors.preview import RevisionPreview, judge_draft, preview_revision
from budgets.selectors.promises import promises_in_force
from budgets.selectors.roles import (
    RoleSet,
    account_for,
    roles_of,
    visible_accounts,
    visible_flavors,
    visible_workspaces,
    workspace_for,
)
from budgets.selectors.timeline import capacity_at, flavor_terms, fleet_timeline, free_rooms
from budgets.selectors.usage import (
    Freshness,
    UsageFilter,
    UsageRow,
    UsageTable,
    WorkloadUsageRow,
    freshness,
    gpu_hours,
    usage_csv,
    usage_table,
    workload_usage,
)

__all__ = [
    "DiffRow",
    "FleetCell",
    "FleetGrid",
    "FleetTotal",
    "Freshness",
    "RevisionPreview",
    "RoleSet",
    "SetupStep",
    "UsageFilter",
    "UsageRow",
    "UsageTable",
    "WorkloadUsageRow",
    "account_for",
    "audit_entries",
    "budget_history",
    "capacity_at",
    "clock_settings",
    "flavor_terms",
    "fleet_grid",
    "fleet_timeline",
    "free_rooms",
    "freshness",
    "gpu_hours",
    "judge_draft",
    "preview_reallocation",
    "preview_revision",
    "promises_at",
    "promises_in_force",
    "requests_waiting",
    "revision_diff",
    "revision_for",
    "roles_of",
    "setup_steps",
    "unplaced_floor",
    "usage_csv",
    "usage_table",
    "utc_now",
    "visible_accounts",
    "visible_capacities",
    "visible_envelopes",
    "visible_flavors",
    "visible_memberships",
    "visible_pools",
    "visible_workspaces",
    "workload_usage",
    "workspace_for",
]
