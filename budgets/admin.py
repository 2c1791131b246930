"""Django's admin: a look at every table. Promises and ledger change through the services only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Group
from django.db.models import Model
from django.http import HttpRequest

from budgets import models


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not subscriptable at run time
    """Shows rows and changes none: a change here would raise no generation and leave no trace."""

    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Never."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Never."""
        return False


@admin.register(models.User)
class PortalUserAdmin(ReadOnlyAdmin):
    """Who there is; people are added, changed and switched off in the portal, with an audit."""

    list_display = ("username", "email", "is_active", "last_login")
    search_fields = ("username", "email")
    exclude = ("password",)


admin.site.unregister(Group)


PLAIN = (
    models.Account,
    models.AccountUsage,
    models.Allocation,
    models.Budget,
    models.BudgetLine,
    models.Capacity,
    models.CapacityHour,
    models.CapacityWatch,
    models.Envelope,
    models.ExportPlan,
    models.Flavor,
    models.FlavorClock,
    models.JobLabel,
    models.MeasuredCapacity,
    models.Membership,
    models.MeterState,
    models.Operation,
    models.PendingSpan,
    models.Pool,
    models.PoolAllocation,
    models.PoolAmount,
    models.PoolShare,
    models.RateTier,
    models.UsageLabel,
    models.WorkloadUsage,
    models.Workspace,
)
"""Shown as Django shows a table of which it is told nothing."""


def show(table: type[Model], columns: str, **options: Any) -> None:
    """Shows a table: these columns in its list, and further options of Django's admin."""
    admin.site.register(table, ReadOnlyAdmin, list_display=columns.split(), **options)


admin.site.register(PLAIN, ReadOnlyAdmin)
show(
    models.AuditEntry,
    "at actor_name action subject reason",
    list_filter=("action",),
    search_fields=("subject", "actor_name"),
    list_select_related=("actor",),
)
show(
    models.BudgetRevision,
    "budget_id number state author valid_from valid_until",
    list_filter=("state",),
    list_select_related=("author",),
)
show(
    models.Interval,
    "cluster namespace workload flavor gpus start end state",
    list_filter=("state", "kind"),
    search_fields=("namespace", "uid"),
)
show(
    models.UsageRecord,
    "workspace flavor hour committed_used burst lent idle",
    list_select_related=("workspace", "flavor"),
)
# Tokens without their digests.
show(
    models.ApiToken,
    "name user prefix scope expires_at revoked_at",
    exclude=("digest",),
    list_select_related=("user",),
)
show(
    models.RateCard,
    "name account currency state valid_from",
    list_filter=("state",),
    list_select_related=("account",),
)
show(
    models.Statement,
    "number account period kind state payable currency",
    list_filter=("state", "kind"),
    list_select_related=("account", "period"),
)
show(
    models.Discrepancy,
    "kind cluster subject flavor start end state",
    list_filter=("kind", "state", "cluster"),
)
show(
    models.Correction,
    "account workspace flavor start committed burst lent",
    list_filter=("table",),
    list_select_related=("account", "workspace"),
)
