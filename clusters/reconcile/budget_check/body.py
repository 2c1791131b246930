"""The shift of the portal's own AdmissionCheck: who is asked about, and when to ask again.

What the spend rules of a namespace say is not older than half a second. Asking also lets a rule
take effect that was just reached, so that quota sync stops the queue in the same breath. A database
that does not answer gives no verdict, and the job goes on waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

import structlog
from django.db import DatabaseError, connection

from budgets.selectors.spending import namespaces_with_rules
from budgets.services.spending import settle_spending, settle_workspace
from budgets.spending import QueueEffect
from clusters.documents.keys import Document, key_of
from clusters.kube import resources as r
from clusters.manifests.names import spend_controller
from clusters.reconcile.budget_check.answer import (
    activation,
    answer,
    entry_of,
    waits_for_answer,
)
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.reactivation import was_rejected
from clusters.reconcile.runtime.cache import Index
from clusters.reconcile.runtime.controller import Controller, Watched
from clusters.reconcile.runtime.pool import Answer
from clusters.reconcile.runtime.queue import namespace_of
from clusters.reconcile.runtime.watches import Seen
from clusters.reconcile.runtime.writer import Hook, Write, no_fault

log = structlog.stdlib.get_logger(__name__)

AGAIN: Final = timedelta(seconds=0.1)
_CONTROLLER, _CHECK = "controller", "check"


class BudgetCheckBody(Controller[str]):
    """One shift on one manager, whoever decides there: Kueue or the portal's admission shift.

    Keys are those of Workloads, and names of AdmissionChecks.

    Args:
        context: The shift.
        hook: Called around every write; for tests.
    """

    tick_s = 1.0

    def __init__(self, context: ShiftContext, *, hook: Hook = no_fault) -> None:
        indexes = (
            Index(_CONTROLLER, frozenset({r.ADMISSION_CHECK}), _controller_of),
            Index(_CHECK, frozenset({r.WORKLOAD}), _checks_of),
        )
        super().__init__(context, hook=hook, indexes=indexes)
        self._controller = spend_controller(context.cluster.installation)
        self._verdicts = Verdicts(context.cluster.slug, context.now)

    def watched(self) -> Iterable[Watched]:
        """AdmissionChecks first: who is asked about hangs on them."""
        return Watched(r.ADMISSION_CHECK), Watched(r.WORKLOAD)

    def keys_of(self, seen: Seen) -> Iterable[str]:
        """A check concerns everybody who lists it."""
        key = key_of(seen.document)
        if seen.resource == r.ADMISSION_CHECK:
            return (key, *self._asking(key)) if key in self._checks() else ()
        return (key,) if _checks_of(seen.document) else ()

    def look(self) -> None:
        """Lets rules take effect that were reached, where nobody asks; brings back who may."""
        workloads = self.cache.of(r.WORKLOAD)
        if self.may_write and self._verdicts.settle(workloads):
            # A cap may have been raised, or a window turned.
            for check in self._checks():
                back = (k for k in self._asking(check) if was_rejected(workloads[k], check))
                self.queue.add_all(back)

    def decide(self, key: str) -> Write | None:
        """The next write about a Workload, or a check."""
        now = self.context.now()
        check = self.cache.get(r.ADMISSION_CHECK, key)
        if check is not None:
            return activation(check, controller=self._controller, now=now)
        workload = self.cache.get(r.WORKLOAD, key)
        name = self._check_of(workload) if workload is not None else ""
        if workload is None or not name:
            return None
        effect = self._verdicts.of(workload["metadata"]["namespace"])
        if effect is None:
            self.queue.add_at(key, now + AGAIN)
            return None
        return answer(workload, name, effect, controller=self._controller, now=now)

    def says(self, key: str) -> str:
        """Of what kind it is, and its name."""
        return f"Workload {key}" if "/" in key else f"AdmissionCheck {key}"

    def answered(self, answer: Answer[str]) -> None:
        """Tells it."""
        log.info(
            "spend_answered",
            cluster=self.context.cluster.slug,
            key=answer.key,
            step=answer.about.step,
        )

    def _checks(self) -> list[str]:
        """Names of the checks that are ours."""
        return [name for _, name in self.cache.places(_CONTROLLER, self._controller)]

    def _asking(self, check: str) -> list[str]:
        return [key for _, key in self.cache.places(_CHECK, check)]

    def _check_of(self, workload: Document) -> str:
        """A check of ours that something is to be said for; empty when there is none."""
        for check in self._checks():
            listed = entry_of(workload, check)
            if listed and (waits_for_answer(workload, check) or was_rejected(workload, check)):
                return check
        return ""


def _controller_of(check: Document) -> Iterable[str]:
    name = (check.get("spec") or {}).get("controllerName")
    return (str(name),) if name else ()


def _checks_of(workload: Document) -> Iterable[str]:
    entries = (workload.get("status") or {}).get("admissionChecks") or ()
    return tuple(str(entry["name"]) for entry in entries)


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

    def settle(self, workloads: Iterable[str]) -> bool:
        """Look at the rules of whoever has Workloads, when it is time to; whether it was done.

        Those of others are looked at by beat.
        """
        if time.monotonic() - self._settled_at < SETTLE_S:
            return False
        self._settled_at = time.monotonic()
        self._known.clear()
        try:
            namespaces = namespaces_with_rules()
            if namespaces:
                namespaces &= {namespace_of(key) for key in workloads}
            if namespaces:
                settle_spending(self._now(), namespaces=namespaces)
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
