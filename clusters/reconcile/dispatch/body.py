"""The dispatch shift: one thread that looks and decides, others that listen and carry out.

Work is keyed by workload. Its actions on the manager go one after the other; each worker's go by
themselves, so that a worker that hangs or refuses holds nobody else up.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from django.conf import settings

from clusters.errors import Conflict, Terminal
from clusters.kube import resources as r
from clusters.kueue.multikueue.decide import check_of
from clusters.reconcile.admission.image import Image
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.dispatch.connections import connection_writes
from clusters.reconcile.dispatch.cordoned import Cordoned
from clusters.reconcile.dispatch.courier import Effect, Matter
from clusters.reconcile.dispatch.crew import BLOCKED_S, Crew
from clusters.reconcile.dispatch.group import Fleet, attempt_of, group_for, local_job
from clusters.reconcile.dispatch.images import Images
from clusters.reconcile.dispatch.lanes import MANAGER, Lanes, Report
from clusters.reconcile.dispatch.nominating import Nominating
from clusters.reconcile.dispatch.prices import Prices, current_prices, no_prices
from clusters.reconcile.dispatch.profiles import Profiles, read_providers
from clusters.reconcile.dispatch.roster import Known, Roster
from clusters.reconcile.dispatch.timing import Blocks, Holds
from clusters.reconcile.jobs import remote
from clusters.reconcile.jobs.adapters import Adapters, settings_of
from clusters.reconcile.jobs.alarms import Alarms
from clusters.reconcile.runtime.watches import Change, Seen, Watches, taken
from clusters.reconcile.runtime.writer import Hook, no_fault
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
        self._foreign: set[tuple[str, str]] = set()
        self._lanes = Lanes(self._inbox.put, threads=THREADS)
        self._configuration = context.cluster.kueue_configuration
        self._settings = settings_of(self._configuration)
        self._adapters = Adapters.of_settings(self._settings)
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
        self._roster = Roster(
            context,
            manager=self._manager,
            lanes=self._lanes,
            adapters=self._adapters,
            profiles=self._profiles,
            sink=self._inbox.put,
            known=known,
        )
        self._links = self._roster.links
        self._images = Images(self._manager, self._links, self._adapters)
        self._wanted: frozenset[str] = frozenset()
        self._crew = Crew(
            context,
            links=self._links,
            lanes=self._lanes,
            holds=self._holds,
            blocks=self._blocks,
            adapters=self._adapters,
            hook=hook,
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
            self._roster.close()
            self._lanes.close()
            self._profiles.close()

    def _begin(self) -> bool:
        """Take in what is there; False when told to stop before it was read."""
        for resource in MANAGER_KINDS:
            self._watches.add(resource)
        for resource in self._adapters.resources:
            may_be_missing = resource in self._adapters.optional
            selection = self._adapters.selection_of(resource)
            self._watches.add(resource, selection=selection, is_optional=may_be_missing)
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
        taken_in = self._images.take(seen)
        self._mark(taken_in.keys)
        if taken_in.is_of_connections:
            self._looked_at = 0.0

    def _mark(self, keys: Iterable[str]) -> None:
        self._dirty.update(dict.fromkeys(keys))

    def _mark_all(self) -> None:
        self._mark(self._images.all_keys())

    # Connections and time

    def _look(self) -> None:
        """Follow connections; wake what waits for them, and what waits for time."""
        moment = time.monotonic()
        now = self._context.now()
        self._mark(self._alarms.due(now))
        over = self._blocks.due()
        self._foreign.difference_update(over)
        self._mark(key for key, _ in (*self._holds.due(), *over))
        if moment - self._resynced_at > RESYNC_S:
            self._resynced_at = moment
            self._mark_all()
        if moment - self._looked_at < LINKS_EVERY_S:
            return
        self._looked_at = moment
        self._follow_configuration()
        # A list, for every one of them has to be looked at.
        flips = [link.name for link in self._links.values() if link.look(now)]
        if flips:
            log.info("workers_changed workers=%s", ",".join(sorted(flips)))
            # What they have must be known before anything is decided by its absence.
            self._take_all(everything=True)
            self._mark_all()
        if self._context.cluster.may_write:
            self._tell_connections(now)

    def _follow_configuration(self) -> None:
        wanted, has_closed = self._roster.follow()
        if has_closed or wanted != self._wanted:
            self._wanted = wanted
            self._mark_all()
        self._nominating.follow(wanted)

    def _tell_connections(self, now: datetime) -> None:
        writes = connection_writes(
            self._manager.of(r.ADMISSION_CHECK),
            self._manager.of(r.MULTIKUEUE_CONFIG),
            self._manager.of(r.MULTIKUEUE_CLUSTER),
            states={name: link.told for name, link in self._links.items()},
            now=now,
        )
        for write in writes:
            self._crew.write_on_manager(f"{write.resource.kind}:{write.name}", write)

    # Deciding and carrying out

    def _handle_all(self) -> None:
        keys, self._dirty = list(self._dirty), {}
        controllers = {
            name: (check.get("spec") or {}).get("controllerName", "")
            for name, check in self._manager.of(r.ADMISSION_CHECK).items()
        }
        now = self._context.now()
        for key in keys:
            if "/" in key and ":" not in key:
                self._handle(key, controllers, now)

    def _handle(self, key: str, controllers: dict[str, str], now: datetime) -> None:
        if self._lanes.is_busy((key, MANAGER)) or self._holds.is_held((key, MANAGER)):
            return  # its report, or the end of its wait, marks it again
        local = self._manager.get(r.WORKLOAD, key)
        check = check_of(local, controllers=controllers) if local is not None else ""
        fleet = self._fleet(check)
        bids = self._nominating.bids(key, local, self._manager, fleet)
        group = group_for(key, self._manager, fleet, check=check, now=now, bids=bids)
        if local is None and not any(copy.is_anything_ours for copy in group.copies.values()):
            self._blocks.forget(key)
            return
        verdict = self._nominating.decide(key, group)
        if verdict.look_again is not None:
            self._alarms.set(key, verdict.look_again)
        if not verdict.actions:
            return
        log.debug("dispatch key=%s actions=%s", key, verdict.actions)
        origin = self._context.cluster.installation
        matter = None
        if local is not None:
            job = local_job(self._manager, key, self._adapters)
            matter = Matter(
                key=key,
                check=check,
                local=local,
                job=job,
                adapter=self._adapters.of(job) if job is not None else None,
                marks=remote.CopyMarks(origin, attempt_of(local)),
                now=now,
            )
        self._crew.carry_out(key, matter, verdict.actions)

    def _fleet(self, check: str) -> Fleet:
        return self._roster.fleet(
            check,
            closed=self._cordoned.words(),
            blocked=self._blocks.reasons(),
            foreign=self._foreign,
            worker_lost_timeout=self._settings.worker_lost_timeout,
        )

    # What became of it

    def _take_report(self, report: Report) -> None:
        place = report.place
        key = place[0]
        self._lanes.done(place)
        if report.fatal is not None:
            raise report.fatal
        for effect in report.effects:
            self._take_effect(key, effect)
        if report.foreign:
            self._blocks.add(place, report.foreign, seconds=BLOCKED_S)
            self._foreign.add(place)
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
            self._blocks.add(report.place, error.message, seconds=BLOCKED_S)
            self._nominating.failed(report.place[1])
        if not is_race:
            log.warning(
                "dispatch_failed key=%s cluster=%s reason=%s message=%s",
                report.place[0], report.place[1] or "manager", error.reason, error.message,
            )  # fmt: skip

    def _take_effect(self, key: str, effect: Effect) -> None:
        is_own = effect.cluster in (MANAGER, self._context.cluster.slug)
        image = self._images.of(MANAGER if is_own else effect.cluster)
        if effect.document is not None:
            self._mark(self._images.linked(image, effect.resource, effect.document))
        effect.show_in(image, namespace=key.partition("/")[0])
