"""The admission shift: one thread that knows and decides, others that listen and write.

Everything that happens, watch events as well as answers to own writes, goes through one inbox to
the deciding thread. What the engine decided counts at once and is written afterwards; a write that
fails is looked up and tried again, or taken back. Restarting reads everything anew.
"""

from __future__ import annotations

import gc
import logging
import queue
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from clusters.documents.keys import annotations_of
from clusters.documents.labels import SLICE_OF
from clusters.errors import ClusterError, NotFound
from clusters.jobs.table import JobKinds, kind_of, workload_keys
from clusters.kube import resources as r
from clusters.kube.client import Selection
from clusters.kube.resources import Resource
from clusters.kueue.cycle.decisions import CycleResult
from clusters.kueue.cycle.engine import Engine
from clusters.reconcile.admission.decided import Decided
from clusters.reconcile.admission.events import Known, events_of
from clusters.reconcile.admission.feed import Feed, feeding_rank
from clusters.reconcile.admission.held import Held
from clusters.reconcile.admission.herald import Herald
from clusters.reconcile.admission.image import (
    ENGINE_KINDS,
    OPTIONAL_KINDS,
    OTHER_KINDS,
    Image,
    object_key,
)
from clusters.reconcile.admission.next_writes import NextWrites
from clusters.reconcile.admission.outbox import Answer, Outbox
from clusters.reconcile.admission.patience import CyclePace, Patience
from clusters.reconcile.admission.queue_status import queue_keys
from clusters.reconcile.configured import settings_of
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.jobs.alarms import Alarms
from clusters.reconcile.runtime.watches import Change, Seen, Watches, taken
from clusters.reconcile.runtime.writer import Hook, Write, Writer, no_fault

log = logging.getLogger(__name__)

Document = dict[str, Any]

WRITERS: Final = 8
TICK_S: Final = 0.25
IN_FLIGHT_LIMIT: Final = 64
# How many keys are looked at in one round for one write that can wait.
LOOKS: Final = 50
_CAN_WAIT: Final = frozenset({"explain", "queue-status"})


class EngineReader:
    """Somebody who reads the warm engine, in the shift's own thread; this one does nothing."""

    def start(self) -> None:
        """The engine knows its cluster."""

    def close(self) -> None:
        """The shift ends."""

    def mark(self, keys: Iterable[str]) -> None:
        """Something new was decided about these workloads, which wait."""

    def work(self, engine: Engine, documents: Mapping[str, Document], *, now: datetime) -> None:
        """One short step of reading, once a round; `documents` are Workloads by key."""


