"""What was promised, asked for and not given while windows of maintenance held, from hour facts."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F, Sum

from budgets.models import UsageRecord
from budgets.selectors import utc_now
from budgets.units import apportion
from clusters.models import MaintenanceFloor, MaintenanceWindow

State = MaintenanceWindow.State
# Hours are metered late, and corrected; what was not given is added up anew for so long.
SETTLES_FOR = timedelta(hours=48)
HOUR = timedelta(hours=1)


def measure_maintenance(*, now: datetime | None = None) -> int:
    """Add up what was promised, asked for and not given under windows; returns how many.

    Of every hour a floor's shortfall counts as far as the workspace had jobs waiting, and at most
    the part of the floor that stands under the window. Under overlapping windows the same hour
    shows in each.
    """
    instant = now or utc_now()
    recent = MaintenanceWindow.objects.filter(
        state__in=(State.ACTIVE, State.OVER),
        starts_at__lt=instant,
        ends_at__gt=instant - SETTLES_FOR,
    )
    for window in recent:
        _measure(window, min(window.until, instant))
    return len(recent)


def _measure(window: MaintenanceWindow, until: datetime) -> None:
    floors = list(window.floors.all())
    first = window.starts_at.replace(minute=0, second=0, microsecond=0)
    hours = UsageRecord.objects.filter(
        workspace__in={row.workspace_id for row in floors}, hour__gte=first, hour__lt=until
    )
    facts: dict[tuple[int, datetime], dict[int, tuple[int, int]]] = {}
    for workspace, hour, flavor, short, pending in (
        hours.order_by()
        .values_list("workspace", "hour", "flavor")
        .annotate(short=Sum(F("committed") - F("committed_used")), waited=Sum("pending"))
    ):
        facts.setdefault((workspace, hour), {})[flavor] = (short, pending)
    unmet = dict.fromkeys((row.pk for row in floors), 0)
    for (workspace, hour), flavors in facts.items():
        covered = min(until, hour + HOUR) - max(window.starts_at, hour)
        seconds = max(0, int(covered.total_seconds()))
        own = [row for row in floors if row.workspace_id == workspace]
        short = [max(0, min(flavors.get(r.flavor_id, (0, 0))[0], r.gpus * seconds)) for r in own]
        asked = sum(waited for _, waited in flavors.values())
        missing = min(sum(short), asked)
        for row, part in zip(own, apportion(missing, weights=short), strict=True):
            unmet[row.pk] += part
    changed = [row for row in floors if row.unmet != unmet[row.pk]]
    for row in changed:
        row.unmet = unmet[row.pk]
    MaintenanceFloor.objects.bulk_update(changed, ["unmet"], batch_size=500)
