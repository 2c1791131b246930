"""Tables of the promises: who, what capacity, which budgets, what was used, who changed what.

Rules that the database keeps are in each model's ``Meta``; rules that need more than one row
are in :mod:`budgets.services`. A cluster is named by its slug, never by a foreign key, so that
this app knows nothing of :mod:`clusters`.
"""

from __future__ import annotations

from budgets.models.access import (
    ApiToken,
    GroupRule,
    Identity,
    Membership,
    RecoveryCode,
    Role,
    SecondFactor,
    User,
)
from budgets.models.alerts import Alert, AlertRule, AuditStream, Delivery, Webhook
from budgets.models.approvals import Approval, Installation, Proposal
from budgets.models.audit import AuditEntry, Operation
from budgets.models.billing import (
    BillingPeriod,
    BillingTerms,
    ExchangeRate,
    RateCard,
    RatePrice,
    RateTier,
    SpotPrice,
)
from budgets.models.budget import Allocation, Budget, BudgetLine, BudgetRevision
from budgets.models.exports import Export, ExportPlan
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
    Topology,
    Workspace,
)
from budgets.models.reconciliation import CapacityHour, CapacityWatch, Discrepancy
from budgets.models.saved_views import SavedView
from budgets.models.spending import BreakGlass, SpendEffect, SpendRule
from budgets.models.statements import (
    Adjustment,
    Correction,
    LedgerBlock,
    NumberSeries,
    Seal,
    Statement,
    StatementLine,
    StatementLook,
)
from budgets.models.usage import (
    AccountHour,
    AccountUsage,
    ClusterHour,
    Interval,
    JobLabel,
    MeterState,
    MonthOutlook,
    PendingSpan,
    PlatformHour,
    UsageLabel,
    UsageRecord,
    WorkloadUsage,
    WorkspaceDay,
)
