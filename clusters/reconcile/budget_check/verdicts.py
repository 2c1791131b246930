"""What the spend rules of a namespace say now, not older than half a second.

Asking also lets a rule take effect that was just reached, so that quota sync stops the queue in the
same breath. A database that does not answer gives no verdict, and the job goes on waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog
from django.db import DatabaseError, connection

from budgets.services.spending import settle_spending, settle_workspace
from budgets.spending import QueueEffect

log = structlog.stdlib.get_logger(__name__)

LASTS_S: Final = 0.5
SETTLE_S: Final = 2.0
Clock = Callable[[], datetime]


class Verdicts:
    """Owned by one thread.

    Args:
        cluster: For logs.
        now: The body's clock.
    """

    def __init__(self, cluster: str, now: Clock) -> None:
        self._cluster, self._now = cluster, now
        self._known: dict[str, tuple[float, QueueEffect]] = {}
        self._settled_at = 0.0

    def of(self, namespace: str) -> QueueEffect | None:
        """The effect of a namespace's rules; None while the database does not answer."""
        known = self._known.get(namespace)
        if known is not None and time.monotonic() - known[0] < LASTS_S:
            return known[1]
        try:
            effect = settle_workspace(namespace, self._now())
        except DatabaseError as error:
            self._lost(error)
            return None
        self._known[namespace] = time.monotonic(), effect
        return effect

    def settle(self) -> bool:
        """Look at every rule, when it is time to; whether it was done."""
        if time.monotonic() - self._settled_at < SETTLE_S:
            return False
        self._settled_at = time.monotonic()
        self._known.clear()
        try:
            settle_spending(self._now())
        except DatabaseError as error:
            self._lost(error)
            return False
        except ExceptionGroup as errors:
            # Each is logged where it happened; the other budgets were settled.
            log.warning(
                "spend_settled_in_part", cluster=self._cluster, errors=len(errors.exceptions)
            )
        return True

    def _lost(self, error: DatabaseError) -> None:
        log.warning("spend_unknown", cluster=self._cluster, error=type(error).__name__)
        connection.close()
