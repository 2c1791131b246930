"""Reads: named querysets and read models. What a user may not see does not exist here."""

from __future__ import annotations

from budgets.selectors.audit import (
    AUDIT_KEYS,
    AuditFilter,
    audit_entries,
    audit_file,
    audit_streams,
    held_budgets,
    last_hold,
)
from budgets.selectors.budget.future import promises_at
from budgets.selectors.budget.history import (
    budget_history,
    budget_news,
    draft_of,
    ending_revision,
    requests_waiting,
    revision_diff,
    revision_for,
    undoable,
    visible_requests,
    with_lines,
    with_reasons,
)
from budgets.selectors.budget.preview import (
    RevisionPreview,
    judge_draft,
    preview_reallocation,
    preview_revision,
    told_to,
)
from budgets.selectors.budget.promises import promises_in_force
from budgets.selectors.budget.timeline import (
    capacity_at,
    flavor_names,
    flavor_terms,
    fleet_timeline,
    free_rooms,
)
from budgets.selectors.clock import utc_now
from budgets.selectors.fleet.grid import FleetTotal, SetupStep, fleet_grid, setup_steps
from budgets.selectors.roles import (
    RoleSet,
    account_for,
    remembered_roles,
    roles_of,
    visible_accounts,
    visible_capacities,
    visible_envelopes,
    visible_flavors,
    visible_memberships,
    visible_pools,
    visible_topologies,
    visible_workspaces,
    workspace_for,
    workspace_names,
)
from budgets.selectors.usage.capacity import CapacityRow, CapacityUse, capacity_use
from budgets.selectors.usage.heat import HeatMap, usage_heat
from budgets.selectors.usage.idle import IdleRow, IdleTable, idle_floors
from budgets.selectors.usage.keys import usage_by_key
from budgets.selectors.usage.lending import CoverRow, Lending, LendingRow, PairRow, lending
from budgets.selectors.usage.metered import clock_settings
from budgets.selectors.usage.scope import UsageFilter, UsageScope
from budgets.selectors.usage.table import (
    Freshness,
    UsageRow,
    UsageTable,
    WorkloadUsageRow,
    add_up,
    freshness,
    usage_csv,
    usage_table,
    usage_totals,
    workload_usage,
)
