"""Bringing the months' outlooks up to date."""

from __future__ import annotations

from datetime import datetime

from budgets.models import MonthOutlook, Workspace
from budgets.selectors.alerts import month_window, shown, workspace_outlook
from budgets.selectors.clock import utc_now
from budgets.services.usage.rows import upsert

AMOUNTS = ("spent", "expected", "low", "high")


def refresh_outlooks(now: datetime | None = None) -> int:
    """Work out the outlook of every workspace anew; how many have one.

    Without prices there is none, and what an archived workspace had is dropped.

    Args:
        now: UTC; None for the present.
    """
    instant = now or utc_now()
    rows: list[MonthOutlook] = []
    for workspace in Workspace.objects.filter(archived_at=None).order_by("pk"):
        found, currency = workspace_outlook(workspace, instant)
        if not currency:
            continue
        window = month_window(workspace.account_id, instant)
        rows.append(
            MonthOutlook(
                workspace=workspace,
                month_start=window.start,
                month_end=window.end,
                currency=currency,
                **{name: shown(getattr(found, name)) for name in AMOUNTS},
                days_known=found.days_known,
                worked_out_at=instant,
            )
        )
    upsert(rows)
    MonthOutlook.objects.exclude(worked_out_at=instant).delete()
    return len(rows)
