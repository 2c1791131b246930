"""The dispatch shift: one thread that looks and decides, others that listen and carry out.

Keys are places: a workload on the manager, which is what is looked at, and a workload on a worker,
where work is under way or waits after a failure. Its requests to the manager go one after the
other; each worker's go by themselves, so that a worker that hangs or refuses holds nobody else up.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog
from django.conf import settings

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, key_of
from clusters.errors import Terminal
from clusters.jobs.kind import JobKind
from clusters.kube import resources as r
from clusters.kube.client import Selection
from clusters.kueue.multikueue import steps as step
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.dispatch.manager_writes import connection_writes, manager_writes
from clusters.reconcile.dispatch.workers import Known, Workers
from clusters.reconcile.multikueue.controller import ManagerController, Place, read_workload
from clusters.reconcile.multikueue.copies import Copies, Foreign
from clusters.reconcile.multikueue.group import jobs_there
from clusters.reconcile.multikueue.links import Link
from clusters.reconcile.multikueue.local import Local, chosen_of
from clusters.reconcile.multikueue.nominating import Nominating
from clusters.reconcile.multikueue.offers import Prices
from clusters.reconcile.multikueue.profiles import Profiles, read_providers
from clusters.reconcile.multikueue.workers import MANAGER, DispatchFleet
from clusters.reconcile.runtime.cache import Effect
from clusters.reconcile.runtime.pool import Answer, Sender, Target, Work, reading
from clusters.reconcile.runtime.recorder import Event, Reference
from clusters.reconcile.runtime.watches import Seen
from clusters.reconcile.runtime.writer import Hook, Write, no_fault

log = structlog.stdlib.get_logger(__name__)

BLOCKED_S: Final = 20.0


@dataclass(slots=True)
class Errand:
    """What work was started for; comes back with its answer.

    Attributes:
        steps: What is done, for logs.
        targets: To be read again on the manager where it fails.
        is_creation: Something is made on a worker.
        foreign: Whose object was in the way; empty when none was.
        read: UID of the finished copy whose job is read; empty where none is.
    """

    steps: str
    targets: Sequence[Target] = ()
    is_creation: bool = False
    foreign: str = ""
    read: str = ""

    def __str__(self) -> str:
        return self.steps


class Blocks:
    """Why a workload may not go to a worker for now."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[str, bool, float]]] = {}

    def add(self, key: str, worker: str, why: str, *, is_foreign: bool = False) -> None:
        """A worker takes the workload no more for a while; not for somebody else's object there."""
        known = self._known.setdefault(key, {})
        was_foreign = worker in known and known[worker][1]
        known[worker] = why, is_foreign or was_foreign, time.monotonic() + BLOCKED_S

    def reasons(self, key: str) -> dict[str, str]:
        """Why, by worker."""
        return {worker: why for worker, (why, _, _) in self._known.get(key, {}).items()}

    def foreign(self, key: str) -> frozenset[str]:
        """Workers where somebody else's object has the workload's name."""
        known = self._known.get(key, {}).items()
        return frozenset(worker for worker, (_, is_foreign, _) in known if is_foreign)

    def due(self) -> list[str]:
        """Workloads that may be tried again somewhere; they are blocked there no longer."""
        now = time.monotonic()
        found = []
        for key, workers in list(self._known.items()):
            left = {worker: block for worker, block in workers.items() if block[2] > now}
            if len(left) < len(workers):
                found.append(key)
                self._known[key] = left
                if not left:
                    del self._known[key]
        return found

    def forget(self, key: str) -> None:
        """A workload is gone."""
        self._known.pop(key, None)


