"""The dispatch shift: one thread that looks and decides, others that listen and carry out.

Work is keyed by workload. Its actions on the manager go one after the other; each worker's go by
themselves, so that a worker that hangs or refuses holds nobody else up.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from django.conf import settings

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, key_of
from clusters.errors import AlreadyExists, ClusterError, Conflict, Forbidden, NotFound, Terminal
from clusters.jobs.table import JobKinds
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.kube.resources import Resource
from clusters.kueue.multikueue import steps as step
from clusters.reconcile.admission.image import Image
from clusters.reconcile.configured import settings_of
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.dispatch.connections import connection_writes, dispatch_check
from clusters.reconcile.dispatch.copies import Copies
from clusters.reconcile.dispatch.cordoned import Cordoned
from clusters.reconcile.dispatch.group import Fleet, group_for
from clusters.reconcile.dispatch.lanes import MANAGER, Effect, Lanes, Report, Sender
from clusters.reconcile.dispatch.links import Link
from clusters.reconcile.dispatch.local import Local
from clusters.reconcile.dispatch.manager_writes import manager_writes
from clusters.reconcile.dispatch.nominating import Nominating
from clusters.reconcile.dispatch.parts import jobs_there, jobs_to_remove
from clusters.reconcile.dispatch.prices import Prices, current_prices, no_prices
from clusters.reconcile.dispatch.profiles import Profiles, read_providers
from clusters.reconcile.dispatch.timing import Blocks, Holds
from clusters.reconcile.dispatch.workers import Known, Workers
from clusters.reconcile.jobs.alarms import Alarms
from clusters.reconcile.runtime.recorder import Event, workload_reference
from clusters.reconcile.runtime.watches import Change, Seen, Watches, taken
from clusters.reconcile.runtime.writer import Hook, Write, Writer, no_fault
from clusters.selectors.cordons import Cordons, cordons_now

log = logging.getLogger(__name__)

TICK_S: Final = 0.1
LINKS_EVERY_S: Final = 0.25
RESYNC_S: Final = 60.0
THREADS: Final = 4
MANAGER_KINDS: Final = (
    r.ADMISSION_CHECK, r.MULTIKUEUE_CONFIG, r.MULTIKUEUE_CLUSTER, r.WORKLOAD,
)  # fmt: skip


class DispatchBody:
    """One shift of dispatch on a manager.

    Args:
        context: The shift.
        hook: Called around every write; for tests.
        prices: For dispatchers that ask offers; None for those of the portal's rate cards.
        known: Workers that may hold copies of an earlier shift; None for all that are registered.

    Raises:
        Terminal: the stored Kueue Configuration says something of dispatch that is not usable.
    """

    def __init__(
        self,
        context: ShiftContext,
        *,
        hook: Hook = no_fault,
        prices: Prices | None = None,
        known: Known | None = None,
    ) -> None:
        self._context = context
        self._inbox: queue.SimpleQueue[Seen | Report] = queue.SimpleQueue()
        self._dirty: dict[str, None] = {}
        self._alarms = Alarms()
        self._holds, self._blocks = Holds(), Blocks()
        self._lanes = Lanes(self._inbox.put, threads=THREADS)
        self._configuration = context.cluster.kueue_configuration
        self._settings = settings_of(self._configuration)
        self._adapters = JobKinds(self._settings.kinds)
        self._manager = Image(self._adapters.resources)
        if prices is None:
            prices = current_prices if context.cluster.pk else no_prices
        self._nominating = Nominating(context, settings=self._settings, prices=prices)
        is_stored = bool(context.cluster.pk)
        self._cordoned = Cordoned(self._mark_all, read=cordons_now if is_stored else Cordons)
        self._looked_at = self._resynced_at = 0.0
        self._profiles = Profiles(
            context.client,
            providers=lambda: read_providers(settings.PORTAL_ACCESS_PROVIDERS),
            now=context.now,
        )
        self._workers = Workers(
            context,
            manager=self._manager,
            adapters=self._adapters,
            profiles=self._profiles,
            sink=self._inbox.put,
            is_busy=self._lanes.is_busy_on,
            known=known,
        )
        self._links = self._workers.links
        self._told: dict[tuple[str, str], None] = {}
        self._hook = hook
        self._writer = self._writer_of(
            context.cluster.slug, context.client, lambda: context.cluster.may_write
        )
        self._watches = Watches(
            context.client,
            cluster=MANAGER,
            pulse=context.pulse,
            sink=self._inbox.put,
        )

    def run(self) -> None:
        """Works until the shift ends; under a live Kueue there is nothing to do.

        Raises:
            LeaseLost: nothing was written after it.
        """
        context = self._context
        if not context.cluster.is_portal_mode:
            context.stop.wait()
            return
        context.report_watch_age(self._watches.age)
        try:
            if not self._begin():
                return
            while not context.stop.is_set():
                if context.cluster.kueue_configuration != self._configuration:
                    return  # the next shift begins with the new one
                self._turn()
        finally:
            self._nominating.close()
            self._watches.close()
            self._workers.close()
            self._lanes.close()
            self._profiles.close()

    def _begin(self) -> bool:
        """Take in what is there; False when told to stop before it was read."""
        for resource in MANAGER_KINDS:
            self._watches.add(resource)
        for kind in self._adapters:
            selection = Selection(labels=kind.selector)
            may_be_missing = not kind.is_required
            self._watches.add(kind.resource, selection=selection, is_optional=may_be_missing)
        if not self._watches.wait_synced(self._context.stop):
            return False
        self._mark(self._nominating.load())
        self._take_all(everything=True)
        return True

    def _turn(self) -> None:
        self._look()
        if self._context.cluster.may_write:
            self._handle_all()
        self._nominating.flush()
        self._take_all()

    # What comes in

    def _take_all(self, *, everything: bool = False) -> None:
        is_busy = bool(self._dirty) and self._context.cluster.may_write
        wait_s = 0.0 if is_busy else TICK_S
        for item in taken(self._inbox, wait_s=wait_s, everything=everything):
            if isinstance(item, Report):
                self._take_report(item)
            elif item.change is not Change.SYNCED:
                self._take(item)

    def _take(self, seen: Seen) -> None:
        image = self._image_of(seen.cluster)
        self._mark(self._linked(image, seen.resource, seen.document))
        put = image.drop if seen.change is Change.DELETED else image.put
        if not put(seen.resource, seen.document):
            return
        if seen.resource == r.WORKLOAD:
            self._mark(self._of_workload(seen.document))
        elif seen.resource in self._adapters.resources:
            self._mark(image.workloads_of(seen.document))
        else:
            self._looked_at = 0.0  # which workers are dispatched to, or how, may have changed

    def _image_of(self, cluster: str) -> Image:
        """The manager's image, or a worker's; an empty one of a worker without a link."""
        if cluster in (MANAGER, self._context.cluster.slug):
            return self._manager
        link = self._links.get(cluster)
        return link.image if link is not None else Image(self._adapters.resources)

    def _linked(self, image: Image, resource: Resource, document: Document) -> Iterable[str]:
        """Workloads that a job was linked to so far; an elastic one goes from slice to slice."""
        if resource not in self._adapters.resources:
            return ()
        known = image.get(resource, key_of(document))
        return image.workloads_of(known) if known is not None else ()

    def _of_workload(self, document: Document) -> Iterator[str]:
        yield key_of(document)
        annotations = annotations_of(document)
        if annotations.get(labels.SLICE_OF):
            yield annotations[labels.SLICE_OF]
        if labels.COMPONENT_INDEX in annotations:
            owner = self._manager.owner_of(document)
            yield from self._manager.workloads_of(owner) if owner is not None else ()

    def _mark(self, keys: Iterable[str]) -> None:
        self._dirty.update(dict.fromkeys(keys))

    def _mark_all(self) -> None:
        self._mark(self._manager.of(r.WORKLOAD))
        for link in self._links.values():
            self._mark(link.image.keys_to_plan())

    # Connections and time

    def _look(self) -> None:
        """Follow connections; wake what waits for them, and what waits for time."""
        moment = time.monotonic()
        now = self._context.now()
        self._mark(self._alarms.due(now))
        self._mark(key for key, _ in self._holds.due())
        self._mark(self._blocks.due())
        if moment - self._resynced_at > RESYNC_S:
            self._resynced_at = moment
            self._mark_all()
        if moment - self._looked_at < LINKS_EVERY_S:
            return
        self._looked_at = moment
        if self._workers.follow():
            self._mark_all()
        self._nominating.follow(self._workers.wanted)
        flips = self._workers.look(now)
        if flips:
            log.info("workers_changed workers=%s", ",".join(sorted(flips)))
            # What they have must be known before anything is decided by its absence.
            self._take_all(everything=True)
            self._mark_all()
        if self._context.cluster.may_write:
            self._tell_connections(now)

    def _tell_connections(self, now: datetime) -> None:
        writes = connection_writes(
            self._manager.of(r.ADMISSION_CHECK),
            self._manager.of(r.MULTIKUEUE_CONFIG),
            self._manager.of(r.MULTIKUEUE_CLUSTER),
            states={name: link.told for name, link in self._links.items()},
            now=now,
        )
        for write in writes:
            place = f"{write.resource.kind}:{write.name}", MANAGER
            if self._is_free(place):
                self._start(place, [write])

    # Deciding and carrying out

    def _handle_all(self) -> None:
        keys, self._dirty = list(self._dirty), {}
        now = self._context.now()
        for key in keys:
            if "/" in key and ":" not in key:
                self._handle(key, now)

    def _handle(self, key: str, now: datetime) -> None:
        if not self._is_free((key, MANAGER)):
            return  # its report, or the end of its wait, marks it again
        workload = self._manager.get(r.WORKLOAD, key)
        check = dispatch_check(self._manager, workload) if workload is not None else ""
        local = Local.of(
            key, self._manager, check=check, origin=self._context.cluster.installation,
            adapters=self._adapters,
        )  # fmt: skip
        fleet = self._fleet(check)
        group = group_for(
            local,
            self._manager,
            fleet,
            now=now,
            bids=self._nominating.bids(local, self._manager, fleet),
            blocked=self._blocks.reasons(key),
            foreign=self._blocks.foreign(key),
        )
        if workload is None and not any(copy.is_anything_ours for copy in group.copies.values()):
            self._blocks.forget(key)
            return
        verdict = self._nominating.decide(key, group)
        if verdict.look_again is not None:
            self._alarms.set(key, verdict.look_again)
        if verdict.actions:
            log.debug("dispatch key=%s actions=%s", key, verdict.actions)
            self._carry_out(local, verdict.actions, now)

    def _fleet(self, check: str) -> Fleet:
        return self._workers.fleet(
            check,
            closed=self._cordoned.words(),
            worker_lost_timeout=self._settings.worker_lost_timeout,
        )

    def _carry_out(self, local: Local, actions: Iterable[step.Action], now: datetime) -> None:
        """Start everything that has something to write and whose lane is free."""
        writes: list[Write] = []
        for action in actions:
            if isinstance(action, step.OnWorker):
                self._start_on_worker(local, action)
            elif isinstance(action, step.Tell):
                writes = [*self._telling(local, action, now), *writes]
            elif local.workload is not None:
                link = self._links.get(getattr(action, "cluster", ""))
                jobs = self._jobs_on(link, local) if link is not None else ()
                writes += manager_writes(action, local, jobs, now=now)
        if writes:
            targets = [(r.WORKLOAD, local.there)]
            if local.adapter is not None:
                targets += [(local.adapter.resource, member) for member in local.members]
            self._start((local.key, MANAGER), writes, targets)

    def _jobs_on(self, link: Link, local: Local) -> list[dict[str, Any]]:
        return jobs_there(local.key, link.image, self._adapters, elastic=local.job)

    def _telling(self, local: Local, action: step.Tell, now: datetime) -> Iterator[Write]:
        if (local.key, action.message) in self._told:
            return
        about = workload_reference(local.there)
        told = Event(about, action.reason, action.message, is_warning=True, is_once=True)
        yield Write.create("tell", r.EVENT, told.document(now=now))
        self._told[local.key, action.message] = None

    def _start(
        self,
        place: tuple[str, str],
        writes: Iterable[Write],
        targets: Iterable[tuple[Resource, Document]] = (),
    ) -> None:
        """Send to the manager, one after the other; where one fails, read what it was about."""

        def work(effects: list[Effect]) -> None:
            sender = Sender(MANAGER, self._context.client, self._writer, effects)
            try:
                for write in writes:
                    if write.resource == r.EVENT:
                        with contextlib.suppress(AlreadyExists, Forbidden):
                            self._writer.send(write)  # told before, or not a right of ours
                    else:
                        sender.send(write)
            except ClusterError:
                for resource, known in targets:
                    # Where that fails, too, the first refusal counts and the watch tells the rest.
                    with contextlib.suppress(ClusterError):
                        metadata = known["metadata"]
                        found = sender.client.get(
                            resource, metadata["name"], namespace=metadata["namespace"]
                        )
                        sender.note(resource, found)
                raise

        self._lanes.start(place, work)

    def _start_on_worker(self, local: Local, action: step.OnWorker) -> None:
        place, link = (local.key, action.cluster), self._links.get(action.cluster)
        if link is None or not self._is_free(place):
            return
        is_removal = isinstance(action, step.RemoveCopy)
        if isinstance(action, step.RemoveCopy) and action.blocks:
            self._blocks.add(*place, action.blocks)
        client = link.client
        if client is None or (local.workload is None and not is_removal):
            return
        there = (
            jobs_to_remove(local.key, link.image, self._adapters)
            if is_removal
            else self._jobs_on(link, local)
        )
        jobs = [
            (adapter.resource, job)
            for job in there
            if (adapter := self._adapters.of(job)) is not None
        ]
        copies = Copies(local, link.image.get(r.WORKLOAD, local.key), jobs)
        writer = self._writer_of(link.name, client, lambda: link.may_write)

        def work(effects: list[Effect]) -> None:
            sender = Sender(link.name, client, writer, effects)
            copies.carry_out(action, sender, is_gone=lambda: self._is_gone(local.key))

        is_creation = isinstance(action, step.CreateCopy | step.CreateJob)
        self._lanes.start(place, work, is_creation=is_creation)

    def _is_gone(self, key: str) -> bool:
        """Whether the manager itself says that a Workload is gone; its image may lag behind."""
        namespace, _, name = key.partition("/")
        try:
            found = self._context.client.get(r.WORKLOAD, name, namespace=namespace)
        except NotFound:
            return True
        return bool(found["metadata"].get("deletionTimestamp"))

    def _is_free(self, place: tuple[str, str]) -> bool:
        return not self._lanes.is_busy(place) and not self._holds.is_held(place)

    def _writer_of(self, name: str, client: KubeClient, may_write: Callable[[], bool]) -> Writer:
        return Writer(
            client, cluster=name, fence=self._context.fence, may_write=may_write, hook=self._hook
        )

    # What became of it

    def _take_report(self, report: Report) -> None:
        place = report.place
        key = place[0]
        self._lanes.done(place)
        if report.fatal is not None:
            raise report.fatal
        for effect in report.effects:
            self._take_effect(effect)
        if report.foreign:
            self._blocks.add(*place, report.foreign, is_foreign=True)
        if report.error is not None:
            self._failed(report)
        else:
            self._holds.clear(place)
        if ":" in key:
            self._looked_at = 0.0
        else:
            self._mark([key])

    def _failed(self, report: Report) -> None:
        error = report.error
        assert error is not None
        is_race = isinstance(error, Conflict)
        self._holds.fail(report.place, is_race=is_race)
        if report.is_creation and isinstance(error, Terminal):
            # It will not go away at once, and people should know why they wait.
            self._blocks.add(*report.place, error.message)
            self._nominating.failed(report.place[1])
        if not is_race:
            log.warning(
                "dispatch_failed key=%s cluster=%s reason=%s message=%s",
                report.place[0], report.place[1] or "manager", error.reason, error.message,
            )  # fmt: skip

    def _take_effect(self, effect: Effect) -> None:
        image = self._image_of(effect.cluster)
        if effect.document is not None:
            self._mark(self._linked(image, effect.resource, effect.document))
        image.show(effect)
