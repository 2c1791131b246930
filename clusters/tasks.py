"""Thin Celery tasks of enforcement; their queues and beat entries are in portal/celery.py."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from celery import current_app, shared_task
from django.conf import settings

from clusters import services
from clusters.models import Cluster
from clusters.reconcile import claims
from clusters.reconcile.processes import Order, Processes, work
from clusters.reconcile.shift import Ending
from clusters.reconcile.usage import retention

OFFER_EXPIRES_S = 6
STOPPING = threading.Event()
"""Set when this worker is told to end: every shift of it hands over."""
PROCESSES = Processes(memory=settings.SHIFT_MEMORY_MB * 1024**2)
"""Of the clusters whose shifts this worker has; without a limit of memory all are worked here."""
_HEALTH, _TOKENS, _ACTIONS = threading.Lock(), threading.Lock(), threading.Lock()


@contextmanager
def _alone(turn: threading.Lock) -> Iterator[bool]:
    """Whether no other round of the same is under way here.

    One that waited for it, or for the same slow cluster, would take slot after slot of this worker.
    """
    is_ours = turn.acquire(blocking=False)
    try:
        yield is_ours
    finally:
        if is_ours:
            turn.release()


@shared_task(name="clusters.tasks.fill_shifts", expires=OFFER_EXPIRES_S, time_limit=60)  # type: ignore[untyped-decorator]  # celery has no types
def fill_shifts() -> dict[str, int]:
    """Offer every shift that nobody alive works on; an offer that nobody takes expires."""
    wanted = {(cluster.pk, role): cluster.slug for cluster, role in claims.wanted_shifts()}
    missing = claims.unfilled(wanted)
    for pair in missing:
        run_shift.apply_async(args=(wanted[pair], pair[1]), expires=OFFER_EXPIRES_S, retry=False)
    return {"wanted": len(wanted), "offered": len(missing)}


@shared_task(name="clusters.tasks.run_shift", acks_late=False, reject_on_worker_lost=False)  # type: ignore[untyped-decorator]  # celery has no types
def run_shift(slug: str, role: str) -> str:
    """Work one shift: the one long task; a lost one is offered anew by `fill_shifts`."""
    holder = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    order = Order(slug, role, settings.SHIFT_SECONDS, holder)
    is_apart = settings.SHIFT_MEMORY_MB > 0
    outcome = PROCESSES.work(order) if is_apart else work(order, STOPPING)
    if outcome.ending in (Ending.HANDED_OVER, Ending.CHANGED):
        current_app.send_task("clusters.tasks.fill_shifts", retry=False)
    return str(outcome)


def hand_over() -> None:
    """Have every shift of this worker given back; it is told to end."""
    STOPPING.set()
    PROCESSES.stop()


@shared_task(name="clusters.tasks.nudge_sync", expires=30, time_limit=60)  # type: ignore[untyped-decorator]  # celery has no types
def nudge_sync() -> dict[str, int]:
    """After a change: running shifts see it by themselves; make sure that each has one."""
    return fill_shifts()  # type: ignore[no-any-return]  # celery has no types


@shared_task(name="clusters.tasks.check_health", expires=10, time_limit=120)  # type: ignore[untyped-decorator]  # celery has no types
def check_health() -> dict[str, bool]:
    """Health of the clusters that no shift looks at."""
    with _alone(_HEALTH) as is_ours:
        return services.check_health() if is_ours else {}


@shared_task(name="clusters.tasks.rotate_tokens", time_limit=600)  # type: ignore[untyped-decorator]  # celery has no types
def rotate_tokens() -> list[str]:
    """Renew the tokens that dispatch uses, long before they end."""
    with _alone(_TOKENS) as is_ours:
        return services.rotate_due_tokens() if is_ours else []


@shared_task(name="clusters.tasks.run_workload_actions", expires=30, time_limit=300)  # type: ignore[untyped-decorator]  # celery has no types
def run_workload_actions() -> dict[str, int]:
    """Carry out what people want done to single jobs; state → how many came to it."""
    with _alone(_ACTIONS) as is_ours:
        return services.run_workload_actions() if is_ours else {}


@shared_task(name="clusters.tasks.advance_maintenance", expires=10, time_limit=60)  # type: ignore[untyped-decorator]  # celery has no types
def advance_maintenance() -> dict[str, int]:
    """Begin and end windows of maintenance."""
    return services.advance_maintenance()


@shared_task(name="clusters.tasks.measure_maintenance", expires=60, time_limit=300)  # type: ignore[untyped-decorator]  # celery has no types
def measure_maintenance() -> int:
    """Add up what was promised and not given under windows; how many were looked at."""
    return services.measure_maintenance()


@shared_task(name="clusters.tasks.note_forecasts", expires=300, time_limit=120)  # type: ignore[untyped-decorator]  # celery has no types
def note_forecasts() -> dict[str, int]:
    """Note what is said of waiting jobs' starts, and whether what was said held."""
    return services.note_forecasts()


@shared_task(name="clusters.tasks.retire_events", time_limit=3000)  # type: ignore[untyped-decorator]  # celery has no types
def retire_events() -> dict[str, int]:
    """Take raw events away that nothing can come of any more; who runs beside it waits for it."""
    done = retention.retire_events()
    return {"workloads": done.workloads, "events": done.events, "left": done.left}


@shared_task(name="clusters.tasks.look_at_job", expires=60, time_limit=120)  # type: ignore[untyped-decorator]  # celery has no types
def look_at_job(operation_id: str) -> str:
    """Read the objects of one job on its clusters and say what is wrong with them."""
    return services.look_at_job(operation_id)


@shared_task(name="clusters.tasks.run_preflight", time_limit=300)  # type: ignore[untyped-decorator]  # celery has no types
def run_preflight(slug: str, operation_id: str | None = None) -> int:
    """Examine one cluster and store the table; returns the number of rows."""
    cluster = Cluster.objects.filter(slug=slug).exclude(state=Cluster.State.REMOVED).first()
    if cluster is None:
        return 0
    return len(services.run_preflight(None, cluster=cluster, operation_id=operation_id).rows)
