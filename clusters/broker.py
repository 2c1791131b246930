"""The way to the Celery workers: what is announced becomes a task, at once where a broker answers.

A word is only speed: beat finds the same work by itself, so a broker that is down is logged and
forgotten.
"""

from __future__ import annotations

from typing import Any

import structlog
from celery import current_app
from kombu.exceptions import KombuError, OperationalError

from budgets.announcements import Work, announced

log = structlog.stdlib.get_logger(__name__)

TASKS = {
    Work.SYNC: "clusters.tasks.nudge_sync",
    Work.EXPORTS: "budgets.run_exports",
    Work.ACTIONS: "clusters.tasks.run_workload_actions",
}
BROKER_ERRORS = (KombuError, OperationalError, OSError)


def listen() -> None:
    """Send a task for everything that is announced; called once, when the apps are ready."""
    announced.connect(_send_announced, dispatch_uid=__name__)


def _send_announced(work: Work, **_: object) -> None:
    send(TASKS[work])


def send(task: str, *arguments: str) -> bool:
    """Hand a task to the broker; False when there is none."""
    given: dict[str, Any] = {"args": arguments} if arguments else {}
    try:
        current_app.send_task(task, retry=False, ignore_result=True, **given)
    except BROKER_ERRORS as error:
        log.warning("task_not_sent", task=task, error=type(error).__name__)
        return False
    return True


def is_broker_reachable() -> bool:
    """Whether a task would arrive now; for the readiness address."""
    try:
        with current_app.connection_for_write(connect_timeout=1) as connection:
            connection.ensure_connection(max_retries=0, timeout=1)
    except BROKER_ERRORS as error:
        log.warning("broker_unreachable", error=type(error).__name__)
        return False
    return True
