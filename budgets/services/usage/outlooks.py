"""Bringing the months' outlooks up to date."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from budgets.models import MonthOutlook, Workspace
from budgets.selectors.alerts import month_window, workspace_outlook
from budgets.selectors.clock import utc_now
from budgets.services.usage.rows import upsert


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
                spent=_cents(found.spent),
                expected=_cents(found.expected),
                low=_cents(found.low),
                high=_cents(found.high),
                days_known=found.days_known,
                worked_out_at=instant,
            )
        )
    upsert(rows)
    MonthOutlook.objects.exclude(worked_out_at=instant).delete()
    return len(rows)


def _cents(amount: float) -> Decimal:
    return Decimal(amount).quantize(Decimal("0.01"))
