"""The admission shift: a controller whose decisions come from the cycles of a warm engine.

What the engine decided counts at once and is written afterwards; a write that fails is looked up
and tried again, or taken back. Restarting reads everything anew. A workload that makes a cycle fail
is found, set aside and kept from the engine, which is built anew.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import ClassVar, Final

import structlog

from clusters.documents import labels
from clusters.documents.conditions import is_true
from clusters.documents.keys import Document, annotations_of, key_of
from clusters.errors import Forbidden
from clusters.jobs.table import JobKinds, job_of, kind_of, workload_keys
from clusters.kube import resources as r
from clusters.kube.client import Selection
from clusters.kube.resources import Resource
from clusters.kueue.configuration import Configuration
from clusters.kueue.cycle.decisions import CycleResult
from clusters.kueue.cycle.engine import CycleFailed, Engine, culprits
from clusters.kueue.cycle.intake import UnreadableDocument
from clusters.reconcile.admission.decided import Decided
from clusters.reconcile.admission.errands import POD_KEY, Errands
from clusters.reconcile.admission.events import events_of, set_aside
from clusters.reconcile.admission.pace import CyclePace, LowPriority
from clusters.reconcile.admission.placement import Placement, Placing
from clusters.reconcile.admission.plan import Surroundings, plan
from clusters.reconcile.admission.queue_status import queue_key, queue_keys, queue_write
from clusters.reconcile.configured import settings_of
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.runtime.cache import Effect, Place
from clusters.reconcile.runtime.controller import Controller, Watched
from clusters.reconcile.runtime.faults import PARKED_CAP_S, Doing
from clusters.reconcile.runtime.job_cache import JobCache
from clusters.reconcile.runtime.pool import Answer
from clusters.reconcile.runtime.queue import RateLimiter, namespace_of
from clusters.reconcile.runtime.watches import Change, Seen
from clusters.reconcile.runtime.writer import Hook, Write, no_fault
from clusters.reconcile.warm_engine import OPTIONAL_KINDS, Looks, engine_kinds, kept_of

log = structlog.stdlib.get_logger(__name__)

IN_FLIGHT_LIMIT: Final = 64
# How many keys are looked at in one round for writes that can wait.
LOOKS: Final = 50
_CAN_WAIT: Final = frozenset({"explain", "queue-status"})
# Seconds between two looks at whose usage is to be sampled.
_SAMPLE_EVERY_S: Final = 1.0
_QUEUES: Final = "What is in force in the queues"


class EngineReader:
    """Somebody who reads the warm engine, in the shift's own thread; this one does nothing."""

    def start(self) -> None:
        """The engine knows its cluster."""

    def close(self) -> None:
        """The shift ends."""

    def mark(self, keys: Iterable[str]) -> None:
        """Something new was decided about these workloads, which wait."""

    def stir(self) -> None:
        """A Workload changed."""

    def work(self, engine: Engine, documents: Mapping[str, Document], *, now: datetime) -> None:
        """One short step of reading, once a turn; `documents` are Workloads by key."""


