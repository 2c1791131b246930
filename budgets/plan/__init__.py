"""Promises in, quota per cluster out. Pure: no database, no clock, no client.

Here, once: *committed* C is the nominal quota, the *ceiling* B ("burst up to") gives a borrowing
limit of B - C, *lendable* L is the lending limit. ``words`` holds the vocabulary, ``drafts`` what
somebody asks for, ``timeline`` and ``fleet`` whether it fits, ``split`` where it stands, ``quota``
what a cluster gets, ``reach`` what it is worth and whom it touches.
"""

from __future__ import annotations

from budgets.plan.drafts import (
    MOST_GPUS,
    FlavorTerms,
    Part,
    RevisionDraft,
    check_draft,
    is_whole_gpus,
    name_of,
    part_of,
    short_form_lines,
)
from budgets.plan.fleet import (
    FleetLevel,
    Room,
    check_envelope,
    check_fleet,
    check_pool_envelope,
    levels_at,
    rooms,
)
from budgets.plan.quota import changed_subjects, plan_quota, trying_order
from budgets.plan.reach import ImpactRow, Reach, impact, reach
from budgets.plan.split import Split, SplitRequest, split_line
from budgets.plan.timeline import (
    DatedGpus,
    EnvelopeLimits,
    FleetTimeline,
    RevisionSpan,
    amounts_at,
    capacity_at,
    edges,
    in_force_at,
)
from budgets.plan.words import (
    HOST_FLAVOR,
    MAINTENANCE_TAINT,
    POOL_PREFIX,
    USUAL_WEIGHT,
    AccountPromise,
    ClusterPlace,
    CohortPlan,
    FlavorPromise,
    Line,
    PoolPromise,
    Promises,
    QueuePlan,
    QueueQuota,
    QuotaPlan,
    Spill,
    StopPolicy,
    TopologyPromise,
    WorkspacePromise,
    strongest_stop,
)
