"""The dispatch shift of a manager under a live Kueue: it nominates where asked, and guards.

One thread looks and decides; writes go in lanes, so that a cluster that hangs holds nobody up.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable
from typing import Final

from clusters.errors import Conflict
from clusters.jobs.table import JobKinds
from clusters.kube import resources as r
from clusters.models import Cluster
from clusters.reconcile.configured import settings_of
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.dispatch.lanes import Lanes, Report
from clusters.reconcile.dispatch.prices import Prices, current_prices, no_prices
from clusters.reconcile.dispatch.timing import Holds
from clusters.reconcile.external.nominator import Nominator
from clusters.reconcile.external.returns import Arrived, Left
from clusters.reconcile.external.sight import MANAGER, Sight
from clusters.reconcile.guard.guarding import Guard
from clusters.reconcile.jobs.alarms import Alarms
from clusters.reconcile.runtime.watches import Change, Seen, taken
from clusters.reconcile.runtime.writer import Hook, Writer, no_fault

TICK_S: Final = 0.1
LOOK_EVERY_S: Final = 0.25
RESYNC_S: Final = 60.0
THREADS: Final = 4
Item = Seen | Arrived | Left | Report


class BesideBody:
    """One shift beside a live Kueue.

    Args:
        context: The shift.
        hook: Called around every write; for tests.
        prices: For dispatchers that ask offers; None for those of the portal's rate cards.

    Raises:
        Terminal: the stored Kueue Configuration says something of dispatch that is not usable.
    """

    def __init__(
        self, context: ShiftContext, *, hook: Hook = no_fault, prices: Prices | None = None
    ) -> None:
        self._context = context
        self._inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._configuration = context.cluster.kueue_configuration
        settings = settings_of(self._configuration)
        self._sight = Sight(
            context,
            settings=settings,
            adapters=JobKinds(settings.kinds),
            sink=self._inbox.put,
        )
        self._lanes, self._holds = Lanes(self._inbox.put, threads=THREADS), Holds()
        self._alarms = Alarms()
        writer = Writer(
            context.client, cluster=context.cluster.slug, fence=context.fence,
            may_write=lambda: context.cluster.may_write, hook=hook,
        )  # fmt: skip
        self._guard = Guard(
            context, sight=self._sight, lanes=self._lanes, holds=self._holds, writer=writer,
            alarm=self._alarms.set, hook=hook,
        )  # fmt: skip
        self._nominator = Nominator(
            context, sight=self._sight, lanes=self._lanes, holds=self._holds, writer=writer,
            settings=settings, alarm=self._alarms.set,
            prices=prices or (current_prices if context.cluster.pk else no_prices),
        )  # fmt: skip
        self._nominates = settings.in_force.is_ours
        self._dirty: dict[str, None] = {}
        self._looked_at = self._resynced_at = 0.0

    def run(self) -> None:
        """Works until the shift ends.

        Raises:
            LeaseLost: nothing was written after it.
        """
        context = self._context
        context.report_watch_age(self._sight.watches.age)
        try:
            if not self._sight.open():
                return
            self._mark((*self._guard.load(), *self._nominator.load()))
            self._take_all(everything=True)
            while not context.stop.is_set() and self._is_same_configuration():
                self._look()
                self._handle_all()
                self._guard.flush()
                self._take_all()
        finally:
            self._lanes.close()
            self._nominator.close()
            self._guard.flush()
            self._sight.close()

    def _is_same_configuration(self) -> bool:
        """With another one the next shift begins anew."""
        return self._context.cluster.kueue_configuration == self._configuration

    # What comes in

    def _take_all(self, *, everything: bool = False) -> None:
        wait_s = 0.0 if self._dirty else TICK_S
        for item in taken(self._inbox, wait_s=wait_s, everything=everything):
            if isinstance(item, Report):
                self._take_report(item)
                continue
            self._mark(self._sight.take(item))
            if isinstance(item, Seen) and item.cluster != MANAGER and _is_lost_copy(item):
                metadata = item.document["metadata"]
                key = f"{metadata['namespace']}/{metadata['name']}"
                self._nominator.copy_gone(key, item.cluster)

    def _take_report(self, report: Report) -> None:
        self._lanes.done(report.place)
        if report.fatal is not None:
            raise report.fatal
        for effect in report.effects:
            effect.show_in(self._sight.image_of(effect.cluster))
        if report.error is not None:
            self._holds.fail(report.place, is_race=isinstance(report.error, Conflict))
        else:
            self._holds.clear(report.place)
        self._mark([self._guard.take_report(report) or report.place[0]])

    def _mark(self, keys: Iterable[str]) -> None:
        self._dirty.update(dict.fromkeys(keys))

    # Connections and time

    def _look(self) -> None:
        moment, now = time.monotonic(), self._context.now()
        self._mark(self._alarms.due(now))
        self._mark(key.rpartition(":")[2] for key, _ in self._holds.due())
        if moment - self._resynced_at > RESYNC_S:
            self._resynced_at = moment
            self._mark_all()
        if moment - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = moment
        has_changed, back = self._sight.look(now)
        if self._nominates:
            has_changed |= self._nominator.look(now)
            self._mark(self._nominator.wake(back))
        if has_changed:
            self._mark_all()

    def _mark_all(self) -> None:
        self._mark(self._sight.manager.of(r.WORKLOAD))

    # Deciding

    def _handle_all(self) -> None:
        keys, self._dirty = list(self._dirty), {}
        now = self._context.now()
        is_idle = self._context.cluster.guard == Cluster.Guard.OFF and not self._nominates
        for key in keys if not is_idle else ():
            local = self._sight.manager.get(r.WORKLOAD, key)
            self._guard.examine(key, local, now)
            if self._nominates and self._context.cluster.may_write:
                self._nominator.consider(key, local, now)


def _is_lost_copy(item: Seen) -> bool:
    return item.change is Change.DELETED and item.resource == r.WORKLOAD
