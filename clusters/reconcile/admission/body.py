"""The admission shift: one thread that knows and decides, others that listen and write.

Everything that happens, watch events as well as answers to own writes, goes through one inbox to
the deciding thread. What the engine decided counts at once and is written afterwards; a write that
fails is looked up and tried again, or taken back. Restarting reads everything anew.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Iterable
from typing import Any, Final

from clusters.errors import ClusterError, Conflict, NotFound
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.kueue.decisions import CycleResult
from clusters.kueue.engine import Engine
from clusters.reconcile.admission.decided import Decided
from clusters.reconcile.admission.image import (
    ENGINE_KINDS,
    OPTIONAL_KINDS,
    OTHER_KINDS,
    Image,
    job_of,
    object_key,
    workload_key,
)
from clusters.reconcile.admission.outbox import Answer, Outbox, Target
from clusters.reconcile.admission.plan import Surroundings, plan
from clusters.reconcile.admission.queue_status import queue_writes
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.jobs.alarms import Alarms
from clusters.reconcile.jobs.conditions import condition
from clusters.reconcile.jobs.watches import Change, Seen, Watches
from clusters.reconcile.jobs.writer import Hook, Write, Writer, no_fault

log = logging.getLogger(__name__)

Document = dict[str, Any]

WRITERS: Final = 8
QUEUE_STATUS_EVERY_S: Final = 1.0
TICK_S: Final = 0.25
RETRY_FIRST_S, RETRY_CAP_S = 0.1, 5.0
IN_FLIGHT_LIMIT: Final = 64
BATCH: Final = 500
_KINDS: Final = frozenset(resource.kind for resource in ENGINE_KINDS)
_RANK: Final = {resource: rank for rank, resource in enumerate(ENGINE_KINDS)}


class AdmissionBody:
    """One shift of admission on one cluster.

    Args:
        context: The shift.
        hook: Called around every write; for tests.
    """

    def __init__(self, context: ShiftContext, *, hook: Hook = no_fault) -> None:
        self._context = context
        self._inbox: queue.SimpleQueue[Seen | Answer] = queue.SimpleQueue()
        self._image = Image()
        self._configuration = context.cluster.kueue_configuration
        self._engine = Engine(self._configuration or None)
        self._decided = Decided(self._engine)
        self._dirty: dict[str, None] = {}
        self._looks: dict[str, tuple[object, ...]] = {}
        self._alarms = Alarms()
        self._failures: dict[str, int] = {}
        self._held_until: dict[str, float] = {}
        self._is_changed = self._is_untold = True
        self._status_at = 0.0
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
            if not self._watches.wait_synced(context.stop):
                return
            self._take_all(first=True)
            self._mark(self._image.keys_to_plan())
            while not context.stop.is_set() and self._is_same_configuration():
                self._round()
        finally:
            self._watches.close()
            self._outbox.close()

    def _is_same_configuration(self) -> bool:
        """The engine follows one Configuration; with another one the next shift begins anew."""
        return self._context.cluster.kueue_configuration == self._configuration

    def _round(self) -> None:
        self._take_all()
        if self._context.cluster.may_write:
            self._look_again()
            self._act()
            self._cycle()
            self._tell_queues()

    # What comes in

    def _take_all(self, *, first: bool = False) -> None:
        """Takes what has come in; waits a little when nothing has."""
        items: list[Seen | Answer] = []
        is_idle = not first and not (self._dirty and self._context.cluster.may_write)
        try:
            if is_idle:
                items.append(self._inbox.get(timeout=TICK_S))
            while first or len(items) < BATCH:
                items.append(self._inbox.get_nowait())
        except queue.Empty:
            pass
        if first:
            items.sort(key=_feeding_rank)
        for item in items:
            if isinstance(item, Answer):
                self._take_answer(item)
            elif item.change is not Change.SYNCED:
                self._take(item.resource, item.document, is_gone=item.change is Change.DELETED)

    def _take(self, resource: Resource, document: Document, *, is_gone: bool = False) -> None:
        image = self._image
        is_news = image.drop(resource, document) if is_gone else image.put(resource, document)
        if not is_news:
            return
        self._is_untold = True
        if resource.kind in _KINDS:
            self._feed(resource, document, is_gone=is_gone)
        if resource == r.JOB:
            self._mark([workload_key(document)])
        elif resource == r.WORKLOAD:
            self._is_changed = True
            self._mark([object_key(document)])
        elif self._looks_new(resource, document, is_gone=is_gone):
            self._is_changed = True
            self._mark(image.keys_to_plan())

    def _looks_new(self, resource: Resource, document: Document, *, is_gone: bool) -> bool:
        """Whether more than a status that nobody here reads has changed."""
        metadata = document["metadata"]
        key = f"{resource.kind}:{object_key(document)}"
        look = (
            metadata["uid"],
            is_gone or metadata.get("generation", metadata["resourceVersion"]),
            metadata.get("deletionTimestamp"),
            condition(document, "Active").get("status") if resource == r.ADMISSION_CHECK else None,
        )
        before = self._looks.get(key)
        self._looks[key] = look
        return before != look

    def _feed(self, resource: Resource, document: Document, *, is_gone: bool) -> None:
        now = self._context.now()
        try:
            if is_gone:
                self._engine.delete(resource.kind, key=object_key(document), now=now)
            else:
                self._engine.upsert(document, kind=resource.kind, now=now)
        except (KeyError, ValueError) as error:
            # One object that no API server of this version would have let in harms nobody else.
            log.error(
                "object_unreadable cluster=%s kind=%s key=%s error=%s",
                self._context.cluster.slug, resource.kind, object_key(document), error,
            )  # fmt: skip

    def _mark(self, keys: Iterable[str]) -> None:
        self._dirty.update(dict.fromkeys(keys))

    def _look_again(self) -> None:
        self._mark(self._alarms.due(self._context.now()))
        due = [key for key, at in self._held_until.items() if at <= time.monotonic()]
        for key in due:
            del self._held_until[key]
            self._reread(key)

    # What goes out

    def _act(self) -> None:
        """One step for every workload that something happened to and that is not busy."""
        keys, self._dirty = list(self._dirty), {}
        if not keys:
            return
        # Which queues are active is only known once the engine has settled.
        self._engine.state.settle(self._context.now())
        around = Surroundings(
            engine=self._engine,
            flavors=self._image.of(r.RESOURCE_FLAVOR),
            priority_classes=self._image.of(r.PRIORITY_CLASS),
            now=self._context.now(),
        )
        for key in keys:
            if self._outbox.is_busy(key) or key in self._held_until:
                continue  # its answer marks it again
            workload = self._image.get(r.WORKLOAD, key)
            write = self._decided.write_for(key, workload, now=around.now)
            if write is None:
                job = job_of(workload, self._image.jobs_for(key))
                step = plan(workload, job, around)
                write = step.write
                if step.look_again is not None:
                    self._alarms.set(key, step.look_again)
            if write is not None:
                self._outbox.send(key, write)

    def _cycle(self) -> None:
        """Cycles as long as they bring something; every decision marks its workload."""
        if not self._is_changed:
            return
        while self._outbox.load < IN_FLIGHT_LIMIT and not self._context.stop.is_set():
            begun = time.perf_counter()
            result = self._engine.cycle(self._context.now())
            if not result.heads:
                self._is_changed = False
                break
            self._is_untold = True
            self._note(result, (time.perf_counter() - begun) * 1000)
            self._mark(self._decided.take(result.decisions, self._image.of(r.WORKLOAD)))
            self._act()
            if not result.admitted and not result.preempted:
                self._is_changed = False
                break

    def _note(self, result: CycleResult, duration_ms: float) -> None:
        log.debug(
            "cycle cluster=%s cycle=%d heads=%d admitted=%d preempted=%d duration_ms=%.1f",
            self._context.cluster.slug, result.number, result.heads, len(result.admitted),
            len(result.preempted), duration_ms,
        )  # fmt: skip

    def _tell_queues(self) -> None:
        if not self._is_untold or time.monotonic() - self._status_at < QUEUE_STATUS_EVERY_S:
            return
        self._status_at, self._is_untold = time.monotonic(), False
        for key, write in queue_writes(self._engine, self._image, now=self._context.now()):
            if not self._outbox.is_busy(key) and key not in self._held_until:
                self._outbox.send(key, write)

    # What became of it

    def _take_answer(self, answer: Answer) -> None:
        key = answer.key
        self._outbox.done(key)
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
            self._failures.pop(key, None)
            self._decided.written(key, answer.write)
            if answer.document is not None:
                self._take(answer.write.resource, answer.document)
        self._mark([key])

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
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        is_race = isinstance(error, Conflict) and failures == 1
        delay = 0.0 if is_race else min(RETRY_CAP_S, RETRY_FIRST_S * 2 ** min(failures, 12))
        self._held_until[key] = time.monotonic() + delay
        self._is_untold = True
        if write is not None:
            self._decided.failed(key, write, error)
        if not is_race and not isinstance(error, NotFound):
            log.warning(
                "write_failed cluster=%s key=%s step=%s reason=%s message=%s",
                self._context.cluster.slug, key, write.step if write else "read",
                error.reason, error.message,
            )  # fmt: skip

    def _reread(self, key: str) -> None:
        self._decided.give_back(key, now=self._context.now())
        self._is_changed = True
        self._outbox.read(key, self._targets(key))

    def _targets(self, key: str) -> list[Target]:
        kind, _, rest = key.partition(":")
        for resource in (r.CLUSTER_QUEUE, r.LOCAL_QUEUE, r.COHORT):
            if rest and resource.kind == kind:
                namespace, _, name = rest.rpartition("/")
                return [(resource, namespace, name)]
        namespace, _, name = key.partition("/")
        targets: list[Target] = [(r.WORKLOAD, namespace, name)]
        for job in self._image.jobs_for(key):
            targets.append((r.JOB, namespace, job["metadata"]["name"]))
        return targets


def _feeding_rank(item: Seen | Answer) -> int:
    """Quota before queues before workloads: much less is worked out twice."""
    return _RANK.get(item.resource, len(_RANK)) if isinstance(item, Seen) else len(_RANK)