class AdmissionBody:
    """One shift of admission on one cluster.

    Args:
        context: The shift.
        hook: Called around every write; for tests.
        reader: Explains what the engine knows; nobody by default.
    """

    def __init__(
        self, context: ShiftContext, *, hook: Hook = no_fault, reader: EngineReader | None = None
    ) -> None:
        self._context = context
        self._inbox: queue.SimpleQueue[Seen | Answer] = queue.SimpleQueue()
        self._configuration = context.cluster.kueue_configuration
        named = JobKinds(settings_of(self._configuration).kinds)
        self._kinds = {
            kind.resource: Selection(labels=kind.selector)
            for kind in named
            if kind.is_queued_here and not kind.is_required
        }
        self._image = Image((r.JOB, *self._kinds))
        self._engine = Engine(self._configuration or None)
        self._decided = Decided(self._engine)
        self._dirty: dict[str, None] = {}
        self._feed = Feed(self._image, self._engine, cluster=context.cluster.slug, now=context.now)
        self._alarms = Alarms()
        self._next = NextWrites(
            self._engine, self._image, self._decided, self._alarms, now=context.now
        )
        self._held = Held()
        self._is_untold = True
        self._pace = CyclePace()
        self._patience = Patience()
        self._reader = reader or EngineReader()
        self._herald = Herald(
            context.client,
            cluster=context.cluster.slug,
            may_write=lambda: context.cluster.may_write,
            fence=context.fence,
            now=context.now,
        )
        self._watches = Watches(
            context.client,
            cluster=context.cluster.slug,
            pulse=context.pulse,
            sink=self._inbox.put,
        )
        writer = Writer(
            context.client,
            cluster=context.cluster.slug,
            fence=context.fence,
            may_write=lambda: context.cluster.may_write,
            hook=hook,
        )
        self._outbox = Outbox(
            context.client,
            writer,
            answer=self._inbox.put,
            threads=WRITERS,
            name=f"{context.cluster.slug}-admission",
        )

    def run(self) -> None:
        """Works until the shift ends.

        Raises:
            LeaseLost: nothing was written after it.
        """
        context = self._context
        context.report_watch_age(self._watches.age)
        try:
            for resource in (*ENGINE_KINDS, *OTHER_KINDS):
                self._watches.add(resource, is_optional=resource in OPTIONAL_KINDS)
            for resource, selection in self._kinds.items():
                self._watches.add(resource, selection=selection, is_optional=True)
            if not self._watches.wait_synced(context.stop):
                return
            self._take_all(first=True)
            # Else the collector would go through all that a large cluster has again and again.
            gc.freeze()
            self._reader.start()
            self._herald.start()
            self._mark(self._image.keys_to_plan())
            while not context.stop.is_set() and self._is_same_configuration():
                self._round()
        finally:
            gc.unfreeze()
            self._watches.close()
            self._outbox.close()
            self._reader.close()
            self._herald.close()

    def _is_same_configuration(self) -> bool:
        """The engine follows one Configuration; with another one the next shift begins anew."""
        return self._context.cluster.kueue_configuration == self._configuration

    def _round(self) -> None:
        self._take_all()
        if self._context.cluster.may_write:
            self._look_again()
            self._act()
            self._cycle()
            self._tell()
        self._reader.work(self._engine, self._image.of(r.WORKLOAD), now=self._context.now())

    # What comes in

    def _take_all(self, *, first: bool = False) -> None:
        """Takes what has come in; waits a little when nothing has."""
        items = taken(self._inbox, wait_s=0.0 if first else self._idle_s(), everything=first)
        if first:
            items.sort(key=lambda item: feeding_rank(getattr(item, "resource", None)))
        for item in items:
            if isinstance(item, Answer):
                self._take_answer(item)
            elif item.change is not Change.SYNCED:
                self._take(item.resource, item.document, is_gone=item.change is Change.DELETED)

    def _idle_s(self) -> float:
        """How long nothing is to be done unless something comes in."""
        if not self._context.cluster.may_write:
            return TICK_S
        if self._dirty:
            return 0.0
        now = time.monotonic()
        waits = [TICK_S, self._patience.wait_s(now)]
        if self._outbox.load < IN_FLIGHT_LIMIT:
            waits.append(self._pace.wait_s(now))
        return min(each for each in waits if each is not None)

    def _take(self, resource: Resource, document: Document, *, is_gone: bool = False) -> None:
        if not self._feed.take(resource, document, is_gone=is_gone):
            return
        self._is_untold = True
        if resource == r.JOB or resource in self._kinds:
            self._mark(workload_keys(document))
            self._mark(self._image.siblings_of(document) if kind_of(document).is_shared else ())
        elif resource == r.WORKLOAD:
            self._mark([object_key(document)])
            self._mark(filter(None, [annotations_of(document).get(SLICE_OF)]))
        elif self._feed.looks_new(resource, document, is_gone=is_gone):
            self._pace.change()
            self._mark(self._image.keys_to_plan())

    def _mark(self, keys: Iterable[str]) -> None:
        self._dirty.update(dict.fromkeys(keys))

    def _look_again(self) -> None:
        self._mark(self._alarms.due(self._context.now()))
        for key in self._held.due(time.monotonic()):
            self._decided.give_back(key, now=self._context.now())
            self._pace.change()
            self._outbox.read(key, self._next.targets(key))

    # What goes out

    def _act(self) -> None:
        """One step for every workload that something happened to and that is not busy."""
        keys, self._dirty = list(self._dirty), {}
        if not keys:
            return
        around = self._next.around()
        for key in keys:
            if self._outbox.is_busy(key) or key in self._held:
                continue  # its answer marks it again
            write = self._next.of(key, around)
            if write is None:
                continue
            if write.step in _CAN_WAIT:
                self._patience.add([key])
            else:
                self._send(key, write)

    def _send(self, key: str, write: Write) -> None:
        now = time.monotonic()
        if write.step in _CAN_WAIT:
            self._patience.sent(key, now=now)
        else:
            self._patience.note_haste(now)
        self._outbox.send(key, write)

    def _cycle(self) -> None:
        """Cycles as long as they bring something; every decision marks its workload."""
        first = time.monotonic()
        if not self._pace.is_due(self._engine.state.revision, now=first):
            return
        while self._outbox.load < IN_FLIGHT_LIMIT and not self._context.stop.is_set():
            begun = time.monotonic()
            result = self._engine.cycle(self._context.now())
            ended = time.monotonic()
            if not result.heads:
                self._pace.settled(now=ended, took_s=ended - first)
                return
            self._is_untold = True
            self._note(result, (ended - begun) * 1000)
            self._decided.take(result.decisions, self._image.of(r.WORKLOAD))
            self._mark(item.key for item in result.admitted)
            self._mark(item.key for item in result.preempted)
            self._patience.add(item.key for item in result.pending)
            self._reader.mark(item.key for item in result.pending if item.has_changed)
            self._act()
            if result.is_settled:
                self._pace.settled(now=ended, took_s=ended - first)
                return

    def _note(self, result: CycleResult, duration_ms: float) -> None:
        log.debug(
            "cycle cluster=%s cycle=%d heads=%d admitted=%d preempted=%d duration_ms=%.1f",
            self._context.cluster.slug, result.number, result.heads, len(result.admitted),
            len(result.preempted), duration_ms,
        )  # fmt: skip

    def _tell(self) -> None:
        """Send the next write that can wait, when its time has come."""
        patience, now = self._patience, time.monotonic()
        if self._is_untold and patience.is_pass_due(now):
            self._is_untold = False
            patience.begin_pass(queue_keys(self._engine, self._image), now=now)
        if patience.wait_s(now) != 0.0:
            return
        around = self._next.around()
        for key in (patience.next() for _ in range(LOOKS)):
            if not key or self._outbox.is_busy(key) or key in self._held:
                continue  # its answer marks it, and the next pass comes to it again
            write = self._next.told(key, around)
            if write is not None:
                self._send(key, write)
                if write.step in _CAN_WAIT:
                    return

    # What became of it

    def _take_answer(self, answer: Answer) -> None:
        key = answer.key
        self._outbox.done(key)
        now = time.monotonic()
        if not self._patience.answered(key, now=now):
            self._patience.note_haste(now)
        if answer.fatal is not None:
            raise answer.fatal
        if answer.is_stopped:
            self._mark([key])
            return
        for (resource, namespace, name), document in (answer.reread or {}).items():
            self._take_reread(resource, namespace, name, document)
        if answer.error is not None:
            self._failed(key, answer.write, answer.error)
            return
        if answer.write is not None:
            self._held.succeeded(key)
            self._decided.written(key, answer.write)
            self._herald.tell(events_of(answer.write, answer.document, key, self._known()))
            if answer.document is not None:
                self._take(answer.write.resource, answer.document)
        self._mark([key])

    def _known(self) -> Known:
        return Known(
            workload=self._image.of(r.WORKLOAD).get,
            workload_of_uid=self._image.workload_by_uid,
            now=self._context.now(),
        )

    def _take_reread(
        self, resource: Resource, namespace: str, name: str, document: Document | None
    ) -> None:
        if document is not None:
            document.setdefault("kind", resource.kind)
            self._take(resource, document)
            return
        known = self._image.get(resource, f"{namespace}/{name}" if namespace else name)
        if known is not None:
            self._take(resource, known, is_gone=True)

    def _failed(self, key: str, write: Write | None, error: ClusterError) -> None:
        """A write failed, or may have: nothing more for this key until it was read again."""
        is_race = self._held.failed(key, error, now=time.monotonic())
        self._is_untold = True
        if write is not None:
            self._decided.failed(key, write, error)
        if not is_race and not isinstance(error, NotFound):
            log.warning(
                "write_failed cluster=%s key=%s step=%s reason=%s message=%s",
                self._context.cluster.slug, key, write.step if write else "read",
                error.reason, error.message,
            )  # fmt: skip