class AdmissionBody(Controller[str]):
    """One shift of admission on one cluster.

    Keys are those of Workloads, which their jobs share, and ``Kind:key`` of queues and Cohorts.

    Args:
        context: The shift.
        hook: Called around every write; for tests.
        reader: Explains what the engine knows; nobody by default.
    """

    tick_s: ClassVar[float] = 0.25
    most_under_way: ClassVar[int] = 32
    follows_configuration: ClassVar[bool] = True
    cache: JobCache

    def __init__(
        self, context: ShiftContext, *, hook: Hook = no_fault, reader: EngineReader | None = None
    ) -> None:
        named = JobKinds(settings_of(context.cluster.kueue_configuration).kinds)
        self._kinds = {
            kind.resource: Selection(labels=kind.selector)
            for kind in named
            if kind.is_queued_here and not kind.is_required
        }
        job_kinds = (r.JOB, *self._kinds)
        super().__init__(context, hook=hook, cache=JobCache(job_kinds))
        self._shown = dict.fromkeys(job_kinds, self._job_shown)
        self._shown[r.WORKLOAD] = self._workload_shown
        self._shown[r.RESOURCE_CLAIM_TEMPLATE] = self._template_shown
        found = Configuration.from_document(context.cluster.kueue_configuration or None)
        self._engine_kinds = engine_kinds(found)
        self._fed = frozenset(self._engine_kinds)
        self._placed_kinds = frozenset(kind.full_kind for kind in named if kind.is_placed)
        self._engine = Engine(replace(found, placed_kinds=self._placed_kinds))
        self._placement = Placement(context, self.tell)
        self._errands = Errands(self._placement, self.cache, self.queue)
        self._decided = Decided(self._engine)
        # What the engine is not to know of: it could not be taken in, or decided on.
        self._outside: set[Place] = set()
        # Workloads that made cycles fail, and how often in a row.
        self._culprits: set[str] = set()
        self._limiter: RateLimiter[str] = RateLimiter()
        self._looks = Looks()
        self._pace = CyclePace()
        self._low = LowPriority()
        self._is_untold = True
        # What came since the last look is about all workloads, or about those of namespaces.
        self._concerns_all, self._concerned = False, set[str]()
        self._concerns_at = 0.0
        self._rests_until = self._samples_at = 0.0
        self._around: Surroundings | None = None
        self._reader = reader or EngineReader()
        self.faults.listener = self._tell_owner

    def watched(self) -> Iterable[Watched]:
        """What the engine reads, then what jobs are."""
        for resource in (*self._engine_kinds, r.PRIORITY_CLASS, r.JOB):
            is_optional = resource in OPTIONAL_KINDS
            yield Watched(resource, is_optional=is_optional, keep=kept_of(resource))
        for resource, selection in self._kinds.items():
            yield Watched(resource, selection=selection, is_optional=True)

    def opened(self) -> None:
        """Everything is looked at once."""
        # Else the collector would go through all that a large cluster has again and again.
        gc.freeze()
        self._reader.start()
        self.queue.add_all(self.cache.keys_to_plan())

    def closing(self) -> None:
        """The reader ends with the shift."""
        gc.unfreeze()
        self._reader.close()
        self._placement.close()

    def turn(self) -> None:
        """Take in, act, run cycles, and tell what can wait."""
        self._around = None
        self._follow_rights()
        super().turn()
        if self.may_write and self._is_settled():
            self._sample()
            self._cycle()
        if self.may_write and self._is_settled():
            self._tell()
        if self._is_settled():
            self._reader.work(self._engine, self.cache.of(r.WORKLOAD), now=self.context.now())

    def look(self) -> None:
        """Have the workloads looked at that what came is about: once for all of it.

        Where there are many, it is gathered for ten times as long as finding them takes.
        """
        begun = time.monotonic()
        if not (self._concerns_all or self._concerned) or begun < self._concerns_at:
            return
        keys = self.cache.keys_to_plan()
        if not self._concerns_all:
            keys = [key for key in keys if namespace_of(key) in self._concerned]
        self._concerns_all = False
        self._concerned.clear()
        self.queue.add_all(keys)
        now = time.monotonic()
        self._concerns_at = now + 10 * (now - begun)

    def handle_all(self) -> None:
        """Keys are decided about by an engine that knows what is in force."""
        if self._is_settled():
            super().handle_all()

    def idle_s(self) -> float:
        """Until a key, the next cycle, or the next write that can wait."""
        rest_s = self._rests_until - time.monotonic()
        if rest_s > 0.0:
            return min(self.tick_s, rest_s)
        waits: list[float | None] = [super().idle_s()]
        if self.may_write:
            now = time.monotonic()
            waits.append(self._low.wait_s(now))
            if self.queue.load < IN_FLIGHT_LIMIT:
                waits.append(self._pace.wait_s(now))
        return min(each for each in waits if each is not None)

    # What comes in

    def take(self, seen: Seen) -> None:
        """Take one object in: the cache first, then the engine, then its keys."""
        resource, document, is_gone = seen.resource, seen.document, seen.change is Change.DELETED
        key = key_of(document)
        is_placing = isinstance(seen, Placing)
        cache = self._placement.cache if is_placing else self.cache
        put = cache.drop if is_gone else cache.put
        if not put(resource, document):
            if (resource, key) not in self._outside:
                return
            # It is tried again, and never by an older state that comes in late.
            document = cache.get(resource, key) or document
        self._is_untold |= not is_placing or resource == r.TOPOLOGY
        if is_placing:
            self._feed(resource, key, document, is_gone=is_gone)
            self.queue.add_all(self._placement.concerned(resource, document))
            return
        self._shown.get(resource, self._other_shown)(resource, key, document, is_gone)

    def take_effect(self, effect: Effect) -> bool:
        """What was done to a placed pod is known at once."""
        if effect.resource != r.POD or not self._placement.is_wanted:
            return super().take_effect(effect)
        seen = self._placement.seen(effect)
        is_read = seen is None or self.take_safely(seen)
        return is_read and (r.POD not in self._shown or super().take_effect(effect))

    def listed(self, seen: Seen) -> None:
        """Nodes and pods come later than all else, where a flavor has a topology."""
        if isinstance(seen, Placing):
            self._placement.listed(seen.resource)

    def _job_shown(self, resource: Resource, key: str, document: Document, is_gone: bool) -> None:
        named = workload_keys(document) if is_gone else self.cache.named_by(resource, key)
        self.queue.add_all(named)
        if kind_of(document).is_shared:
            self.queue.add_all(self.cache.siblings_of(document))

    def _workload_shown(
        self, resource: Resource, key: str, document: Document, is_gone: bool
    ) -> None:
        self._feed(resource, key, document, is_gone=is_gone)
        self._reader.stir()
        self._low.note_event(time.monotonic())
        self._low.change(self._queues_of(document))
        self.queue.add(key)
        if self._placement.is_wanted:
            self._placement.follow(key, None if is_gone else document)
        before = annotations_of(document).get(labels.SLICE_OF)
        if before:
            self.queue.add(before)
        if is_gone:
            self._clear([key])

    def _queues_of(self, workload: Document) -> Iterator[str]:
        """Keys of the queues that a Workload is in."""
        name = (workload.get("spec") or {}).get("queueName", "")
        local_queue = f"{workload['metadata'].get('namespace', '')}/{name}"
        spec = self._engine.state.queues.local_queues.get(local_queue)
        if spec is not None:
            yield queue_key(r.CLUSTER_QUEUE, spec.cluster_queue)
            yield queue_key(r.LOCAL_QUEUE, local_queue)

    def _template_shown(
        self, resource: Resource, key: str, document: Document, is_gone: bool
    ) -> None:
        """What waits and claims devices by it may start now, or no longer; nothing else may."""
        self._feed(resource, key, document, is_gone=is_gone)
        self.queue.add_all(item.key for item in self._engine.state.queues.waiting_for(key))

    def _other_shown(self, resource: Resource, key: str, document: Document, is_gone: bool) -> None:
        if resource in self._fed:
            self._feed(resource, key, document, is_gone=is_gone)
        if resource == r.RESOURCE_FLAVOR and self._has_topology(key):
            self._placement.want()
        if self._looks.is_new(resource, document, is_gone=is_gone):
            self._pace.change()
            self._low.hurry()
            self._concern(resource, key, is_gone)

    def _concern(self, resource: Resource, key: str, is_gone: bool) -> None:
        """Note which workloads an object is about; of most kinds it may be all."""
        if resource in (r.NAMESPACE, r.LOCAL_QUEUE):
            self._concerned.add(namespace_of(key))
        elif resource == r.CLUSTER_QUEUE and not is_gone:
            self._concerned.update(self._engine.state.namespaces_of(key))
        else:
            self._concerns_all = True

    def _feed(self, resource: Resource, key: str, document: Document, *, is_gone: bool) -> None:
        """Tell the engine of an object; one that it cannot take in stays outside of it."""
        is_outside = bool(self._outside) and (resource, key) in self._outside
        if is_outside and self._is_held(key) and not (is_gone or _may_hold(document)):
            return  # it comes in when its time is over
        now, self._around = self.context.now(), None
        try:
            if is_gone:
                self._engine.delete(resource.kind, key=key, now=now)
            else:
                self._engine.upsert(document, kind=resource.kind, now=now)
        except Exception as error:
            self._outside.add((resource, key))
            if resource == r.WORKLOAD and not _may_hold(document):
                self._expel(key)
            if not isinstance(error, UnreadableDocument):
                self._rebuild()
            raise
        if is_outside:
            self._outside.discard((resource, key))

    # What goes out

    def handle(self, key: str) -> None:
        """One step for a workload that something happened to."""
        if (r.WORKLOAD, key) in self._outside:
            document = self.cache.get(r.WORKLOAD, key)
            try:
                self._feed(r.WORKLOAD, key, document or {}, is_gone=document is None)
            except Exception as error:
                self.park(key, error, doing=Doing.READING)
                return
        write = self.decide(key)
        if write is not None:
            self._send(key, write)

    def decide(self, key: str) -> Write | None:
        """The next write about a workload and its job, a queue or a Cohort.

        Decisions of the engine that are not written yet go before what the objects ask for.
        """
        around = self._around = self._around or self._look_around()
        if key.startswith(POD_KEY):
            return self._errands.write_for(key)
        if ":" in key:
            return queue_write(self._engine, self.cache, key, now=around.now)
        workload = self.cache.get(r.WORKLOAD, key)
        write = self._decided.write_for(key, workload, now=around.now)
        if write is not None:
            return write
        step = plan(workload, self._job_of(key, workload), around)
        if step.look_again is not None:
            self.queue.add_at(key, step.look_again)
        if step.write is None and workload is not None and self._placement.is_wanted:
            gates = self._engine.configuration.gates
            return self._errands.of_workload(key, workload, gates=gates, now=around.now)
        return step.write

    def concerned(self, key: str) -> Iterable[str]:
        """What was done for a pod is news for its Workload."""
        return self._errands.concerned(key) if key.startswith(POD_KEY) else (key,)

    def _look_around(self) -> Surroundings:
        """What all keys of one turn share."""
        now = self.context.now()
        # Which queues are active is only known once the engine has settled.
        self._engine.state.refresh()
        facts = self.context.cluster
        own = bool(facts.own_queue)
        return Surroundings(self._engine, self.cache, now, facts.is_single, own)

    def _job_of(self, key: str, workload: Document | None) -> Document | None:
        job = job_of(workload, self.cache.jobs_for(key))
        if job is None and workload is not None:
            # Of several Workloads one that its owner no longer counts.
            owner = self.cache.owner_of(workload)
            job = owner if owner is not None and kind_of(owner).has_several(owner) else None
        return job

    def _send(self, key: str, write: Write) -> None:
        if write.step in _CAN_WAIT:
            self._low.add([key])
            return
        self._low.note_haste(time.monotonic())
        self.send(key, write)

    def _tell(self) -> None:
        """Send the writes that can wait whose time has come."""
        low, now = self._low, time.monotonic()
        for key in low.under_way:
            if not self.queue.is_busy(key):
                low.answered(key)
        if self._is_untold and low.is_pass_due(now):
            self._is_untold = False
            low.begin_pass(queue_keys(self._engine, self.cache), now=now)
        for _ in range(LOOKS):
            if not (key := low.next(now)):
                return
            begun = time.monotonic()
            # Of one that is busy or held its answer tells, and the next pass comes to it again.
            if self.queue.is_free(key):
                self._tell_of(key)
            low.looked(time.monotonic() - begun)

    def _tell_of(self, key: str) -> None:
        """Send what a key has to tell, or what turns out to be more urgent about it."""
        try:
            write = self.decide(key)
        except Exception as error:
            self.park(key, error, doing=Doing.DECIDING)
            return
        if write is None:
            return
        if write.step not in _CAN_WAIT:
            self._send(key, write)
            return
        self._low.sent(key, now=time.monotonic())
        # In threads of their own: what waits for an answer there keeps no decision waiting.
        self.send(key, write, lane="news")

    def answered(self, answer: Answer[str]) -> None:
        """A write went well: its decision is done, and people are told."""
        self._note_haste(answer)
        self._placement.is_refused &= not answer.key.startswith(POD_KEY)
        self._decided.written(answer.key, answer.about)
        document = answer.effects[-1].document if answer.effects else None
        now = self.context.now()
        self.recorder.record(events_of(answer.about, document, answer.key, self.cache, now=now))

    def failed(self, answer: Answer[str]) -> None:
        """A write failed, or may have: a refused decision is taken back when its time is over."""
        self._note_haste(answer)
        self._is_untold = True
        self._low.hurry()
        if type(answer.error) is Forbidden and answer.key.startswith(POD_KEY):
            # For want of rights, not by a policy: no pod that was placed would start.
            self._placement.is_refused = True
        if answer.error is not None:
            self._decided.failed(answer.key, answer.about, answer.error)

    def _note_haste(self, answer: Answer[str]) -> None:
        if not self._low.answered(answer.key):
            self._low.note_haste(time.monotonic())

    # Cycles

    def _sample(self) -> None:
        """What LocalQueues used: taken over from their statuses first, then looked at when due."""
        now = time.monotonic()
        if self._engine.configuration.admission_fair_sharing is None or now < self._samples_at:
            return
        self._samples_at = now + _SAMPLE_EVERY_S
        sampled = self._engine.sample_usage(now=self.context.now())
        self._low.change(queue_key(r.LOCAL_QUEUE, key) for key in sampled)

    def _cycle(self) -> None:
        """Cycles as long as they bring something; every decision is a key to handle."""
        first = time.monotonic()
        if not self._pace.is_due(self._engine.state.revision, now=first):
            return
        while self.queue.load < IN_FLIGHT_LIMIT and not self.context.stop.is_set():
            begun = time.monotonic()
            result = self._decided_now()
            if result is None:
                return
            ended = time.monotonic()
            if not result.heads:
                self._pace.settled(now=ended, took_s=ended - first)
                return
            self._is_untold, self._around = True, None
            self._note(result, (ended - begun) * 1000)
            if self._culprits:
                self._clear(item.key for item in result.decisions)
            self._decided.take(result.decisions, self.cache.of(r.WORKLOAD))
            self.queue.add_all(item.key for item in result.admitted)
            self.queue.add_all(item.key for item in result.preempted)
            self.queue.add_all(item.key for item in result.evicted)
            self._low.add(item.key for item in result.pending)
            self._reader.mark(item.key for item in result.pending if item.has_changed)
            self.handle_all()
            if result.is_settled:
                self._pace.settled(now=ended, took_s=ended - first)
                return

    def _decided_now(self) -> CycleResult | None:
        """One cycle; None where it failed, which set somebody or everybody back."""
        try:
            result = self._engine.cycle(self.context.now())
        except CycleFailed as failed:
            self._recover(failed)
            return None
        except Exception as error:
            self._rest(error)
            return None
        self._limiter.forget(_QUEUES)
        self.faults.clear(_QUEUES)
        return result

    def _note(self, result: CycleResult, duration_ms: float) -> None:
        log.debug(
            "cycle",
            cluster=self.cluster,
            cycle=result.number,
            heads=result.heads,
            admitted=len(result.admitted),
            preempted=len(result.preempted),
            duration_ms=round(duration_ms, 1),
        )

    # Where one workload's fault ends

    def park(self, key: str, error: Exception, *, doing: Doing) -> None:
        """Set a key aside; what no decision can be written about takes part in no cycle.

        Of a write nobody knows whether it was done: what it was to write stays assumed meanwhile.
        """
        super().park(key, error, doing=doing)
        workload = self.cache.get(r.WORKLOAD, key)
        if doing is not Doing.WRITING and workload is not None and not _may_hold(workload):
            self._expel(key)

    def says(self, key: str) -> str:
        """Of what kind it is, and its name."""
        return key.replace(":", " ", 1) if ":" in key else f"Workload {key}"

    def _tell_owner(self, subject: str, why: str) -> None:
        """Let a Workload and its job say themselves why they were set aside."""
        kind, key = subject.split(" ")[:2]
        try:
            found = [self.unread(subject)]
            if kind == r.WORKLOAD.kind:
                found += [self.cache.get(r.WORKLOAD, key), *self.cache.jobs_for(key)[:1]]
            self.recorder.record(set_aside(item, kind, why) for item in found if item is not None)
        except Exception:  # of what nobody can read not even that can be told
            log.debug("not_told", cluster=self.cluster, key=subject)

    def _expel(self, key: str) -> None:
        """Let the engine know nothing of a workload that holds no quota."""
        self._outside.add((r.WORKLOAD, key))
        self._decided.drop(key)
        try:
            self._engine.delete(r.WORKLOAD.kind, key=key, now=self.context.now())
        except Exception:
            log.exception("engine_unsound", cluster=self.cluster, key=key)
            self._rebuild()

    def _is_held(self, key: str) -> bool:
        return not (self.queue.is_free(key) or self.queue.is_busy(key))

    def _is_settled(self) -> bool:
        """Whether the engine knows what is in force; False while it rests after a failure."""
        if time.monotonic() < self._rests_until or not self._placement.is_known:
            return False
        try:
            self._engine.state.refresh()
        except Exception as error:
            self._rest(error)
            return False
        return True

    def _rest(self, error: Exception) -> None:
        """Of what fails before any workload is looked at: tell it, and begin anew after a pause."""
        self.faults.park(_QUEUES, error, doing=Doing.DECIDING)
        wait_s = self._limiter.failed(_QUEUES, cap_s=PARKED_CAP_S)
        self._rests_until = time.monotonic() + wait_s
        self._rebuild()

    def _recover(self, failed: CycleFailed) -> None:
        """Build the engine anew, and set aside the workloads that no cycle can decide about."""
        self._rebuild()
        cause = failed.__cause__
        error = cause if isinstance(cause, Exception) else failed
        heads, now = failed.heads, self.context.now()
        try:
            # Where none of them fails again, all but one wait: it may have been their number.
            found = culprits(self._engine, heads, now=now) or heads[1:] or heads
        except Exception as unsettled:
            self._rest(unsettled)
            return
        for key in found:
            self.faults.park(_in_cycles(key), error, doing=Doing.DECIDING)
            self._culprits.add(key)
            wait_s = self._limiter.failed(key, cap_s=PARKED_CAP_S)
            self.queue.hold(key, until=time.monotonic() + wait_s)
            self._expel(key)

    def _clear(self, keys: Iterable[str]) -> None:
        """A cycle went well with them, or they are gone."""
        for key in self._culprits.intersection(keys):
            self._culprits.discard(key)
            self._limiter.forget(key)
            self.faults.clear(_in_cycles(key))

    def _has_topology(self, flavor: str) -> bool:
        state, gates = self._engine.state, self._engine.configuration.gates
        found = state.snapshot.flavors.get(flavor)
        return found is not None and bool(found.topology) and gates.topology_aware_scheduling

    def _follow_rights(self) -> None:
        """Where nodes and pods may not be read, what asks for a topology waits, and is told why.

        So does what claims devices, where the templates of claims may not be read.
        """
        before = self._engine.configuration
        kinds = frozenset() if self._placement.is_missing else self._placed_kinds
        reads = not before.counts_claims or (
            r.RESOURCE_CLAIM_TEMPLATE not in self.watches.missing()
        )
        if (before.placed_kinds, before.reads_templates) != (kinds, reads):
            self._rebuild(replace(before, placed_kinds=kinds, reads_templates=reads))

    def _rebuild(self, configuration: Configuration | None = None) -> None:
        """A fresh engine with all that the cache has, and with what was decided and not written."""
        engine = self._fed_engine(configuration or self._engine.configuration)
        self._decided.move_to(engine)
        self._engine, self._around = engine, None
        self._pace.change()

    def _fed_engine(self, configuration: Configuration) -> Engine:
        now = self.context.now()
        engine = Engine(configuration)
        for resource, key, document in self._of_engine():
            if (resource, key) in self._outside:
                continue
            try:
                engine.upsert(document, kind=resource.kind, now=now)
            except Exception as error:
                self._outside.add((resource, key))
                self.faults.park(f"{resource.kind} {key}", error, doing=Doing.READING)
                if not isinstance(error, UnreadableDocument):
                    return self._fed_engine(configuration)
        return engine

    def _of_engine(self) -> Iterator[tuple[Resource, str, Document]]:
        """All that the engine is told, in the order in which it is fed best."""
        for resource in self._engine_kinds:
            for key, document in self.cache.of(resource).items():
                yield resource, key, document
        yield from self._placement.documents()


def _in_cycles(key: str) -> str:
    return f"Workload {key} among the heads of a cycle"


def _may_hold(document: Document | None) -> bool:
    """Whether a Workload holds quota on the cluster, for all that can be read of it."""
    try:
        return document is not None and is_true(document, "QuotaReserved")
    except Exception:  # what nobody can read holds quota for caution's sake
        return True