class DispatchBody(ManagerController):
    """One shift of dispatch on a manager.

    Args:
        context: The shift.
        hook: Called around every write; for tests.
        prices: For dispatchers that ask offers; None for those of the portal's rate cards.
        known: Workers that may hold copies of an earlier shift; None for all that are registered.

    Raises:
        Terminal: the stored Kueue Configuration says something of dispatch that is not usable.
    """

    workers: Workers

    def __init__(
        self,
        context: ShiftContext,
        *,
        hook: Hook = no_fault,
        prices: Prices | None = None,
        known: Known | None = None,
    ) -> None:
        super().__init__(context, hook=hook)
        self._nominating = Nominating(
            context, settings=self.settings, manager=self.manager, prices=prices
        )
        self._blocks = Blocks()
        self._read: dict[str, dict[str, str]] = {}
        self._profiles = Profiles(
            context.client,
            providers=lambda: read_providers(settings.PORTAL_ACCESS_PROVIDERS),
            now=context.now,
            shares=context.clients.shares,
        )
        self.workers = Workers(
            context,
            manager=self.manager,
            settings=self.settings,
            profiles=self._profiles,
            sink=self.tell,
            is_busy=lambda worker: any(name == worker for _, name in self.queue.busy()),
            known=known,
        )
        self._links = self.workers.links
        self._fleets: dict[str, DispatchFleet] = {}

    def selection_of(self, kind: JobKind) -> Selection:
        """Only what can be a job."""
        return Selection(labels=kind.selector)

    def opened(self) -> None:
        """Looks at what an earlier shift left."""
        self.look_at(self._nominating.load())

    def closing(self) -> None:
        """Writes the last rounds, and ends every watch on workers."""
        self._nominating.close()
        self.workers.close()
        self._profiles.close()

    # What comes in

    def take(self, seen: Seen) -> None:
        """Looks also at what a job was linked to so far: an elastic one goes on to other slices."""
        cache, key = self.workers.cache_on(seen.cluster), key_of(seen.document)
        known = cache.get(seen.resource, key) if cache is not None else None
        before: tuple[str, ...] = ()
        if seen.resource in self._job_resources and cache is not None and known is not None:
            before = cache.workloads_of(known)
        super().take(seen)
        self.look_at(before)
        if cache is not None and labels.COMPONENT_INDEX in annotations_of(seen.document):
            self.look_at(self._siblings(seen, known, cache.get(seen.resource, key)))

    def _siblings(
        self, seen: Seen, known: Document | None, now: Document | None
    ) -> tuple[str, ...]:
        """Those of a Workload that came, went or was given a worker, once they are all there."""
        if (known is None) == (now is None) and chosen_of(known or {}) == chosen_of(now or {}):
            return ()
        owner = self.manager.owner_of(seen.document)
        keys = self.manager.workloads_of(owner) if owner is not None else ()
        is_complete = all(self.manager.get(r.WORKLOAD, key) is not None for key in reversed(keys))
        return keys if is_complete or now is None else ()

    def concerned(self, key: Place) -> Iterable[Place]:
        """Whatever was done, on whichever cluster: the workload is looked at."""
        if _is_connection(key):
            self._looked_at = 0.0
            return ()
        return ((key[0], MANAGER),)

    def all_keys(self) -> Iterable[Place]:
        """Every workload that is on the manager, or that a worker has something of."""
        caches = [link.cache for link in self._links.values()]
        keys = {*self.manager.of(r.WORKLOAD), *(k for c in caches for k in c.keys_to_plan())}
        return [(key, MANAGER) for key in keys]

    def says(self, key: Place) -> str:
        """The workload, and where."""
        name, cluster = key
        if _is_connection(key):
            return name.replace(":", " ")
        return f"Workload {name} on {cluster}" if cluster else f"Workload {name}"

    def of_workload(self, document: Document) -> Iterator[str]:
        """Itself, and the slice that it replaces."""
        yield key_of(document)
        annotations = annotations_of(document)
        if annotations.get(labels.SLICE_OF):
            yield annotations[labels.SLICE_OF]

    # Connections and time

    def look(self) -> None:
        """Wake what was blocked until now; follow connections."""
        self._fleets.clear()
        self.look_at(self._blocks.due())
        self._nominating.flush()
        super().look()

    def follow(self, now: datetime) -> None:
        """Follow connections, and tell on the manager who is connected."""
        if self.workers.follow():
            self.look_at_all()
        self._nominating.follow(self.workers.wanted)
        if self.workers.look(now):
            # What they have must be known before anything is decided by its absence.
            self.take_in(everything=True)
            self.look_at_all()
        if self.may_write:
            self._tell_connections(now)

    def _tell_connections(self, now: datetime) -> None:
        states = {name: link.told for name, link in self._links.items()}
        for write in connection_writes(self.manager, states=states, now=now):
            place = f"{write.resource.kind}:{write.name}", MANAGER
            if self.queue.is_free(place):
                self.send(place, write)

    # Deciding and carrying out

    def handle(self, key: Place) -> None:
        """Looks at a workload with all its copies, and starts what is to be done."""
        local, now = self.workers.local(key[0]), self.context.now()
        group = self._nominating.group(
            local,
            self._fleet(local.check),
            blocked=self._blocks.reasons(local.key),
            foreign=self._blocks.foreign(local.key),
            read=self._read.get(local.key),
        )
        actions: Sequence[step.Action] = ()
        if local.workload is None and not any(c.is_anything_ours for c in group.copies.values()):
            self._blocks.forget(local.key)
            self._read.pop(local.key, None)
        else:
            verdict = self._nominating.decide(local.key, group)
            if verdict.look_again is not None:
                self.queue.add_at(key, verdict.look_again)
            actions = verdict.actions
        if self.faults.standing.parked:
            self._clear_faults(local.key, actions)
        if actions:
            log.debug("dispatch", key=local.key, actions=actions)
            self._carry_out(local, actions, now)

    def _fleet(self, check: str) -> DispatchFleet:
        """The workers of a check, the same for everybody of one turn."""
        found = self._fleets.get(check)
        if found is None:
            found = self.workers.fleet(check)
            self._fleets[check] = found
        return found

    def _clear_faults(self, key: str, actions: Iterable[step.Action]) -> None:
        """Where nothing is to be done any more, nothing goes wrong any more."""
        wanted = {action.cluster for action in actions if isinstance(action, step.OnWorker)}
        for worker in self._links.keys() - wanted:
            self.faults.clear(self.says((key, worker)))

    def _carry_out(self, local: Local, actions: Iterable[step.Action], now: datetime) -> None:
        """Start everything that has something to write and whose place is free."""
        writes: list[Write] = []
        for action in actions:
            if isinstance(action, step.OnWorker):
                self._start_on_worker(local, action)
            elif isinstance(action, step.Tell):
                self._tell(local, action)
            else:
                link = self._links.get(getattr(action, "cluster", ""))
                writes += manager_writes(
                    action,
                    local,
                    jobs_there(local.key, link.cache, self.kinds, elastic=local.job)
                    if link
                    else (),
                    now=now,
                    is_fine=self.settings.is_fine,
                )
        if writes:
            self._start_here(local, writes)

    def _start_here(self, local: Local, writes: Sequence[Write]) -> None:
        targets: list[Target] = [(r.WORKLOAD, local.key)]
        if local.kind is not None:
            targets += [(local.kind.resource, key_of(member)) for member in local.members]

        def work(effects: list[Effect]) -> None:
            sender = Sender(MANAGER, self.context.client, self.writer, effects)
            for write in writes:
                sender.send(write)

        errand = Errand(",".join(write.step for write in writes), targets)
        self.start((local.key, MANAGER), work, about=errand)

    def _tell(self, local: Local, action: step.Tell) -> None:
        about = Reference.of(local.there)
        told = Event(about, action.reason, action.message, is_warning=True, is_once=True)
        self.recorder.record([told])

    def _start_on_worker(self, local: Local, action: step.OnWorker) -> None:
        place, link = (local.key, action.cluster), self._links.get(action.cluster)
        if link is None or not self.queue.is_free(place):
            return
        is_removal = isinstance(action, step.RemoveCopy)
        if isinstance(action, step.RemoveCopy) and action.blocks:
            self._blocks.add(*place, action.blocks)
        client = link.client
        if isinstance(action, step.ReadJob):
            self._read_job(local, link)
            return
        if client is None or not link.may_write or (local.workload is None and not is_removal):
            return
        copies = Copies.on(link.cache, local, self.kinds, is_removed=is_removal)
        writer = self.writer_on(link, client)
        is_creation = isinstance(action, step.CreateCopy | step.CreateJob)
        errand = Errand(type(action).__name__, is_creation=is_creation)

        def work(effects: list[Effect]) -> None:
            sender = Sender(link.name, client, writer, effects)
            try:
                copies.carry_out(action, sender, is_gone=lambda: self._is_gone(local.key))
            except Foreign as obstacle:
                errand.foreign = str(obstacle)

        self.start(place, work, about=errand, lane=link.name)

    def _read_job(self, local: Local, link: Link) -> None:
        """Read a job whose copy has finished; whether anything may be written there or not."""
        copy = link.cache.get(r.WORKLOAD, local.key)
        if link.client is None or copy is None:
            return
        there = jobs_there(local.key, link.cache, self.kinds, elastic=local.job)
        targets = [(resource, key_of(job)) for resource, job in self.kinds.with_resources(there)]
        errand = Errand(step.ReadJob.__name__, read=copy["metadata"]["uid"])
        work = reading(link.client, targets, cluster=link.name)
        self.start((local.key, link.name), work, about=errand, lane=link.name)

    def _is_gone(self, key: str) -> bool:
        """Whether the manager itself says that a Workload is gone; its cache may lag behind."""
        found = read_workload(self.context.client, key)
        return found is None or bool(found["metadata"].get("deletionTimestamp"))

    # What became of it

    def answered(self, answer: Answer[Place]) -> None:
        """Passes a worker over for a while where somebody else's object was in the way.

        Also keeps that a job was read.
        """
        if not isinstance(answer.about, Errand):
            return
        if answer.about.foreign:
            self._blocks.add(*answer.key, answer.about.foreign, is_foreign=True)
        if answer.about.read:
            key, worker = answer.key
            self._read.setdefault(key, {})[worker] = answer.about.read

    def failed(self, answer: Answer[Place]) -> None:
        """Passes a worker over that refused: it will not go away at once, and people should know
        why they wait.
        """
        error, about = answer.error, answer.about
        if isinstance(error, Terminal) and isinstance(about, Errand) and about.is_creation:
            self._blocks.add(*answer.key, error.message)
            self._nominating.failed(answer.key[1])

    def reread(self, answer: Answer[Place]) -> Work | None:
        """What the manager has of a workload; workers' watches tell themselves."""
        if not isinstance(answer.about, Errand):
            return super().reread(answer)
        if not answer.about.targets:
            return None
        return reading(self.context.client, answer.about.targets, cluster=MANAGER)


def _is_connection(place: Place) -> bool:
    """Whether it is a write about a connection, not about a workload."""
    return ":" in place[0]
