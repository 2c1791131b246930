"""Exports as their readers see them: one's own, as long as one still sees what is in them."""

from __future__ import annotations

from django.db.models import QuerySet

from budgets.models import BillingTerms, Export, ExportPlan, User
from budgets.selectors.billing.months import UTC_ZONE
from budgets.selectors.roles import roles_of, visible_workspaces


def visible_exports(user: User) -> QuerySet[Export]:
    """Exports that a user asked for, the newest first; nobody sees another's."""
    if roles_of(user).user_id is None:
        return Export.objects.none()
    return Export.objects.filter(requested_by=user).select_related("operation", "requested_by")


def visible_export_plans(user: User) -> QuerySet[ExportPlan]:
    """Plans of a user that still run; nobody sees another's."""
    if roles_of(user).user_id is None:
        return ExportPlan.objects.none()
    return ExportPlan.objects.filter(made_by=user, removed_at=None)


def export_for(user: User, key: int) -> Export:
    """One export of the user.

    Raises:
        Export.DoesNotExist: It is not there, or somebody else's.
    """
    return visible_exports(user).get(pk=key)


def export_file_for(user: User, key: int) -> Export:
    """An export whose file the user may fetch now.

    Raises:
        Export.DoesNotExist: It is not there, somebody else's, not ready, removed, or holds rows
            that the user sees no longer.
    """
    export = export_for(user, key)
    if not export.is_ready or not still_sees(user, export):
        raise Export.DoesNotExist
    return export


def still_sees(user: User, export: Export) -> bool:
    """Whether everything in the file is still visible to the user."""
    if export.scope is None:
        return roles_of(user).sees_everything
    visible = set(visible_workspaces(user, include_archived=True).values_list("pk", flat=True))
    return visible.issuperset(export.scope)


def billing_zones() -> list[str]:
    """Zones whose months are billed: UTC, and those of the accounts' terms."""
    zones = BillingTerms.objects.order_by("zone").values_list("zone", flat=True).distinct()
    return [UTC_ZONE, *(zone for zone in zones if zone != UTC_ZONE)]
