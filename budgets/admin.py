"""Django's admin: a look at every table. Promises and ledger change through the services only."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
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
class PortalUserAdmin(UserAdmin):  # type: ignore[type-arg]  # not subscriptable at run time
    """Names, e-mail, active or not; roles and passwords are given in the portal."""

    list_display = ("username", "email", "is_active", "last_login")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """People stay in the log; switch them off instead."""
        return False


@admin.register(models.AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    """The log."""

    list_display = ("at", "actor_name", "action", "subject", "reason")
    list_filter = ("action",)
    search_fields = ("subject", "actor_name")
    list_select_related = ("actor",)


@admin.register(models.BudgetRevision)
class BudgetRevisionAdmin(ReadOnlyAdmin):
    """Revisions."""

    list_display = ("budget_id", "number", "state", "author", "valid_from", "valid_until")
    list_filter = ("state",)
    list_select_related = ("author",)


@admin.register(models.Interval)
class IntervalAdmin(ReadOnlyAdmin):
    """The ledger's intervals."""

    list_display = ("cluster", "namespace", "workload", "flavor", "gpus", "start", "end", "state")
    list_filter = ("state", "kind")
    search_fields = ("namespace", "uid")


@admin.register(models.UsageRecord)
class UsageRecordAdmin(ReadOnlyAdmin):
    """Hour facts."""

    list_display = ("workspace", "flavor", "hour", "committed_used", "burst", "lent", "idle")
    list_select_related = ("workspace", "flavor")


@admin.register(models.ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """Tokens without their digests."""

    list_display = ("name", "user", "prefix", "scope", "expires_at", "revoked_at")
    exclude = ("digest",)
    list_select_related = ("user",)


admin.site.register(
    [
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
        models.WorkloadUsage,
        models.Workspace,
    ],
    ReadOnlyAdmin,
)


@admin.register(models.RateCard)
class RateCardAdmin(ReadOnlyAdmin):
    """Price lists."""

    list_display = ("name", "account", "currency", "state", "valid_from")
    list_filter = ("state",)
    list_select_related = ("account",)


@admin.register(models.Statement)
class StatementAdmin(ReadOnlyAdmin):
    """Statements and credit notes."""

    list_display = ("number", "account", "period", "kind", "state", "payable", "currency")
    list_filter = ("state", "kind")
    list_select_related = ("account", "period")


@admin.register(models.Discrepancy)
class DiscrepancyAdmin(ReadOnlyAdmin):
    """What disagrees with the ledger."""

    list_display = ("kind", "cluster", "subject", "flavor", "start", "end", "state")
    list_filter = ("kind", "state", "cluster")


@admin.register(models.Correction)
class CorrectionAdmin(ReadOnlyAdmin):
    """Differences to closed facts."""

    list_display = ("account", "workspace", "flavor", "start", "committed", "burst", "lent")
    list_filter = ("table",)
    list_select_related = ("account", "workspace")
