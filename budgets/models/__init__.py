"""Tables of the promises: who, what capacity, which budgets, what was used, who changed what.

Rules that the database keeps are in each model's ``Meta``; rules that need more than one row
are in :mod:`budgets.services`. A cluster is named by its slug, never by a foreign key, so that
this app knows nothing of :mod:`clusters`.
"""

from __future__ import annotations

from budgets.models.access import ApiToken, Membership, Role, User
from budgets.models.audit import AuditEntry, Operation
from budgets.models.budget import Allocation, Budget, BudgetLine, BudgetRevision
from budgets.models.fleet import (
    Account,
    Capacity,
    Envelope,
    Flavor,
    FlavorClock,
    MeasuredCapacity,
    Pool,
    PoolAllocation,
    PoolAmount,
    PoolShare,
    Workspace,
)
from budgets.models.usage import (
    AccountUsage,
    Interval,
    MeterState,
    PendingSpan,
    UsageRecord,
    WorkloadUsage,
)

__all__ = [
    "Account",
    "AccountUsage",
    "Allocation",
    "ApiToken",
    "AuditEntry",
    "Budget",
    "BudgetLine",
    "BudgetRevision",
    "Capacity",
    "Envelope",
    "Flavor",
    "FlavorClock",
    "Interval",
    "MeasuredCapacity",
    "Membership",
    "MeterState",
    "Operation",
    "PendingSpan",
    "Pool",
    "PoolAllocation",
    "PoolAmount",
    "PoolShare",
    "Role",
    "UsageRecord",
    "User",
    "WorkloadUsage",
    "Workspace",
]
