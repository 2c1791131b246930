"""Thin Celery tasks of promises and meter; their beat entries and queues: portal/celery.py."""

from __future__ import annotations

import threading
from typing import Final

import structlog
from celery import shared_task

from budgets import services
from budgets.services import alerts, billing, spending
from budgets.services.exports import plans as export_plans
from budgets.services.exports import runs as exports
from budgets.services.usage import outlooks

log = structlog.stdlib.get_logger(__name__)

_METERING: Final = threading.Lock()


@shared_task(name="budgets.advance_in_force", time_limit=300)  # type: ignore[untyped-decorator]  # celery has no types
def advance_in_force() -> dict[str, int]:
    """Let window edges take effect; idempotent, so an overlap or a repeat is harmless."""
    return {"changed": len(services.advance_in_force())}


@shared_task(name="budgets.meter_usage", time_limit=1800)  # type: ignore[untyped-decorator]  # celery has no types
def meter_usage() -> dict[str, int]:
    """Bring the hour facts up to date; one that runs already goes as far as this one would.

    Waiting for its lock in the database would take a slot of this worker each time, until none is
    left for those who fill shifts.
    """
    if not _METERING.acquire(blocking=False):
        return {}
    try:
        summary = services.meter_usage()
    finally:
        _METERING.release()
    return {"written": summary.written, "removed": summary.removed}


@shared_task(name="budgets.run_exports", time_limit=3000)  # type: ignore[untyped-decorator]  # celery has no types
def run_exports() -> dict[str, int]:
    """Ask for what plans want, then write what waits; each is written once, whoever looks."""
    planned = export_plans.run_plans()
    return {"planned": planned, **exports.run_exports()}


@shared_task(name="budgets.raise_alerts", time_limit=600)  # type: ignore[untyped-decorator]  # celery has no types
def raise_alerts() -> dict[str, int]:
    """Look at every alert rule; a rule is met once in its window however often this runs."""
    found = alerts.raise_alerts()
    return {"looked_at": found.looked_at, "raised": found.raised}


@shared_task(name="budgets.deliver_alerts", time_limit=600)  # type: ignore[untyped-decorator]  # celery has no types
def deliver_alerts() -> dict[str, int]:
    """Send what is due; each delivery is claimed by one worker."""
    done = alerts.deliver_alerts()
    return {"sent": done.sent, "failed": done.failed}


@shared_task(name="budgets.stream_audit", time_limit=1800)  # type: ignore[untyped-decorator]  # celery has no types
def stream_audit() -> dict[str, int]:
    """Send the audit log on; each receiver's next batch is claimed by one worker."""
    return alerts.stream_audit()


@shared_task(name="budgets.refresh_outlooks", time_limit=1800)  # type: ignore[untyped-decorator]  # celery has no types
def refresh_outlooks() -> dict[str, int]:
    """Bring the outlooks of the months up to date; pages read them, nobody is billed by them."""
    return {"workspaces": outlooks.refresh_outlooks()}


@shared_task(name="budgets.settle_spending", time_limit=120)  # type: ignore[untyped-decorator]  # celery has no types
def settle_spending() -> dict[str, int]:
    """Let spend rules take effect that were reached, and those go that are not any more."""
    found = spending.settle_spending()
    return {"looked_at": found.looked_at, "changed": len(found.changed)}


@shared_task(name="budgets.seal_ledger", time_limit=600)  # type: ignore[untyped-decorator]  # celery has no types
def seal_ledger() -> dict[str, int]:
    """Seal what was written to the audit log, prices, adjustments and numbers since the last."""
    try:
        seal = billing.make_seal()
    except billing.BrokenSeal as broken:
        log.error("ledger_broken", broken=" ".join(broken.args))
        return {"rows": 0}
    return {"rows": seal.rows if seal else 0}


@shared_task(name="budgets.verify_ledger", time_limit=3000)  # type: ignore[untyped-decorator]  # celery has no types
def verify_ledger() -> dict[str, object]:
    """Work the chain of closed months out again; what is broken is in the log and the audit log."""
    found = billing.verify_chain()
    if found.broken is not None:
        log.error("ledger_broken", broken=str(found.broken))
        services.audit(None, "ledger.broken", "ledger", reason=str(found.broken))
    return {"periods": found.periods, "rows": found.rows, "is_whole": found.broken is None}
