"""Telling the workers that there is something to do: only speed, sent once a change stands."""

from __future__ import annotations

import logging

from celery import current_app
from django.db import transaction
from kombu.exceptions import KombuError, OperationalError

from budgets.models import User

log = logging.getLogger(__name__)

Actor = User | None
SYNC_TASK = "clusters.tasks.nudge_sync"
PREFLIGHT_TASK = "clusters.tasks.run_preflight"
EXPORT_TASK = "budgets.run_exports"
ACTIONS_TASK = "clusters.tasks.run_workload_actions"
BROKER_ERRORS = (KombuError, OperationalError, OSError)


def nudge() -> None:
    """Ask the quota shifts of every cluster to look again, once this transaction stands.

    Every promise stands on the manager and on all workers, so all are affected.
    """
    transaction.on_commit(_send_nudge)


def _send_nudge() -> None:
    try:
        current_app.send_task(SYNC_TASK, retry=False, ignore_result=True)
    except BROKER_ERRORS as error:
        log.warning("nudge_not_sent error=%s", type(error).__name__)


def announce_export() -> None:
    """Ask for the files to be made, once this transaction stands; they are looked for anyway."""
    transaction.on_commit(_send_export)


def _send_export() -> None:
    try:
        current_app.send_task(EXPORT_TASK, retry=False, ignore_result=True)
    except BROKER_ERRORS as error:
        log.warning("export_not_announced error=%s", type(error).__name__)


def announce_actions() -> None:
    """Ask for what is to be done to jobs to be carried out, once this transaction stands."""
    transaction.on_commit(_send_actions)


def _send_actions() -> None:
    try:
        current_app.send_task(ACTIONS_TASK, retry=False, ignore_result=True)
    except BROKER_ERRORS as error:
        log.warning("actions_not_announced error=%s", type(error).__name__)


def is_broker_reachable() -> bool:
    """Whether a nudge would arrive now; for the readiness address."""
    try:
        with current_app.connection_for_write(connect_timeout=1) as connection:
            connection.ensure_connection(max_retries=0, timeout=1)
    except BROKER_ERRORS as error:
        log.warning("broker_unreachable error=%s", type(error).__name__)
        return False
    return True
