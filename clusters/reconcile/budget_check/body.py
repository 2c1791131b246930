"""The shift of the portal's own AdmissionCheck: one thread decides, a few write."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from clusters.errors import ClusterError, Conflict, LeaseLost, NotFound
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.manifests.names import spend_controller
from clusters.reconcile.budget_check.answer import (
    activation,
    answer,
    entry_of,
    waits_for_answer,
    was_rejected,
)
from clusters.reconcile.budget_check.verdicts import Verdicts
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.runtime.watches import Change, Seen, Watches, taken
from clusters.reconcile.runtime.writer import Hook, Write, Writer, WritingStopped, no_fault

log = logging.getLogger(__name__)

Document = dict[str, Any]
TICK_S: Final = 0.1
THREADS: Final = 8
RETRY_FIRST_S, RETRY_CAP_S = 0.1, 5.0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of one write: the object as it is now, or why there is none."""

    document: Document | None = None
    was_written: bool = False
    error: ClusterError | None = None


class BudgetCheckBody:
    """One shift on one manager, whoever decides there: Kueue or the portal's admission shift.

    Args:
        context: The shift.
        hook: Called around every write; for tests.
    """

    def __init__(self, context: ShiftContext, *, hook: Hook = no_fault) -> None:
        self._context = context
        self._controller = spend_controller(context.cluster.installation)
        self._verdicts = Verdicts(context.cluster.slug, context.now)
        self._inbox: queue.SimpleQueue[Seen] = queue.SimpleQueue()
        self._checks: dict[str, Document] = {}
        self._workloads: dict[str, Document] = {}
        self._dirty: dict[str, None] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        self._pool = ThreadPoolExecutor(THREADS, f"{context.cluster.slug}-spend-write")
        self._watches = Watches(
            context.client,
            cluster=context.cluster.slug,
            pulse=context.pulse,
            sink=self._inbox.put,
        )
        self._writer = Writer(
            context.client,
            cluster=context.cluster.slug,
            fence=context.fence,
            may_write=lambda: context.cluster.may_write,
            hook=hook,
        )

    def run(self) -> None:
        """Works until the shift ends.

        Raises:
            LeaseLost: nothing was written after it.
        """
        try:
            self.open()
            while not self._context.stop.is_set():
                self.turn()
        finally:
            self.close()

    def open(self) -> None:
        """Begins to watch, and waits for the first whole lists."""
        self._context.report_watch_age(self._watches.age)
        for resource in (r.ADMISSION_CHECK, r.WORKLOAD):
            self._watches.add(resource)
        if self._watches.wait_synced(self._context.stop):
            self._take_all(first=True)

    def close(self) -> None:
        """Ends what `open` began."""
        self._watches.close()
        self._pool.shutdown(cancel_futures=True)

    def turn(self) -> None:
        """Takes what came in, answers it, and looks at all rules when it is time to.

        Raises:
            LeaseLost: nothing was written after it.
        """
        self._take_all()
        if not self._context.cluster.may_write:
            return
        self._send(self._activations())
        self._send(self._answers())
        if self._verdicts.settle():
            # A cap may have been raised, or a window turned.
            self._mark(key for key, found in self._workloads.items() if self._is_back(found))

    # What comes in

    def _take_all(self, *, first: bool = False) -> None:
        for item in taken(self._inbox, wait_s=TICK_S, everything=first):
            if item.change is not Change.SYNCED:
                self._take(item.resource, item.document, is_gone=item.change is Change.DELETED)

    def _take(self, resource: Resource, document: Document, *, is_gone: bool = False) -> None:
        if resource == r.ADMISSION_CHECK:
            self._take_check(document, is_gone=is_gone)
            return
        key = _key(document)
        if is_gone or not (document.get("status") or {}).get("admissionChecks"):
            self._workloads.pop(key, None)
            self._failures.pop(key, None)
            return
        known = self._workloads.get(key)
        if known is not None and _is_older(document, known):
            return
        self._workloads[key] = document
        self._dirty[key] = None

    def _take_check(self, document: Document, *, is_gone: bool) -> None:
        name = document["metadata"]["name"]
        is_ours = (document.get("spec") or {}).get("controllerName") == self._controller
        if is_gone or not is_ours:
            self._checks.pop(name, None)
            return
        if name not in self._checks:
            self._mark(self._workloads)
        known = self._checks.get(name)
        if known is None or not _is_older(document, known):
            self._checks[name] = document

    def _mark(self, keys: Iterable[str]) -> None:
        self._dirty.update(dict.fromkeys(keys))

    def _is_back(self, workload: Document) -> bool:
        return any(was_rejected(workload, check) for check in self._checks)

    # What goes out

    def _activations(self) -> list[tuple[str, Write]]:
        now = self._context.now()
        found = []
        for name, check in self._checks.items():
            write = activation(check, controller=self._controller, now=now)
            if write is not None and self._is_due(name):
                found.append((name, write))
        return found

    def _answers(self) -> list[tuple[str, Write]]:
        """The next write of everything that something happened to; at most one each."""
        keys, self._dirty = list(self._dirty), {}
        found = []
        for key in keys:
            workload = self._workloads.get(key)
            check = self._check_of(workload) if workload is not None else ""
            if workload is None or not check:
                continue
            effect = self._verdicts.of(workload["metadata"]["namespace"])
            if effect is None or not self._is_due(key):
                self._dirty[key] = None
                continue
            now = self._context.now()
            write = answer(workload, check, effect, controller=self._controller, now=now)
            if write is not None:
                found.append((key, write))
        return found

    def _check_of(self, workload: Document) -> str:
        """A check of ours that something is to be said for; empty when there is none."""
        for check in self._checks:
            listed = entry_of(workload, check)
            if listed and (waits_for_answer(workload, check) or was_rejected(workload, check)):
                return check
        return ""

    def _send(self, writes: list[tuple[str, Write]]) -> None:
        """Carries writes out beside one another, and takes what the cluster says to each."""
        outcomes = self._pool.map(lambda pair: self._sent(pair[1]), writes)
        for (key, write), outcome in zip(writes, outcomes, strict=True):
            if outcome.document is not None:
                self._take(write.resource, outcome.document)
            if outcome.error is not None:
                self._failed(key, write, outcome.error)
            elif outcome.was_written:
                self._failures.pop(key, None)
                log.info(
                    "spend_answered cluster=%s key=%s step=%s",
                    self._context.cluster.slug, key, write.step,
                )  # fmt: skip

    def _sent(self, write: Write) -> _Outcome:
        """One write; after a conflict the object is read anew and decided on again."""
        try:
            return _Outcome(self._writer.send(write), was_written=True)
        except WritingStopped:
            return _Outcome()
        except LeaseLost:
            raise
        except Conflict as conflict:
            try:
                return _Outcome(
                    self._context.client.get(
                        write.resource, write.name, namespace=write.namespace or None
                    )
                )
            except ClusterError:
                return _Outcome(error=conflict)
        except ClusterError as error:
            return _Outcome(error=error)

    def _failed(self, key: str, write: Write, error: ClusterError) -> None:
        if isinstance(error, NotFound):
            return  # the watch tells that it is gone
        count = self._failures.get(key, (0, 0.0))[0] + 1
        wait_s = min(RETRY_CAP_S, RETRY_FIRST_S * 2 ** min(count, 10))
        self._failures[key] = count, time.monotonic() + wait_s
        self._mark([key] if key in self._workloads else ())
        log.warning(
            "write_failed cluster=%s key=%s step=%s reason=%s message=%s",
            self._context.cluster.slug, key, write.step, error.reason, error.message,
        )  # fmt: skip

    def _is_due(self, key: str) -> bool:
        return time.monotonic() >= self._failures.get(key, (0, 0.0))[1]


def _key(document: Document) -> str:
    metadata = document["metadata"]
    return f"{metadata.get('namespace') or ''}/{metadata['name']}"


def _is_older(document: Document, known: Document) -> bool:
    """A watch may still tell what our own write has already answered."""
    ours, theirs = document["metadata"], known["metadata"]
    if ours.get("uid") != theirs.get("uid"):
        return False
    return int(ours.get("resourceVersion") or 0) < int(theirs.get("resourceVersion") or 0)
