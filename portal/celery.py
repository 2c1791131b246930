"""The Celery app, its queues and the whole beat schedule.

Queues by purpose: ``shift`` holds the long tasks, one slot per (cluster, role), and nothing else;
``sync`` what is short and should be quick; ``meter`` what may take its time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from celery import Celery, bootsteps
from celery.signals import (
    celeryd_after_setup,
    heartbeat_sent,
    import_modules,
    task_postrun,
    task_prerun,
    worker_ready,
    worker_shutting_down,
)
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")


@import_modules.connect  # type: ignore[untyped-decorator]  # celery has no types
def require_settings(**kwargs: Any) -> None:
    """Before workers and beat read anything else, and before Celery's own look at Django."""
    import django

    django.setup()
    from portal import checks

    checks.require_settings()


TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), "portal.redis_broker:Transport"))
app = Celery("portal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

BEAT: Final = (
    # name, task, queue, seconds from one to the next, and after which one that nobody took is
    # dropped
    ("fill shifts", "clusters.tasks.fill_shifts", "sync", 2.0, 4),
    ("check health", "clusters.tasks.check_health", "sync", 5.0, 5),
    ("rotate tokens", "clusters.tasks.rotate_tokens", "sync", 60.0, 60),
    ("advance what is in force", "budgets.advance_in_force", "sync", 5.0, 5),
    ("carry out actions on jobs", "clusters.tasks.run_workload_actions", "sync", 5.0, 5),
    ("advance maintenance", "clusters.tasks.advance_maintenance", "sync", 5.0, 5),
    ("measure maintenance", "clusters.tasks.measure_maintenance", "sync", 60.0, 60),
    ("note forecasts", "clusters.tasks.note_forecasts", "meter", 300.0, 300),
    ("settle spend rules", "budgets.settle_spending", "sync", 5.0, 5),
    ("run exports", "budgets.run_exports", "meter", 15.0, 15),
    ("meter usage", "budgets.meter_usage", "meter", 10.0, 10),
    ("refresh outlooks", "budgets.refresh_outlooks", "meter", 300.0, 300),
    ("raise alerts", "budgets.raise_alerts", "meter", 60.0, 60),
    ("deliver alerts", "budgets.deliver_alerts", "meter", 15.0, 15),
    ("send the audit log on", "budgets.stream_audit", "meter", 15.0, 15),
    ("seal the ledger", "budgets.seal_ledger", "meter", 3_600.0, 3_600),
    ("verify the ledger", "budgets.verify_ledger", "meter", 86_400.0, 3_600),
    ("retire raw events", "clusters.tasks.retire_events", "meter", 86_400.0, 3_600),
)
app.conf.beat_schedule = {
    name: {"task": task, "schedule": every, "options": {"expires": expires}}
    for name, task, _, every, expires in BEAT
}
# All others are "sync", as the settings say.
app.conf.task_routes = {
    "clusters.tasks.run_shift": {"queue": "shift"},
    **{task: {"queue": queue} for _, task, queue, _, _ in BEAT},
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


@heartbeat_sent.connect  # type: ignore[untyped-decorator]  # celery has no types
def touch_heartbeat(**kwargs: Any) -> None:
    """Say to whoever watches the file that this worker still has its broker.

    Workers take no commands from the broker, so nobody can ask them for it there. Beat touches it
    with each turn of its loop.
    """
    path = os.environ.get("PORTAL_HEARTBEAT_FILE")
    if path:
        Path(path).touch()


@worker_ready.connect  # type: ignore[untyped-decorator]  # celery has no types
def show_times(**kwargs: Any) -> None:
    """With PORTAL_METRICS_PORT, a worker shows how long its tasks take."""
    from django.conf import settings

    if not settings.PORTAL_METRICS_PORT:
        return
    from portal import metrics

    times = metrics.TaskTimes()
    task_prerun.connect(times.begun, weak=False)
    task_postrun.connect(times.ended, weak=False)
    metrics.serve(settings.PORTAL_METRICS_PORT)


class HandOver(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """A worker that ends gives its Leases back first, whatever it ends of.

    It waits for what it works on: shifts would go on, and none be taken, for as long as they last.
    """

    requires = ("celery.worker.components:Pool",)

    def close(self, worker: Any) -> None:
        """Before the pool stops."""
        hand_over_shifts()


app.steps["worker"].add(HandOver)


@worker_shutting_down.connect  # type: ignore[untyped-decorator]  # celery has no types
def hand_over_shifts(**kwargs: Any) -> None:
    """At once when it is told to end, and not only when its loop comes to that."""
    from clusters.tasks import hand_over

    hand_over()
