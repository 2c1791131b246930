"""The Celery app, its queues and the whole beat schedule.

Queues by purpose: ``shift`` holds the long tasks, one slot per (cluster, role), and nothing else;
``sync`` what is short and should be quick; ``meter`` what may take its time.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import celeryd_after_setup, worker_shutting_down

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

app = Celery("portal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

app.conf.task_routes = {
    "clusters.tasks.run_shift": {"queue": "shift"},
    "budgets.meter_usage": {"queue": "meter"},
    "budgets.run_exports": {"queue": "meter"},
    "budgets.refresh_outlooks": {"queue": "meter"},
    "budgets.raise_alerts": {"queue": "meter"},
    "budgets.deliver_alerts": {"queue": "meter"},
    "clusters.tasks.*": {"queue": "sync"},
    "budgets.*": {"queue": "sync"},
}
app.conf.beat_schedule = {
    "fill shifts": {
        "task": "clusters.tasks.fill_shifts",
        "schedule": 2.0,
        "options": {"expires": 4},
    },
    "check health": {
        "task": "clusters.tasks.check_health",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "rotate tokens": {
        "task": "clusters.tasks.rotate_tokens",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "advance what is in force": {
        "task": "budgets.advance_in_force",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "carry out actions on jobs": {
        "task": "clusters.tasks.run_workload_actions",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "advance maintenance": {
        "task": "clusters.tasks.advance_maintenance",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "measure maintenance": {
        "task": "clusters.tasks.measure_maintenance",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "settle spend rules": {
        "task": "budgets.settle_spending",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "run exports": {
        "task": "budgets.run_exports",
        "schedule": 15.0,
        "options": {"expires": 15},
    },
    "meter usage": {"task": "budgets.meter_usage", "schedule": 10.0, "options": {"expires": 10}},
    "refresh outlooks": {
        "task": "budgets.refresh_outlooks",
        "schedule": 300.0,
        "options": {"expires": 300},
    },
    "raise alerts": {"task": "budgets.raise_alerts", "schedule": 60.0, "options": {"expires": 60}},
    "deliver alerts": {
        "task": "budgets.deliver_alerts",
        "schedule": 15.0,
        "options": {"expires": 15},
    },
}


@celeryd_after_setup.connect  # type: ignore[untyped-decorator]  # celery has no types
def require_shift_slots(instance: Any, **kwargs: Any) -> None:
    """Refuse to start a shift worker that cannot hold every shift; said in one line."""
    if "shift" not in instance.app.amqp.queues.consume_from:
        return
    from clusters.reconcile.claims import slot_fault

    fault = slot_fault(slots=instance.concurrency)
    if fault:
        raise SystemExit(f"celery worker: {fault}")


@worker_shutting_down.connect  # type: ignore[untyped-decorator]  # celery has no types
def hand_over_shifts(**kwargs: Any) -> None:
    """A worker that is told to end gives its leases back first."""
    from clusters.tasks import STOPPING

    STOPPING.set()
