"""Thin Celery tasks of promises and meter; their beat entries and queues: portal/celery.py."""

from __future__ import annotations

from celery import shared_task

from budgets import services


@shared_task(name="budgets.advance_in_force", time_limit=300)  # type: ignore[untyped-decorator]  # celery has no types
def advance_in_force() -> dict[str, int]:
    """Let window edges take effect; idempotent, so an overlap or a repeat is harmless."""
    return {"changed": len(services.advance_in_force())}


@shared_task(name="budgets.meter_usage", time_limit=1800)  # type: ignore[untyped-decorator]  # celery has no types
def meter_usage() -> dict[str, int]:
    """Bring the hour facts up to date; a second meter waits for the lock and finds nothing."""
    summary = services.meter_usage()
    return {"written": summary.written, "removed": summary.removed}
